"""`fusesolve diff`: kernels merged, split, regrouped, re-tiled and re-priced, by hand and through the command line."""

import json

import jsonschema
import pytest

from fusesolve import plan
from fusesolve.cli import main
from fusesolve.difference import diff, load_plan
from fusesolve.errors import InputError
from fusesolve.plan import GraphRecord
from fusesolve.report.diff import diff_table
from fusesolve.schema import load_schema

DEFINITION = {
    "format": "fusesolve-graph/1",
    "name": "two_kernels",
    "inputs": ["x: f32[64,32]"],
    "ops": [
        "softmax/reduce_max = reduce_max(x; axis=1:1, keepdims=true) : f32[64,1; source=softmax]",
        "softmax/sub = sub(x, softmax/reduce_max) : f32[64,32; source=softmax]",
        "p = exp(softmax/sub) : f32[64,32; source=softmax]",
        "y = relu(p) : f32[64,32]",
        "z = neg(y) : f32[64,32]",
    ],
    "outputs": ["z"],
}


@pytest.fixture
def made(plan_with, group_with):
    """`made(("softmax", 100), ("y z", 50, {...}))`: a plan of kernels by operators, ns and other fields."""

    def build(*kernels):
        groups = []
        for place, (nodes, ns, *more) in enumerate(kernels):
            fields = {"id": place, "nodes": tuple(nodes.split()), "latency_ns": ns, "terms_ns": {"dram": ns}}
            groups.append(group_with(**(fields | (more[0] if more else {}))))
        graph = GraphRecord(name="two_kernels", sha256="a" * 64, nodes=5, values=6, definition=DEFINITION)
        total = sum(group.latency_ns for group in groups)
        dram = sum(group.dram_bytes for group in groups)
        return plan_with(groups=tuple(groups), graph=graph, objective_ns=total, bound_ns=total, dram_bytes=dram)

    return build


def changes(left, right):
    return [(c.kind, c.left, c.right, c.delta_ns) for c in diff(left, right).changes]


def test_equal_plans_differ_in_nothing(made):
    one = made(("softmax", 100), ("y z", 50))
    found = diff(one, one)
    assert found.changes == () and found.same == 2 and found.terms_ns == {}
    assert found.to_dict()["delta_ns"] == 0


def test_merged_and_split(made):
    apart, whole = made(("softmax", 100), ("y", 40), ("z", 30)), made(("softmax", 100), ("y z", 50))
    assert changes(apart, whole) == [("merged", (1, 2), (1,), -20)]
    assert changes(whole, apart) == [("split", (1,), (1, 2), 20)]
    assert diff(apart, whole).same == 1


def test_regrouped(made):
    left, right = made(("softmax y", 120), ("z", 30)), made(("softmax", 100), ("y z", 60))
    assert changes(left, right) == [("regrouped", (0, 1), (0, 1), 10)]


def test_retiled_and_repriced(made):
    left = made(("softmax", 100, {"tiling": {"threads": 128}}), ("y z", 50))
    right = made(("softmax", 90, {"tiling": {"threads": 256}}), ("y z", 55))
    found = diff(left, right)
    assert [(c.kind, c.delta_ns) for c in found.changes] == [("retiled", -10), ("repriced", 5)]
    assert found.changes[0].left_tiling == ({"threads": 128},) and found.changes[0].right_tiling == ({"threads": 256},)
    other = made(("softmax", 100, {"implementation": "library"}), ("y z", 50))
    assert [c.kind for c in diff(left, other).changes] == ["retiled"]


def test_an_operator_that_is_split_in_one_plan_is_the_same_operator(made):
    """softmax is one kernel on the left, two on the right, by the names of its primitives."""
    left = made(("softmax", 100), ("y z", 50))
    right = made(("softmax/reduce_max", 60), ("softmax/sub p", 70), ("y z", 50))
    assert changes(left, right) == [("split", (0,), (0, 1), 30)]


def test_recomputation_ties_no_kernels_that_both_plans_have(made):
    """y is computed again in the second kernel on the right; the first kernel is the same in both."""
    left = made(("softmax y", 100), ("z", 50))
    right = made(("softmax y", 100), ("y z", 40))
    assert changes(left, right) == [("regrouped", (1,), (1,), -10)]
    assert diff(left, right).same == 1


def test_the_greatest_change_comes_first_with_its_terms(made):
    left = made(("softmax", 100, {"terms_ns": {"dram": 80, "launch": 20}}), ("y", 40), ("z", 30))
    right = made(("softmax", 300, {"terms_ns": {"dram": 90, "launch": 210}}), ("y z", 50))
    found = diff(left, right)
    assert [c.kind for c in found.changes] == ["repriced", "merged"]
    assert dict(found.changes[0].terms_ns) == {"launch": 190, "dram": 10}
    # in all: launch +190; dram +10 and 50 - 40 - 30 = -20 make -10
    assert dict(found.terms_ns) == {"launch": 190, "dram": -10}
    assert list(found.terms_ns) == ["launch", "dram"]


def test_bytes_of_a_change(made):
    left = made(("softmax", 100), ("y", 40, {"dram_bytes": 1000}), ("z", 30, {"dram_bytes": 1000}))
    right = made(("softmax", 100), ("y z", 50, {"dram_bytes": 1200}))
    found = diff(left, right)
    assert found.changes[0].delta_dram_bytes == -800 and found.to_dict()["delta_dram_bytes"] == -800


def test_totals_of_changes_are_the_difference(made):
    left = made(("softmax y", 120), ("z", 30))
    right = made(("softmax/reduce_max", 10), ("softmax/sub p", 70), ("y z", 60))
    found = diff(left, right)
    assert sum(c.delta_ns for c in found.changes) == found.to_dict()["delta_ns"] == -10


def test_plans_of_different_graphs_are_refused(made, plan_with, group_with):
    other = plan_with(groups=(group_with(nodes=("conv",)),), graph=GraphRecord(
        name="cnn", sha256="c" * 64, nodes=1, values=2, definition={}))  # fmt: skip
    with pytest.raises(InputError, match="share no operator: the graphs are 'two_kernels' and 'cnn'"):
        diff(made(("softmax", 100)), other)


def test_a_plan_without_kernels_is_refused(made, infeasible):
    with pytest.raises(InputError, match=r"holds no kernels \(status INFEASIBLE\)"):
        diff(made(("softmax", 100)), infeasible)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "not JSON, line 1 column 2"),
        (b"\xff", "not UTF-8 text"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "not a plan; expected a file of format fusesolve-plan/1"),
        (b'{"format": "fusesolve-graph/1"}', "not a plan"),
        (b'{"format": "fusesolve-plan/1", "objective_ns": 1}', "needs the keys graph and groups"),
        (b'{"format": "fusesolve-plan/1", "objective_ns": 1, "graph": {}, "groups": [{"id": 0}]}',
         r"groups\[0\] lacks nodes, tiling, template, implementation, latency_ns, dram_bytes, terms_ns"),
        (b'{"format": "fusesolve-plan/1", "objective_ns": 1, "graph": {}, "groups": [3]}', r"groups\[0\] lacks id"),
    ],
)  # fmt: skip
def test_damaged_plans_are_one_clear_line(tmp_path, content, says):
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        load_plan(path)


def test_a_missing_plan_is_named(tmp_path, capsys):
    assert main(["diff", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 2
    assert "a.json: No such file or directory" in capsys.readouterr().err


@pytest.fixture(scope="module")
def real():
    """Plans of the bundled block, by the optimum and by a policy."""
    return [plan("gpt2_block", "h100", strategy=name) for name in ("xla", "cpsat")]


def test_real_plans_account_for_every_nanosecond_and_byte(real):
    found = diff(*real).to_dict()
    jsonschema.validate(found, load_schema("diff"))
    assert sum(change["delta_ns"] for change in found["changes"]) == found["delta_ns"] < 0
    assert sum(change["delta_dram_bytes"] for change in found["changes"]) == found["delta_dram_bytes"] < 0
    touched = [i for change in found["changes"] for i in change["left"]]
    assert len(touched) == len(set(touched)) and found["same"] + len(touched) == len(real[0].groups)
    back = diff(*reversed(real)).to_dict()
    assert back["delta_ns"] == -found["delta_ns"] and back["same"] == found["same"]
    turned = {"merged": "split", "split": "merged", "regrouped": "regrouped"}
    assert [turned[c["kind"]] for c in found["changes"]] == [c["kind"] for c in back["changes"]]


def test_the_command_writes_the_document_and_the_table(real, tmp_path, capsys):
    paths = []
    for name, item in zip("ab", real, strict=True):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(item.to_dict()))
    assert main(["diff", *map(str, paths), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(diff(*paths).to_dict()))
    assert main(["diff", *map(str, paths)]) == 0
    out = capsys.readouterr().out
    assert "by xla" in out and "by cpsat" in out and "right is" in out and "faster" in out and "merged" in out


def test_the_table_of_equal_plans_says_so(made):
    one = made(("softmax", 100), ("y z", 50))
    text = diff_table(diff(one, one).to_dict(), width=100, colour=False)
    assert "equally fast" in text and "same         2 kernels" in text and "change" not in text


def test_the_table_fits_its_width(real):
    document = diff(*real).to_dict()
    for width in (80, 120, 200):
        assert max(map(len, diff_table(document, width=width, colour=False).splitlines())) <= width


def test_one_graph_on_two_devices_is_repriced_or_regrouped():
    left, right = (plan("softmax", name) for name in ("a100", "h100"))
    found = diff(left, right)
    assert [c.kind for c in found.changes] in (["repriced"], ["retiled"])
    assert found.left["hardware"] != found.right["hardware"]
