"""Small graphs for the policies, written in the native format, and groups by name."""

from fusesolve.hardware_yaml import load_profile
from fusesolve.importers.native import parse_native
from fusesolve.pipeline import Planning, PlanOptions, begin
from fusesolve.strategies import Context

SOFTMAX = {
    "inputs": ["x: f32[8192,4096]"],
    "ops": ["mx = reduce_max(x; axis=1, keepdims=true)", "sb = sub(x, mx)", "ex = exp(sb)",
            "sm = reduce_sum(ex; axis=1, keepdims=true)", "dv = div(ex, sm)"],
    "outputs": ["dv"],
}  # fmt: skip
LINEAR = {
    "inputs": ["x: f16[1024,1024]", "w: f16[1024,1024]", "b: f16[1024]"],
    "ops": ["mm = matmul(x, w)", "biased = add(mm, b)", "act = relu(biased)"],
    "outputs": ["act"],
}
TWO_MATMULS = {
    "inputs": ["x: f16[512,512]", "w1: f16[512,512]", "w2: f16[512,512]"],
    "ops": ["m1 = matmul(x, w1)", "r = relu(m1)", "m2 = matmul(r, w2)"],
    "outputs": ["m2"],
}


def planning_of(inputs, ops, outputs, profile="a100") -> Planning:
    lines = ["format: fusesolve-graph/1", "name: small"]
    for key, items in (("inputs", inputs), ("ops", ops), ("outputs", outputs)):
        lines.append(f"{key}:")
        lines.extend(f'  - "{item}"' for item in items)
    graph = parse_native("\n".join(lines), "small", {}, False)
    return begin(graph, load_profile(profile), PlanOptions(), workers=1)


def context_of(graph, profile="a100") -> Context:
    return Context(planning_of(**graph, profile=profile).priced)


def number(context: Context, name: str) -> int:
    """The operator of a name."""
    return next(i for i in range(len(context.operators)) if context.name(i) == name)


def group(context: Context, text: str) -> tuple[int, ...]:
    """`"a b"` as ascending operator numbers."""
    return tuple(sorted(number(context, name) for name in text.split()))


def named(context: Context, groups) -> set[frozenset[str]]:
    """Groups as sets of names."""
    return {frozenset(context.name(m) for m in members) for members in groups}


def names(*texts: str) -> set[frozenset[str]]:
    return {frozenset(text.split()) for text in texts}
