"""Small graphs that between them use every operator with a generated kernel, and every template."""

import json

from fusesolve.graph import Graph
from fusesolve.importers.native import parse_native

UNARY = (
    "neg", "abs", "sign", "square", "relu", "floor", "ceil", "round", "trunc", "exp", "expm1", "log", "log1p", "sqrt",
    "rsqrt", "reciprocal", "tanh", "sigmoid", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "asinh", "acosh", "atanh",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "mod", "fmod", "atan2")
COMPARE = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def _graph(inputs: str, *ops: str, kept: str = "") -> tuple[list[str], list[str], list[str]]:
    """Inputs, operators and outputs: every result that no other operator reads, and those in `kept`."""
    declared = [item.strip() for item in inputs.split(";")]
    results = [op.split("=")[0].strip() for op in ops]
    read = {word for op in ops for word in op.split("(", 1)[1].replace(")", ",").replace(";", ",").split(",")}
    read = {word.strip() for word in read}
    outputs = [name for name in results if name not in read or name in kept.split()]
    return declared, list(ops), outputs


CASES = {
    "unary": _graph("x: f32[5,37]", *(f"u_{op} = {op}(x)" for op in UNARY), "n = isnan(u_log)", "f = isinf(u_log)",
                    kept="u_log"),
    "binary": _graph(
        "x: f32[5,37]; y: f32[37]", *(f"b_{op} = {op}(x, y)" for op in BINARY),
        *(f"c_{op} = {op}(x, y)" for op in COMPARE),
        "w = where(c_less, x, 2.5)", "k = clip(x; min=-0.5, max=0.7)", "k1 = clip(x; min=-0.5)",
        "ci = cast(b_add; to=i32)", "cb = cast(ci; to=bool)",
    ),
    "integers": _graph(
        "x: i32[6,19]; y: i32[19]; b: bool[6,19]; u: u8[6,19]; l: i64[6,19]; d: f64[6,19]; h: f16[6,19]",
        "a = add(x, y)", "s = sub(x, y)", "m = mul(x, 7)", "q = intdiv(s, y)", "r = mod(s, y)", "mx = maximum(s, y)",
        "n = neg(x)", "ab = abs(n)", "an = and(x, y)", "o = or(x, y)", "xo = xor(x, y)", "sl = shift_left(x, y)",
        "sr = shift_right(sl, 1)", "nt = not(x)", "nb = not(b)", "ub = sub(u, 3)", "un = neg(u)", "lm = mul(l, x)",
        "fd = div(x, y)", "dd = exp(d)", "mixed = add(d, h)", "hh = mul(h, 0.1)", "cu = cast(h; to=i32)",
        "bb = or(b, nb)", "sg = sign(s)", "pw = pow(x, 3)", "pu = pow(u, 2)",
    ),
    "empties": _graph(
        "x: f32[0,5]; y: f32[3,5]; a: f32[4,0]; b: f32[0,6]", "r = relu(x)", "c = concat(r, y; axis=0)",
        "s = reduce_sum(r; axis=0)", "m = matmul(a, b)", "n = add(m, 2.0)", "p = pad(x; axis=0, before=2, after=1)",
        "e = exp(p)",
    ),
    "movement": _graph(
        "x: f32[3,8,10]; y: f32[3,4,10]; i: i64[5]; j: i32[3,8,10]; nd: i64[7,2]; u: f32[3,1,10]; u2: f32[3,3,10]",
        "t = transpose(x; perm=2-0-1)", "t2 = reshape(t; to=10-24)", "t3 = relu(t2)", "bc = broadcast(u; to=3-6-10)",
        "s = slice(x; axis=2, start=1, end=9, step=3)", "s2 = slice(x; axis=1, start=6, end=1, step=-2)",
        "c = concat(x, y, x; axis=1)", "c2 = mul(c, 2.0)", "p = pad(x; axis=1, before=2, after=3, value=1.5)",
        "pe = pad(x; axis=2, before=2, after=1, mode=edge)", "pr = pad(x; axis=2, before=3, after=2, mode=reflect)",
        "ss = select_scatter(x, u; axis=1, index=5)", "su = slice_update(x, u2; axis=1, start=1, step=2)",
        "g = gather(x, i; axis=1)", "ge = gather_elements(x, j; axis=1)", "gn = gather_nd(x, nd)",
        "ar = arange(; n=10, start=2, step=3)", "arf = cast(ar; to=f32)", "xa = add(x, arf)",
        "fl = fill(; const=2.5, shape=3-8-10)", "xf = mul(x, fl)", "r1 = reshape(x; to=4-60)", "r2 = exp(r1)",
    ),
    "windows": _graph(
        "x: f32[2,3,9,11]; w: f32[3,1,3,3]; z: f32[4,23]; w2: f32[8,3,3,3]; w3: f32[6,1,3,3]; w4: f32[3,2,3,2]; "
        "w5: f16[4,3,3]; h: f16[2,4,5]; xg: f32[1,4,5,6]; wg: f32[16,2,3,3]",
        "gc = conv2d(xg, wg; pad=1, group=2)", "mp = maxpool(x; k=3-3, stride=2-2, pad=1-1-1-1)", "mr = relu(mp)",
        "ap = avgpool(x; k=3-2, stride=2-2, pad=1-0-1-0)",
        "ap2 = avgpool(x; k=3-3, stride=2-2, pad=1-1-1-1, count_pad=1, ceil=1)", "dw = conv2d(x, w; pad=1, group=3)",
        "st = stencil(z; axis=1, offsets=-2:1)", "rn = resize_nearest(x; to=2-3-18-22)",
        "rl = resize_linear(x; to=2-3-13-20)", "cv = conv2d(x, w2; stride=2, pad=1, dilation=2)", "cr = relu(cv)",
        "dg = conv2d(x, w3; pad=1, group=3)",
        "tg = conv2d_transpose(x, w4; group=3, stride=2-3, pad=1-0-0-1, dilation=2-1)",
        "to = conv1d_transpose(h, w5; stride=2)", "tr = relu(to)",
    ),
    "reductions": _graph(
        "x: f32[2,3,141]; v: f32[300]; l: i32[6,33]; b: bool[4,70]; h: f16[9,65]; e8: bf16[3,70]",
        "s = reduce_sum(x; axis=2)", "m = reduce_mean(x; axis=0-2, keepdims=1)", "mx = reduce_max(x; axis=1)",
        "mn = reduce_min(x; axis=0)", "pr = reduce_prod(x; axis=1)", "am = argmax(x; axis=2)", "an = argmin(x; axis=0)",
        "al = reduce_sum(v; axis=0)", "li = reduce_sum(l; axis=1)", "lm = reduce_max(l; axis=1)",
        "bs = reduce_sum(b; axis=1)", "bm = reduce_max(b; axis=1)", "e = exp(x)",
        "es = reduce_sum(e; axis=2, keepdims=1)", "n = div(e, es)", "hs = softmax(h; axis=1)",
        "col = softmax(x; axis=1)",
        "q = square(x)", "qs = reduce_sum(q; axis=0-1)", "be = softmax(e8; axis=1)",
    ),
    "block": _graph(
        "z: f32[9,15]; t: i64[9,1]; h: f16[6,14]; b: bool[5,7]; x: f32[8,12]",
        "mx = reduce_max(z; axis=1, keepdims=1)", "d = sub(z, mx)", "e = exp(d)",
        "s = reduce_sum(e; axis=1, keepdims=1)", "g = log(s)", "lp = sub(d, g)",
        "pk = gather_elements(lp, t; axis=1)", "loss = reduce_mean(pk; axis=0-1)",
        "hr = reduce_sum(h; axis=1, keepdims=1)", "hn = div(h, hr)", "hc = reduce_max(hn; axis=0, keepdims=1)",
        "ho = sub(hn, hc)", "bc = reduce_max(b; axis=0)", "bs = reduce_sum(bc; axis=0)",
        "c = mul(x, x)", "cs = reduce_sum(c; axis=0)", "cm = argmax(cs; axis=0)", "ct = transpose(c; perm=1-0)",
        "cr = reshape(ct; to=16-6)", "cv = reduce_sum(cr; axis=0-1)",
    ),
    "contractions": _graph(
        "a: f32[33,40]; b: f32[40,21]; c: f32[2,3,20,17]; d: f32[3,17,9]; e: i8[10,20]; f: i8[20,12]; g: f64[9,30]; "
        "k: f64[11,30]; bias: f32[21]; r: f32[33,21]",
        "m = matmul(a, b)", "mb = add(m, bias)", "mt = tanh(mb)", "mr = add(mt, r)", "p = relu(a)", "pm = matmul(p, b)",
        "ba = matmul(c, d)", "ii = matmul(e, f; to=i32)", "dd = matmul(g, k; transpose_b=1)",
        "at = matmul(a, r; transpose_a=1)",
    ),
    "attention": _graph(
        "q: f16[1,2,19,8]; k: f16[1,2,70,8]; v: f16[1,2,70,8]; mask: f16[1,1,19,70]",
        "s = matmul(q, k; transpose_b=1)", "sc = mul(s, 0.25)", "sm = add(sc, mask)", "p = softmax(sm; axis=3)",
        "o = matmul(p, v)", "t = transpose(o; perm=0-2-1-3)",
    ),
}  # fmt: skip


def native_graph(inputs: str, *ops: str) -> Graph:
    """A small graph of inputs (separated by semicolons) and operators; what nobody reads is an output."""
    declared, lines, outputs = _graph(inputs, *ops)
    document = {"format": "fusesolve-graph/1", "name": "small", "inputs": declared, "ops": lines, "outputs": outputs}
    return parse_native(json.dumps(document), "small", {}, False)


def case_graph(name: str) -> Graph:
    """One of the small graphs."""
    inputs, ops, outputs = CASES[name]
    document = {"format": "fusesolve-graph/1", "name": name, "inputs": inputs, "ops": ops, "outputs": outputs}
    return parse_native(json.dumps(document), name, {}, False)
