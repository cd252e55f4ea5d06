"""The studies of gaps and of recorded partitions: means by hand, and the scripts from end to end on one small case."""

import json

import onnx
import pytest

from benchmarks import gap_study, peer_study
from fusesolve.comparison import IllegalGroup, Row


def row(name, ratio, **more):
    fields = {
        "name": name, "kind": "strategy", "objective_ns": round(1000 * ratio), "ratio": ratio, "kernels": 1,
        "groups": 1, "dram_bytes": 0, "legal": True, "in_space": True, "priced_as": "own", "illegal": (),
        "seconds": 0.0,
    }  # fmt: skip
    return Row(**(fields | more))


def result(graph, profile, name, ratio, proven=True, **more):
    return gap_study.Result(graph=graph, profile=profile, row=row(name, ratio, **more), proven=proven)


def line(text, start):
    return next(item for item in text.splitlines() if item.startswith(start))


def test_means_are_geometric_and_the_worst_is_named():
    """tvm: sqrt(1 x 4) = 2, 100 % over; its worst is g2 on d, 300 %; at the optimum in one of two."""
    illegal = (IllegalGroup(group=0, nodes=("a",), rule="r", message="m"),)
    results = [
        result("g1", "d", "cpsat", 1.0), result("g1", "d", "tvm", 1.0), result("g1", "d", "iree", 1.1),
        result("g2", "d", "cpsat", 1.0), result("g2", "d", "tvm", 4.0, groups=3, illegal=illegal),
        result("g2", "d", "iree", 1.1),
    ]  # fmt: skip
    text = gap_study.page(results, ["g1", "g2"], ["d"], "the command")
    assert line(text, "| tvm ") == "| tvm | 100.0 % | 300.0 % | 300.0 % | g2 on d | 50 % | 25.0 % |"
    assert line(text, "| policy ").startswith("| policy | mean |") and text.index("| iree |") < text.index("| tvm |")
    assert line(text, "| d ") == "| d | 10.0 %, 10.0 % | 100.0 %, 300.0 % |"
    assert line(text, "| g2 ") == "| g2 | 10.0 %, 10.0 % | 300.0 %, 300.0 % |"
    assert "Written by `the command`: every strategy on 2 bundled graphs and 1 profiles, 2 problems." in text
    assert "optimum of the stated kernel space in 2 of the 2 problems." in text
    assert "A policy is faster than `cpsat` in 0 of 6 rows." in text


def test_what_is_unproven_or_beaten_is_listed():
    results = [result("g", "d", "cpsat", 1.0, proven=False), result("g", "d", "dp", 0.99, proven=False)]
    text = gap_study.page(results, ["g"], ["d"], "c")
    assert "in 0 of the 1 problems: g on d." in text
    assert "faster than `cpsat` in 1 of 2 rows: dp on g, d (0.9900)." in text


def test_the_gap_study_runs(tmp_path, monkeypatch, capsys):
    path = tmp_path / "gaps.md"
    arguments = ["--graphs", "softmax", "--profiles", "a100,v100,hexagon", "--jobs", "1", "-o", str(path)]
    monkeypatch.setattr("sys.argv", ["gap_study.py", *arguments])
    gap_study.main()
    text = path.read_text()
    assert "--graphs softmax --profiles a100,v100,hexagon" in text
    assert "in 3 of the 3 problems." in text and "in 0 of 36 rows." in text
    assert "wrote" in capsys.readouterr().out


@pytest.fixture
def recorded(tmp_path):
    """A folder as the study of partitions reads it: exp and neg in two kernels, then in one."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [helper.make_node("Exp", ["x"], ["e"], name="e"), helper.make_node("Neg", ["e"], ["n"], name="n")]
    ends = [[helper.make_tensor_value_info(name, kind, [1024, 1024])] for name in ("x", "n")]
    graph = helper.make_graph(nodes, "two", *ends)
    (tmp_path / "graphs").mkdir()
    (tmp_path / "partitions").mkdir()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "graphs" / "two.input.onnx")
    for peer, groups in (("apart", [["e"], ["n"]]), ("one", [["e", "n"]])):
        document = {"format": "fusesolve-partition/1", "peer": peer, "target": "t", "groups": groups}
        (tmp_path / "partitions" / f"{peer}.t.two.json").write_text(json.dumps(document))
    return tmp_path


def test_the_study_of_partitions_runs(recorded, monkeypatch):
    path = recorded / "peers.md"
    arguments = [str(recorded), "--profiles", "a100", "--jobs", "1", "-o", str(path)]
    monkeypatch.setattr("sys.argv", ["peer_study.py", *arguments])
    peer_study.main()
    text = path.read_text()
    assert "2 rows, each a partition" in text and "Rows faster than `cpsat`: none." in text
    assert "geometric mean of all graphs: 1.0000 on a100" in text
    assert line(text, "| one.t ") == "| one.t | 1.000 |"
    assert float(line(text, "| apart.t ").split("|")[2]) > 1.5
    assert line(text, "| `cpsat` ").endswith("us in 1 |")


def test_an_empty_folder_is_said_so(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["peer_study.py", str(tmp_path), "--jobs", "1"])
    with pytest.raises(SystemExit, match=r"no graphs/\*\.input\.onnx"):
        peer_study.main()
