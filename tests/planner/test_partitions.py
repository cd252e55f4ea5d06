"""Recorded partitions of other compilers, all priced; none is faster than the optimum of the stated space."""

from pathlib import Path

import pytest

from fusesolve.comparison import compare_planning
from fusesolve.peers import load_partition
from fusesolve.pipeline import PlanOptions, begin

PEERS = Path(__file__).parents[2] / ".." / "shared" / "peers"
GRAPHS = ("ew_chain", "softmax", "layernorm", "transformer", "llama", "resnet50")
PARTITIONS = 17  # of each graph


def rows_on(graph, profile, time_limit=60.0):
    path = PEERS / "graphs" / f"{graph}.input.onnx"
    if not path.is_file():
        pytest.skip(f"the recorded partitions are not beside this checkout ({path} is not there)")
    files = sorted((PEERS / "partitions").glob(f"*.{graph}.json"))
    assert len(files) == PARTITIONS
    planning = begin(str(path), profile, PlanOptions(), time_limit=time_limit)
    return compare_planning(planning, strategies=["cpsat"], partitions=[load_partition(file) for file in files])


@pytest.mark.parametrize("profile", ["a100", "h100"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_no_recorded_partition_beats_the_optimum(graph, profile):
    found = rows_on(graph, profile)
    assert found.status == "OPTIMAL"
    best, *peers = found.rows
    assert len(peers) == PARTITIONS and min(row.ratio for row in peers) >= 1.0
    assert all(row.objective_ns > 0 and row.kernels > 0 and row.dram_bytes > 0 for row in peers)
    assert all(row.legal for row in peers)  # a100 and h100 have room for what these compilers made for them
    # wherever a peer makes one kernel of the whole graph, and it is one, so do we
    assert all(row.ratio == 1.0 for row in peers if row.kernels == 1) or best.kernels == 1


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["h100"])
def test_eight_branches_in_one_kernel_are_above_the_space(profile):
    """Inductor and XLA make one kernel of 44 operators, the space has none so large: it is named, and split."""
    found = rows_on("branches", profile)
    peers = {row.name: row for row in found.rows[1:]}
    assert len(peers) == PARTITIONS
    whole = peers["inductor.cuda-a100"]
    assert whole.groups == 1
    if whole.illegal:  # the limit of the space, and nothing else, refuses it
        assert [item.rule for item in whole.illegal] == ["member-limit"]
    assert all(row.ratio >= 1.0 for row in peers.values())
