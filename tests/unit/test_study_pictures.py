"""The picture of predicted against measured: what is in a panel, that the file stays small, that names stay text."""

from xml.etree import ElementTree

import pytest

from fusesolve.errors import InputError
from fusesolve.study.pictures import CELL, SIDE, Panel, draw_panels, read_panels, write_picture

SVG = "{http://www.w3.org/2000/svg}"


def marks(text: str) -> list[str]:
    return [path.get("d", "") for path in ElementTree.fromstring(text).iter(f"{SVG}path") if path.get("fill")]


def test_agreement_lies_on_the_diagonal():
    """1 us and 100 us, both right: the lower left and the upper right cell of the panel."""
    text = draw_panels([Panel(title="add", points={"X": [(1e-6, 1e-6), (1e-4, 1e-4)]})])
    last = SIDE - CELL
    assert marks(text) == [f"M0 {last}h{CELL}v{CELL}h-{CELL}zM{last} 0h{CELL}v{CELL}h-{CELL}z"]
    assert "2 rows, mean error 0.0 %" in text


def test_many_rows_in_one_cell_are_one_mark():
    text = draw_panels([Panel(title="add", points={"X": [(1e-6, 1e-6)] * 1000 + [(1e-3, 1e-3)]})])
    assert marks(text)[0].count("M") == 2


def test_names_of_devices_stay_text():
    text = draw_panels([Panel(title="<b>", points={"</svg><script>": [(1e-6, 2e-6), (1e-5, 1e-5)]})])
    assert not list(ElementTree.fromstring(text).iter(f"{SVG}script"))


def table(tmp_path, ops):
    rows = [f"V100-PCIE-32GB,{op},{2**n},4096,{10 + 2**n}" for op in ops for n in range(8)]
    path = tmp_path / "rows_f32.csv"
    path.write_text("\n".join(["gpu,op,rows,cols,latency_us", *rows, "no such device,add,8,8,9"]) + "\n")
    return path


@pytest.mark.parametrize(
    ("ops", "titles"),
    [
        (["add", "mul"], ["add (rows)", "mul (rows)"]),
        (["add", "mul", "div", "relu", "tanh"], ["rows_f32: 5 operators"]),
    ],
)
def test_a_table_is_a_panel_per_operator_or_one(tmp_path, ops, titles):
    panels = read_panels([table(tmp_path, ops)])
    assert [panel.title for panel in panels] == titles
    assert {device for panel in panels for device in panel.points} == {"V100-PCIE-32GB"}


def test_the_command_writes_the_file_named_first(tmp_path):
    target = tmp_path / "picture.svg"
    write_picture([str(target), str(table(tmp_path, ["add"]))])
    assert target.read_text().startswith("<svg") and target.read_text().endswith("</svg>\n")


def test_a_table_that_is_missing_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        read_panels([tmp_path / "nowhere.csv"])
