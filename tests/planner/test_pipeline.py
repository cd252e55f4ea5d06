"""The main job through the Python API: pins, limits, names, memory, determinism."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fusesolve import plan
from fusesolve.errors import InputError
from fusesolve.importers.native import parse_native

ROOT = Path(__file__).parents[2]

CHAIN = """
format: fusesolve-graph/1
name: chain
inputs: ["x: f32[1024,1024]"]
ops:
  - "a = exp(x)"
  - "b = neg(a)"
  - "c = tanh(b)"
outputs: [c]
"""
NBYTES = 4 * 1024 * 1024


def chain():
    return parse_native(CHAIN, "chain", {}, False)


def test_a_chain_is_one_kernel_that_reads_and_writes_once():
    found = plan(chain(), "h100")
    assert found.status == "OPTIMAL" and len(found.groups) == 1
    assert found.groups[0].nodes == ("a", "b", "c")
    assert found.dram_bytes == 2 * NBYTES
    assert found.unfused_dram_bytes == 6 * NBYTES
    assert found.gap == 0.0 and found.bound_ns == found.objective_ns


def test_peak_memory_counts_inputs_outputs_and_live_intermediates():
    found = plan(chain(), "h100")
    assert found.peak_memory_bytes == 2 * NBYTES  # x and c; a and b never exist
    assert found.unfused_peak_memory_bytes == 4 * NBYTES  # x and c, and a with b at the second kernel


def test_apart_separates_even_inside_a_chain():
    found = plan(chain(), "h100", apart=(("a", "b"),))
    assert [group.nodes for group in found.groups] == [("a",), ("b", "c")]
    assert found.objective_ns > plan(chain(), "h100").objective_ns


def test_together_forces_one_kernel():
    free = plan("gpt2_block", "h100")
    assert not any({"ln_1", "res_1"} <= set(group.nodes) for group in free.groups)
    pinned = plan(chain(), "h100", together=(("a", "c"),))
    assert len(pinned.groups) == 1


def test_contradictory_pins_are_named():
    found = plan(chain(), "h100", together=(("a", "b"),), apart=(("a", "b"),))
    assert found.status == "INFEASIBLE" and found.groups == () and found.objective_ns is None
    assert found.conflicts[0]["message"].startswith("a and b are pinned both together and apart")


def test_an_impossible_kernel_is_refused_with_its_rule():
    found = plan("gpt2_block", "h100", together=(("ln_1", "c_attn"),))
    assert found.status == "INFEASIBLE"
    conflict = found.conflicts[0]
    assert conflict["rule"] == "reduction-beside-contraction"
    assert conflict["numbers"]["need"] > conflict["numbers"]["limit"]
    assert conflict["lever"]


def test_max_kernels_below_the_least_is_infeasible_and_says_so():
    found = plan("gpt2_block", "h100", max_kernels=1)
    assert found.status == "INFEASIBLE"
    assert "--max-kernels 1" in found.conflicts[0]["message"]


def test_max_kernels_above_the_optimum_changes_nothing():
    free = plan("gpt2_block", "h100")
    assert plan("gpt2_block", "h100", max_kernels=len(free.groups)).objective_ns == free.objective_ns


def test_max_memory_below_inputs_and_outputs_is_infeasible_and_says_so():
    found = plan(chain(), "h100", max_memory=NBYTES)
    assert found.status == "INFEASIBLE" and found.objective_ns is None
    assert found.conflicts[0]["numbers"] == {"need": 2 * NBYTES, "limit": NBYTES}
    assert plan(chain(), "h100", max_memory=2 * NBYTES).status == "OPTIMAL"


def test_max_memory_changes_the_plan_and_below_the_least_names_it():
    free = plan("moe_router", "h100")
    assert free.status == "OPTIMAL" and free.peak_memory_bytes is not None
    tight = plan("moe_router", "h100", max_memory=free.peak_memory_bytes - 1)
    assert tight.status == "OPTIMAL" and tight.peak_memory_bytes is not None
    assert tight.peak_memory_bytes < free.peak_memory_bytes and tight.objective_ns > free.objective_ns
    never = plan("moe_router", "h100", max_memory=tight.peak_memory_bytes - 1)
    (conflict,) = [entry for entry in never.conflicts if entry["rule"] == "max-memory"]
    assert never.status == "INFEASIBLE" and conflict["numbers"]["need"] == tight.peak_memory_bytes


@pytest.mark.parametrize(
    ("options", "word"),
    [({"launch": "never"}, "launch"), ({"implementation": "magic"}, "implementation"),
     ({"max_kernels": 0}, "max_kernels"),
     ({"together": (("a",),)}, "together"), ({"apart": (("a", "nobody"),)}, "nobody"), ({"strategy": "luck"}, "luck")],
)  # fmt: skip
def test_bad_options_name_themselves(options, word):
    with pytest.raises(InputError, match=word):
        plan(chain(), "h100", **options)


def test_greedy_and_unfused_are_never_faster_than_the_optimum():
    best = plan("gpt2_block", "a100")
    for strategy in ("greedy", "unfused"):
        other = plan("gpt2_block", "a100", strategy=strategy)
        assert other.objective_ns >= best.objective_ns
    assert plan("gpt2_block", "a100", strategy="unfused").objective_ns == best.unfused_ns


def test_forbidding_recomputation_is_never_faster():
    assert plan("bert_layer", "h100", recompute=False).objective_ns >= plan("bert_layer", "h100").objective_ns


def test_a_library_only_plan_has_no_generated_contraction():
    found = plan("gpt2_block", "h100", implementation="library")
    assert {g.implementation for g in found.groups if g.template == "contraction"} == {"library"}


def test_a_decomposed_operator_that_is_split_appears_by_its_primitives():
    found = plan("gpt2_block", "mobile-npu", apart=(("ln_1/rsqrt", "ln_1/sub"),))
    names = {name for group in found.groups for name in group.nodes}
    assert "ln_1" not in names
    assert {name for name in names if name.startswith("ln_1/")} >= {"ln_1/sub", "ln_1/rsqrt"}


def test_integer_engines_refuse_floats_and_take_them_as_integers():
    with pytest.raises(InputError, match="as-dtype i8"):
        plan(chain(), "ethos-u55-128")


def _digest(graph: str, profile: str, seed: str, workers: int) -> str:
    code = (
        "import json, sys; from fusesolve import plan; "
        f"d = plan({graph!r}, {profile!r}, workers={workers}).to_dict(); "
        "d.pop('seconds'); sys.stdout.write(json.dumps(d))"
    )
    env = {**os.environ, "PYTHONHASHSEED": seed}
    text = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert json.loads(text)["status"] == "OPTIMAL"
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("profile", ["h100", "mobile-npu"])
@pytest.mark.parametrize("graph", ["gpt2_block", "inception_branches", "llama_block_decode"])
def test_processes_hash_seeds_and_workers_do_not_change_a_byte(graph, profile):
    assert _digest(graph, profile, "1", 1) == _digest(graph, profile, "2", 2)
