"""Cases whose graphs are given as a rule: the rule as code, in the native notation."""

from tests.unit.native_program import graph


def diamonds(count):
    """FC-014: a -> cos(a) + sin(a), `count` times."""
    ops, last = ["a0 = add(x, y)"], "a0"
    for i in range(1, count + 1):
        ops += [f"c{i} = cos({last})", f"s{i} = sin({last})", f"a{i} = add(c{i}, s{i})"]
        last = f"a{i}"
    return graph(["x: f16[13]", "y: f16[13]"], ops, [last])


def wide_sum(count, rank):
    """FC-052: the sum of `count` inputs of extent 2 in `rank` dimensions."""
    shape = ",".join(["2"] * rank)
    ops, last = [], "x0"
    for i in range(1, count):
        ops.append(f"s{i} = add({last}, x{i})")
        last = f"s{i}"
    return graph([f"x{i}: f16[{shape}]" for i in range(count)], ops, [last])


def wide_concat(count):
    """FC-053: `count` relus joined, then bias and relu."""
    ops = [f"r{i} = relu(x{i})" for i in range(count)]
    ops += [f"j = concat({', '.join(f'r{i}' for i in range(count))}; axis=1)", "b = add(j, bias)", "y = relu(b)"]
    return graph([*(f"x{i}: f32[1,16,8,8]" for i in range(count)), f"bias: f32[1,{16 * count},1,1]"], ops, ["y"])


def linear_layers(count):
    """FC-056: linear and relu, `count` times, 16 wide."""
    ops, last = [], "x"
    inputs = ["x: f32[128,16]"]
    for i in range(count):
        inputs += [f"w{i}: f32[16,16]", f"b{i}: f32[16]"]
        ops += [f"m{i} = matmul({last}, w{i})", f"a{i} = add(m{i}, b{i})", f"h{i} = relu(a{i})"]
        last = f"h{i}"
    return graph(inputs, ops, [last], [line.split(":")[0] for line in inputs[1:]])


def scatter_chain(count):
    """FC-058: `count` updates of one row each, then the sum."""
    ops, last = [], "x"
    for i in range(count):
        ops += [
            f"r{i} = slice({last}; axis=0, start=0, end=1)", f"t{i} = mul(r{i}, {1 + 1e-4 * i})",
            f"i{i} = add(ix, {i})", f"u{i} = scatter_add({last}, i{i}, t{i}; axis=0)",
        ]  # fmt: skip
        last = f"u{i}"
    return graph(["x: f32[64,64]", "ix: i32[1]"], [*ops, f"y = reduce_sum({last}; axis=0-1)"], ["y"])


def long_chain(count):
    """FC-059: `count` pointwise operators with six tensors reused."""
    big = "f16[4,16,512,512]"
    ops, last = [], "x"
    for i in range(count):
        other = f"t{i % 6}"
        op = (f"add({last}, {other})", f"mul({last}, {other})", f"maximum({last}, {other})", f"tanh({last})")[i % 4]
        ops.append(f"v{i} = {op}")
        last = f"v{i}"
    return graph([f"x: {big}", *(f"t{i}: {big}" for i in range(6))], ops, [last])


def residual_blocks(count):
    """FC-062: identical residual blocks, so that many plans tie."""
    ops, last = [], "x"
    for i in range(count):
        ops += [f"m{i} = matmul({last}, w)", f"r{i} = relu(m{i})", f"h{i} = add(r{i}, {last})"]
        last = f"h{i}"
    return graph(["x: f16[512,256]", "w: f16[256,256]"], ops, [last], ["w"])
