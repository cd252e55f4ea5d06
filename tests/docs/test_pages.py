"""What README.md and docs/ say is true: commands run, links lead somewhere, shown output is the real one."""

import json
import re
import shlex

import onnx
import pytest

from fusesolve.cli import main
from fusesolve.cli.app import COMMANDS as COMMANDS_TABLE
from fusesolve.cli.app import GROUPS
from fusesolve.codegen.cpu import runtime
from tests.docs.pages import PAGES, ROOT, commands, links, output_of, outputs

COMMANDS = sorted({line for page in PAGES for line in commands(page)})
FUSESOLVE = [line for line in COMMANDS if not line.startswith("make ")]
MAKE = [line for line in COMMANDS if line.startswith("make ")]
WIDER = """format: fusesolve-hardware/1
extends: h100
name: wide
memory: {shared: {per_unit: 456 KiB, per_block_max: 454 KiB}}
"""


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with the files that the documents' commands name as the reader's own."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Softmax", ["r"], ["y"], name="softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "model",
        [helper.make_tensor_value_info("x", kind, ["batch", 256])],
        [helper.make_tensor_value_info("y", kind, ["batch", 64])],
        [helper.make_tensor("w", kind, [256, 64], [0.5] * (256 * 64))],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "wide.yaml").write_text(WIDER)
    monkeypatch.chdir(tmp_path)
    for name in ("SAMPLE_S", "WARM_S"):  # times of this machine are taken of one call, not warmed up
        monkeypatch.setattr(runtime, name, 0.0)
    return tmp_path


@pytest.mark.parametrize("line", FUSESOLVE)
def test_every_command_shown_works(workplace, capsys, line):
    arguments = shlex.split(line)
    assert arguments[0] == "fusesolve"
    code = main(arguments[1:])
    assert code == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", [*COMMANDS_TABLE, *GROUPS])
def test_every_command_is_in_the_page_of_commands(name):
    assert re.search(rf"^\| `{name}\b", (ROOT / "docs" / "COMMANDS.md").read_text(), re.MULTILINE)


def test_the_pages_show_commands():
    assert len(FUSESOLVE) >= 5
    assert "make plan" in MAKE
    assert "make test" in MAKE


def test_the_native_graph_shown_is_one(tmp_path, capsys):
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "GRAPHS.md").read_text(), re.DOTALL)
    (tmp_path / "shown.yaml").write_text(block)
    code = main(["plan", str(tmp_path / "shown.yaml"), "--hw", "h100", "--bind", "batch=8192", "--format", "json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert len(json.loads(out)["groups"]) == 1


def test_the_pins_shown_are_pins(tmp_path, capsys):
    (block,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "COMMANDS.md").read_text(), re.DOTALL)
    (tmp_path / "pins.json").write_text(block)
    code = main(["plan", "gpt2_block", "--hw", "h100", "--pins", str(tmp_path / "pins.json"), "--format", "json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    kernels = [set(group["nodes"]) for group in json.loads(out)["groups"]]
    assert any({"c_attn", "c_attn_bias"} <= nodes for nodes in kernels)
    assert not any({"c_fc", "gelu"} <= nodes for nodes in kernels)


@pytest.mark.parametrize("line", MAKE)
def test_every_make_target_shown_exists(line):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = [word for word in shlex.split(line)[1:] if "=" not in word]
    assert set(wanted) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    missing = [target for target in links(page) if not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize(
    ("command", "shown"), [pair for page in PAGES for pair in outputs(page)], ids=lambda text: text.splitlines()[0][:60]
)
def test_shown_output_is_what_the_command_prints(command, shown):
    assert shown == output_of(command), "a page shows old output: run `make docs`"


def test_the_readme_shows_a_real_plan():
    commands_shown = [command for command, _ in outputs(ROOT / "README.md")]
    assert "fusesolve plan --hw h100.yaml" in commands_shown
