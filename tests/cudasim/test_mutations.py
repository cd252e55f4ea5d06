"""A wrong kernel is caught: one change in the emitted source, and the ladder fails."""

import re

import pytest

from fusesolve.codegen.module import GeneratedPlan, generate
from fusesolve.codegen.planned import read_plan
from fusesolve.reference import random_feeds
from fusesolve.validate import ladder
from fusesolve.validate.ladder import compare, plan_graph
from fusesolve.validate.simulate import SimulatedKernel, simulated_plan
from tests.cudasim.conftest import needs_numba_cuda
from tests.golden.test_kernels import golden_document

pytestmark = [needs_numba_cuda, pytest.mark.slow]


def verdicts(simulator_of, document, change) -> tuple[list[bool | None], str]:
    """The verdicts of all groups when the source is changed, and the changed source."""
    planned, made = simulated_plan(document, plan_graph(document))
    text = change(made.text)
    changed = GeneratedPlan(text=text, kernels=made.kernels, refused=made.refused, workspaces=made.workspaces)
    execute = SimulatedKernel(planned, changed, simulator_of(text))
    groups, fault = compare(planned, execute, random_feeds(planned.graph, 0), made.refused)
    assert fault is None
    return [item.ok for item in groups], text


def swap(pattern: str, replacement: str):
    """Replace the first match of a pattern, which must be there."""

    def change(text: str) -> str:
        changed, count = re.subn(pattern, replacement, text, count=1)
        assert count == 1, f"{pattern} is not in the source"
        return changed

    return change


@pytest.mark.parametrize(
    ("case", "pattern", "replacement"),
    [
        ("movement", r"a(\d)\[p\] = ", r"a\1[p ^ u32(1)] = "),  # an index
        ("movement", r"if p < u32\((\d+)\):", r"if p < u32(\1 - 1):"),  # a tail mask: the last point is not written
        ("reductions", r"if j < u32\((\d+)\):", r"if j < u32(\1 - 1):"),  # a tail mask of a row
        ("block", r"(f32\(0\.0\)\n +j = lane\n +while j < u32\(\d+)", r"\1 - 1"),  # the last element of a sum
        ("block", r"r(\d) = f32\(0\.0\)", r"r\1 = f32(1.0)"),  # the identity of a sum
        ("block", r"(z\d)\[row\] = ", r"\1[row ^ u32(1)] = "),  # where a result waits for its readers
        ("contractions", r"\+= fa\[r\] \* y", "+= fa[r] * y + f32(0.01)"),  # the products
        ("contractions", r"and ki < end:", "and ki < end - u32(1):"),  # the last step of the reduced axis
        ("contractions", r"buf = u32\(u32\(1\) - buf\)", "buf = u32(2) - buf"),  # a buffer outside shared memory
        ("attention", r"total\[r\] \* shrink\n", "total[r]\n"),  # the rescaling of an online softmax
        ("attention", r"if ni < end:", "if ni < end + u32(1):"),  # a tail mask: a key behind the last one
        ("windows", r"i(\d) \+ t(\d) >= u32\(1\)", r"i\1 + t\2 >= u32(2)"),  # the padding of a window
    ],
)
def test_one_wrong_line_fails(simulator_of, document_of, case, pattern, replacement):
    found, _ = verdicts(simulator_of, document_of(case), swap(pattern, replacement))
    assert False in found


@pytest.mark.parametrize(
    ("name", "pattern", "replacement"),
    [
        ("tensor_epilogue", r"kk // u32\(8\) \^ w % u32\(8\)", "kk // u32(8)"),  # the permutation of chunks
        ("tensor_epilogue", r"inside = mi < u32\(40\)", "inside = mi < u32(39)"),  # a tail mask of a copy
        ("tensor_batch_bf16", r"at % u32\(4\)", "at % u32(2)"),  # the stage that is filled
        ("tensor_epilogue", r"r % 2 \* 2 \+ c % 2\]", "r % 2 * 2 + 1 - c % 2]"),  # the point of an accumulator
        ("tensor_prologue_split", r"and ki < end:", "and ki < end - u32(1):"),  # the last element of a chunk of k
        ("tensor_batch_bf16", r"if mi < u32\(40\) and", "if mi < u32(39) and"),  # a tail mask of the result
        ("tensor_few_rows", r"acc\[q\] = f32\(0\)", "acc[q] = f32(1)"),  # the identity of the sum
        ("attention_split", r"acc\[d\] = acc\[d\] \* shrink", "pass"),  # the rescaling of a result
        ("flash_causal", r"r \* 2 \+ d % 2\] \* shrink", "r * 2 + d % 2]"),
        ("flash_causal", r"ci // u32\(8\) \^ w", "ci // u32(8) ^ u32(1) ^ w"),  # the permutation of chunks
        ("flash_causal", r"at % u32\(2\)", "u32(0)"),  # the step that is filled
        ("held_layernorm", r"r1 = f32\(0\.0\)", "r1 = f32(1.0)"),  # the identity of a fold of held rows
        ("held_layernorm", r"while ni < u32\(37\)", "while ni < u32(36)"),  # the last key
        ("held_layernorm", r"if mi < u32\(18\):\n", "if mi < u32(17):\n"),  # a tail mask of the result
        ("ranked_topk", r"t3 < t1\)", "t3 <= t1)"),  # the order of equal elements: an element is before itself
        ("packed", r"block < u32\((\d+)\):", r"block < u32(\1 - 1):"),  # the blocks of a part
        ("siblings_split", r"w0\[0:(\d+)\]", r"w0[1:\1]"),  # the workspace of a part
        ("transposed_convolution", r"// u32\(2\)", "// u32(4)"),  # positions of one residue
        ("update_in_place", r"a2\[([^]]*)\] = ", r"a2[\1 + u32(8)] = "),  # the place of the update
        ("pointwise_vectors", r"if pb < u32\(360\)", "if pb < u32(352)"),  # the last vector
        ("pointwise_staged", r"y \* u32\(33\) \+ x\]", "x * u32(33) + y]"),  # the turn of a tile
        ("row_bf16_in_shared", r">> u32\(16\)\)\n", ">> u32(17))\n"),  # the bits of a held element
        # What each template has of an index, a tail mask and an identity and no line above changes:
        ("pointwise_staged", r"if ai < u32\(33\)", "if ai < u32(32)"),
        ("movement_concat_transpose", r"if i1 < u32\(6\)", "if i1 < u32(5)"),
        ("update_in_place", r"if p < u32\(30\)", "if p < u32(29)"),
        ("window_pool", r"r0 = f32\(0\.0\)", "r0 = f32(1.0)"),
        ("window_pool", r"if p < u32\(18\)", "if p < u32(17)"),
        ("row_softmax_in_registers", r"a1\[i0 \* u32\(512\) \+ j\]", "a1[i0 * u32(512) + (j ^ u32(1))]"),
        ("row_layernorm_in_shared", r"r1 = f32\(0\.0\)", "r1 = f32(1.0)"),
        ("row_layernorm_in_shared", r"while j < u32\(100\)", "while j < u32(99)"),
        ("row_argmax", r"while j < u32\(50\)", "while j < u32(25)"),
        ("row_argmax", r"r0 = f32\(-inf\)", "r0 = f32(9.0)"),
        ("reduction_columns_split", r"r0 = f32\(0\.0\)", "r0 = f32(1.0)"),
        ("reduction_columns_split", r"while j < end", "while j < end - u32(1)"),
        ("reduction_columns_split", r"\* u32\(20\) \+ row\]", "* u32(20) + (row ^ u32(1))]"),
        ("contraction_epilogue", r"acc\[q\] = f32\(0\)", "acc[q] = f32(1)"),
        ("contraction_epilogue", r"if mi < u32\(40\) and ni", "if mi < u32(39) and ni"),
        ("contraction_split", r"i0 \* u32\(9\) \+ i1\] = acc", "i0 * u32(9) + (i1 ^ u32(1))] = acc"),
        ("siblings_sharing_tiles", r"if w < u32\(32\):", "if w < u32(16):"),
        # (An online softmax starts from any maximum and total: they are rescaled away. What joins the parts does not.)
        ("attention_split", r"sum_ = f32\(0\)", "sum_ = f32(1)"),
        ("flash_split_bf16", r"sum_ = f32\(0\)", "sum_ = f32(1)"),
        ("flash_causal", r"    if ni < end:", "    if ni < end - u32(1):"),
        ("held_layernorm", r"i1 \* u32\(21\) \+ i4\]", "i1 * u32(21) + (i4 ^ u32(1))]"),
        ("ranked_topk", r"if r0 < u32\(2\)", "if r0 < u32(1)"),
    ],
)
def test_one_wrong_line_of_a_golden_source_fails(simulator_of, name, pattern, replacement):
    graph, document = golden_document(name)
    planned = read_plan(document, graph)
    made = generate(planned)
    text = swap(pattern, replacement)(made.text)
    execute = SimulatedKernel(planned, made, simulator_of(text))
    groups, _ = compare(planned, execute, random_feeds(graph, 0), made.refused)
    assert [item.ok for item in groups] == [False]


def test_unchanged_source_holds(simulator_of, document_of):
    found, _ = verdicts(simulator_of, document_of("movement"), lambda text: text)
    assert set(found) == {True}


def test_the_step_exits_with_the_failing_group(document_of, monkeypatch):
    real = ladder.simulated_plan

    def wrong(document, graph):
        planned, made = real(document, graph)
        text = swap(r"a(\d)\[p\] = ", r"a\1[p ^ u32(1)] = ")(made.text)
        return planned, GeneratedPlan(text=text, kernels=made.kernels, refused=made.refused, workspaces=made.workspaces)

    monkeypatch.setattr(ladder, "simulated_plan", wrong)
    found = ladder.validate_plan(document_of("movement"), "cudasim")
    assert not found.ok and re.match(r"group \d+ \(.*\) fails --on cudasim", found.failure())
