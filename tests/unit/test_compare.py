"""`fusesolve compare`: rows that add up, the document, the table, and what is refused."""

import json

import jsonschema
import pytest

from fusesolve.cli.compare import parse_strategies
from fusesolve.comparison import Comparison, IllegalGroup, Row, compare, compare_planning
from fusesolve.errors import InputError, NoPlanError
from fusesolve.pipeline.policy import STRATEGY_NAMES
from fusesolve.report.compare import compare_table
from fusesolve.schema import load_schema
from tests.unit.policy_graphs import SOFTMAX, planning_of


@pytest.fixture
def run(call):
    """Run a command; its exit code, stdout and stderr."""
    return call


@pytest.fixture
def partition(tmp_path):
    """A partition file of the bundled conv-bn-relu graph: bn and relu apart, conv alone."""
    path = tmp_path / "mine.json"
    groups = [["conv"], ["bn", "relu"]]
    path.write_text(json.dumps({"format": "fusesolve-partition/1", "peer": "mine", "target": "x", "groups": groups}))
    return path


def test_all_strategies_make_a_valid_document(run, partition):
    code, out, err = run("compare", "conv_bn_relu", "--hw", "h100", "--format", "json", "--partition", partition)
    assert code == 0, err
    document = json.loads(out)
    jsonschema.validate(document, load_schema("compare"))
    assert [row["name"] for row in document["rows"]] == [*STRATEGY_NAMES, "mine.x"]
    assert [row["kind"] for row in document["rows"]] == ["strategy"] * len(STRATEGY_NAMES) + ["partition"]
    rows = {row["name"]: row for row in document["rows"]}
    best = rows["cpsat"]["objective_ns"]
    for row in document["rows"]:
        assert row["ratio"] == row["objective_ns"] / best
        assert row["priced_as"] == ("split" if row["illegal"] else "own")
    # library contraction alone, bias and activation after it: what nvFuser does as well
    assert rows["mine.x"]["objective_ns"] == rows["nvfuser"]["objective_ns"] > best
    assert document["status"] == "OPTIMAL" and document["gap"] == 0.0


def test_rows_are_the_plans_of_their_strategies(run):
    """The same numbers as `plan --strategy NAME`."""
    found = {row.name: row for row in compare("moe_router", "a100").rows}
    for name in ("cpsat", "unfused", "xla", "tvm", "greedy"):
        code, out, err = run("plan", "moe_router", "--hw", "a100", "--strategy", name, "--format", "json")
        assert code == 0, err
        plan = json.loads(out)
        jsonschema.validate(plan, load_schema("plan"))
        assert plan["objective_ns"] == found[name].objective_ns
        assert len(plan["groups"]) == found[name].kernels
        assert plan["dram_bytes"] == found[name].dram_bytes
        if name not in ("cpsat", "unfused"):
            assert plan["status"] == "FEASIBLE" and plan["bound_ns"] is None and plan["gap"] is None


def test_chosen_strategies_keep_their_order_and_the_optimum_is_known_all_the_same():
    rows = compare("softmax", "a100", strategies=("tvm", "iree", "tvm")).rows
    assert [row.name for row in rows] == ["tvm", "iree"]
    assert rows[0].ratio > 2.9 and rows[0].kernels == 4


def test_a_copy_beyond_the_stated_space_is_priced_and_said_so():
    """ex is computed again in the kernel of dv although its own sum comes in from outside: not a convex set."""
    planning = planning_of(**SOFTMAX)
    tinygrad, tvm = compare_planning(planning, strategies=("tinygrad", "tvm")).rows
    assert (tinygrad.in_space, tinygrad.priced_as, tinygrad.illegal) == (False, "own", ())
    assert (tvm.in_space, tvm.priced_as) == (True, "own")


def test_an_illegal_group_is_named_with_its_rule(run, tmp_path):
    path = tmp_path / "all.json"
    path.write_text(json.dumps({"format": "fusesolve-partition/1", "peer": "one", "groups": [
        ["c_attn", "c_attn_bias", "qk", "pv", "attn_proj"]]}))  # fmt: skip
    code, out, err = run("compare", "gpt2_block", "--hw", "h100", "--strategies", "cpsat", "--partition", path,
                         "--format", "json")  # fmt: skip
    assert code == 0, err
    row = json.loads(out)["rows"][1]
    assert row["name"] == "one" and row["priced_as"] == "split" and row["legal"] and not row["in_space"]
    assert [item["group"] for item in row["illegal"]] == [0]
    assert row["illegal"][0]["rule"] == "convex" and set(row["illegal"][0]["nodes"]) >= {"qk", "pv"}
    assert row["objective_ns"] > json.loads(out)["rows"][0]["objective_ns"]


def test_the_table_is_read_from_the_fastest_down(run, partition):
    code, out, err = run("compare", "conv_bn_relu", "--hw", "h100", "--partition", partition)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].endswith("cpsat is the proven optimum of the stated space")
    start = next(i for i, line in enumerate(lines) if line.startswith("strategy"))
    first = [line.split()[0] for line in lines[start + 1 : start + 1 + len(STRATEGY_NAMES) + 1]]
    assert first[0] == "cpsat" and set(first) == {*STRATEGY_NAMES, "mine.x"} and first[-1] == "unfused"


def test_without_a_graph_the_bundled_block_is_used_and_stderr_says_so(run):
    code, _, err = run("compare", "--hw", "h100", "--strategies", "cpsat")
    assert code == 0 and "no GRAPH given: comparing on the bundled transformer block gpt2_block" in err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--strategies", "cpsat,magic"], "no strategy 'magic'; choose one of cpsat"),
        (["--strategies", ","], "--strategies ',': expected all, or names such as cpsat,xla"),
        (["--partition", "nowhere.json"], "cannot read nowhere.json"),
        (["--time-limit", "0"], "--time-limit 0: expected a number above 0"),
    ],
)
def test_bad_options_are_one_line_and_exit_2(run, options, says):
    code, out, err = run("compare", "softmax", "--hw", "h100", *options)
    assert code == 2 and out == ""
    assert next(line for line in err.splitlines() if line.startswith("error: ")).startswith(f"error: {says}")


def test_a_partition_of_another_graph_is_refused(run, partition):
    code, _, err = run("compare", "softmax", "--hw", "h100", "--strategies", "cpsat", "--partition", partition)
    assert code == 2 and "no node named 'conv' in graph softmax" in err


def test_pins_are_refused():
    with pytest.raises(InputError, match="a comparison takes no pins"):
        compare("softmax", "h100", strategies=("cpsat",), together=(("a", "b"),))


def test_no_plan_is_said_so():
    with pytest.raises(NoPlanError, match="there is no plan to compare with"):
        compare("gpt2_block", "h100", strategies=("cpsat",), max_kernels=1)


@pytest.mark.parametrize(("text", "names"), [("all", ()), ("a, b,a", ("a", "b")), ("xla,all", ())])
def test_names_of_strategies(text, names):
    assert parse_strategies(text) == names


def row(name, objective, **more):
    fields = {
        "name": name, "kind": "strategy", "objective_ns": objective, "ratio": objective / 1000, "kernels": 2,
        "groups": 2, "dram_bytes": 1024, "legal": True, "in_space": True, "priced_as": "own", "illegal": (),
        "seconds": 0.1,
    }  # fmt: skip
    return Row(**(fields | more))


def shown(rows, *, status="OPTIMAL", gap=0.0, width=120, warnings=()):
    found = Comparison(graph="g", hardware="H", status=status, gap=gap, rows=tuple(rows), warnings=warnings)
    return compare_table(found.to_dict(), width=width, colour=False)


def test_a_row_shows_groups_kernels_distance_and_rules():
    illegal = [IllegalGroup(group=i, nodes=(f"n{i}", "b"), rule="convex", message="waits") for i in range(14)]
    text = shown([row("cpsat", 1000), row("peer", 1500, groups=3, kernels=9, illegal=tuple(illegal))])
    assert "+50.00 %" in text and "3 > 9" in text and "convex" in text
    assert "n0+b: convex: waits" in text and "n11+b" in text and "n12+b" not in text
    assert "and 2 more; --format json lists all" in text


def test_a_row_beyond_the_space_says_so():
    text = shown([row("cpsat", 1000), row("tinygrad", 990, in_space=False)])
    assert "-1.00 %" in text and "beyond the stated space" in text


def test_what_is_not_proven_is_not_claimed():
    assert "cpsat is within 0.40 % of the optimum" in shown([row("cpsat", 1000)], status="FEASIBLE", gap=0.004)
    assert "nothing is proven" in shown([row("cpsat", 1000)], status="FEASIBLE", gap=None)


def test_an_unnamed_node_stands_by_its_names():
    item = IllegalGroup(group=None, nodes=("a", "b"), rule="r", message="m")
    assert item.to_dict()["group"] == ["a", "b"]
    jsonschema.validate(
        Comparison(graph="g", hardware="H", status="OPTIMAL", gap=0.0, rows=(row("cpsat", 1, illegal=(item,)),),
                   warnings=()).to_dict(),
        load_schema("compare"),
    )  # fmt: skip


def test_warnings_stand_below_the_table():
    assert "warning  planned as f16" in shown([row("cpsat", 1)], warnings=("planned as f16",))
