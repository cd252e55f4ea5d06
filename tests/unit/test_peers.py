"""Partitions of other compilers: reading them, bringing them onto operators, and what odd entries cost."""

import json

import pytest

from fusesolve.candidates.pricing import price_workloads
from fusesolve.comparison import compare_planning
from fusesolve.errors import InputError
from fusesolve.group import TEMPLATES, Template, Workload
from fusesolve.peers import load_partition, map_partition, parse_partition
from tests.unit.policy_graphs import LINEAR, SOFTMAX, planning_of


def partition(groups, **more):
    return parse_partition({"format": "fusesolve-partition/1", "peer": "them", "groups": groups, **more}, "them.json")


def row_of(graph, *args, **more):
    return compare_planning(planning_of(**graph), strategies=["cpsat"], partitions=[partition(*args, **more)]).rows[1]


def test_the_name_is_peer_and_target():
    assert partition([]).name == "them"
    assert partition([], target="cuda").name == "them.cuda"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "expected an object"),
        ({"peer": "p", "groups": []}, "format is None, expected 'fusesolve-partition/1'"),
        ({"format": "fusesolve-partition/2", "peer": "p", "groups": []}, "format is 'fusesolve-partition/2'"),
        ({"format": "fusesolve-partition/1", "groups": []}, "peer must be the name of a compiler, not None"),
        ({"format": "fusesolve-partition/1", "peer": "", "groups": []}, "peer must be the name"),
        ({"format": "fusesolve-partition/1", "peer": "p"}, "groups must be a list of lists"),
        ({"format": "fusesolve-partition/1", "peer": "p", "groups": "ab"}, "groups must be a list of lists"),
        ({"format": "fusesolve-partition/1", "peer": "p", "groups": [["a"], "b"]}, r"groups\[1\] must be a list of"),
        ({"format": "fusesolve-partition/1", "peer": "p", "groups": [["a", 3]]}, r"groups\[0\] must be a list of"),
        ({"format": "fusesolve-partition/1", "peer": "p", "groups": [], "target": 3}, "target must be a name, not 3"),
        ({"format": "fusesolve-partition/1", "peer": "p", "groups": [], "unassigned": {}}, "unassigned must be a list"),
    ],
)
def test_a_bad_document_is_one_clear_line(document, says):
    with pytest.raises(InputError, match=says):
        parse_partition(document, "f.json")


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"{", r"not JSON, line 1 column 2"), (b"\xff", "not UTF-8 text"), (b"[" * 100_000, "nested too deeply")],
)
def test_a_damaged_file_is_one_clear_line(tmp_path, content, says):
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        load_partition(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*nowhere\.json: No such file"):
        load_partition(tmp_path / "nowhere.json")


def test_a_file_is_read(tmp_path):
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"format": "fusesolve-partition/1", "peer": "p", "groups": [["a", "b", "a"], []]}))
    found = load_partition(path)
    assert found.groups == (("a", "b"), ()) and found.unassigned == () and found.origin == str(path)


def test_an_unknown_node_is_named_with_near_names():
    program = planning_of(**LINEAR).priced.space.program
    with pytest.raises(InputError, match=r"them\.json: no node named 'biasd' in graph small; near names: biased"):
        map_partition(program, partition([["mm", "biasd"]]))


NORM = {
    "inputs": ["x: f16[512,1024]", "g: f16[1024]", "b: f16[1024]"],
    "ops": ["ln = layernorm(x, g, b; axis=1)", "act = relu(ln)"],
    "outputs": ["act"],
}


def test_a_node_stands_for_all_its_primitives():
    program = planning_of(**NORM).priced.space.program
    mapped = map_partition(program, partition([["ln"], ["act"]]))
    assert [len(members) for members in mapped.groups] == [len(program.operators) - 1, 1]
    assert mapped.place == (0, 1)


def test_nodes_that_nothing_names_run_alone():
    """Not their primitives: layer norm is one node."""
    program = planning_of(**NORM).priced.space.program
    mapped = map_partition(program, partition([["act"]]))
    assert sorted(map(len, mapped.groups)) == [1, len(program.operators) - 1]
    assert mapped.place == (0, None)


def test_a_node_may_be_in_several_groups():
    row = row_of(SOFTMAX, [["mx"], ["sb", "ex", "sm"], ["sb", "ex", "dv"]], duplicated={"sb": [1, 2], "ex": 2})
    assert (row.kernels, row.groups, row.priced_as, row.legal, row.in_space) == (3, 3, "own", True, False)


RESHAPED = {
    "inputs": ["x: f32[512,512]"],
    "ops": ["a = exp(x)", "r = reshape(a; to=1024-256)", "b = neg(r)"],
    "outputs": ["b"],
}


def test_a_view_in_a_group_changes_nothing():
    assert row_of(RESHAPED, [["a", "r", "b"]]).objective_ns == row_of(RESHAPED, [["a", "b"]]).objective_ns


def test_a_group_of_views_is_a_copy_of_its_tensor():
    """512 x 512 f32 read and written: 2 MiB, and a kernel more."""
    plain, copied = row_of(RESHAPED, [["a", "b"]]), row_of(RESHAPED, [["a", "b"], ["r"]])
    assert copied.kernels == plain.kernels + 1 and copied.groups == plain.groups + 1
    assert copied.dram_bytes - plain.dram_bytes == pytest.approx(2 * 512 * 512 * 4, rel=0.01)
    planning = planning_of(**RESHAPED)
    assert copied.objective_ns - plain.objective_ns > launch_ns(planning)


def launch_ns(planning):
    workload = Workload(template=TEMPLATES.index(Template.MOVEMENT), inner=4)
    return round(float(price_workloads([workload], planning.profile, planning.priced.options).terms["launch"][0]) * 1e9)


def test_an_empty_group_costs_one_launch():
    plain, empty = row_of(LINEAR, [["mm", "biased", "act"]]), row_of(LINEAR, [[], ["mm", "biased", "act"], []])
    assert empty.kernels == plain.kernels + 2
    assert empty.objective_ns - plain.objective_ns == pytest.approx(2 * launch_ns(planning_of(**LINEAR)), abs=1)
    assert launch_ns(planning_of(**LINEAR)) > 500
    assert empty.dram_bytes == plain.dram_bytes


def test_unassigned_nodes_cost_nothing():
    graph = {
        "inputs": ["x: f32[512,512]"],
        "ops": ["a = relu(x)", "t = transpose(a; perm=1-0)", "c = cumsum(t; axis=0)"],
        "outputs": ["c"],
    }
    alone = row_of(graph, [["a"], ["t"], ["c"]])
    free = row_of(graph, [["a"], ["c"]], unassigned=["t"])
    unnamed = row_of(graph, [["a"], ["c"]])
    assert alone.kernels == unnamed.kernels == 3 and alone.objective_ns == unnamed.objective_ns
    assert free.kernels == 2 and free.objective_ns < alone.objective_ns


def test_an_unassigned_node_that_a_group_names_as_well_is_computed_there():
    program = planning_of(**LINEAR).priced.space.program
    mapped = map_partition(program, partition([["mm", "biased"], ["act"]], unassigned=["act"]))
    assert mapped.views == frozenset() and len(mapped.groups) == 2
