"""The picture of predicted against measured: what is in a panel, that the file stays small, that names stay text."""

from xml.etree import ElementTree

import pytest

from fusesolve.errors import InputError
from tests.docs.accuracy_picture import Panel, draw_panels, read_panels, write_picture
from tests.docs.pictures import svg_bytes

SVG = "{http://www.w3.org/2000/svg}"


def marks(panel):
    """(measured, predicted) of the marks of a picture of one panel."""
    (axes,) = draw_panels([panel]).axes
    return [tuple(mark) for mark in axes.collections[0].get_offsets().tolist()]


def test_agreement_lies_on_the_diagonal():
    panel = Panel(title="add", points={"X": [(1e-6, 1e-6), (1e-4, 1e-4)]})
    assert marks(panel) == [pytest.approx((1e-6, 1e-6)), pytest.approx((1e-4, 1e-4))]
    (axes,) = draw_panels([panel]).axes
    assert "2 rows, mean error 0.0 %" in axes.get_title()


def test_predicted_is_upwards():
    assert marks(Panel(title="add", points={"X": [(1e-6, 1e-4), (1e-6, 1e-4)]})) == [pytest.approx((1e-6, 1e-4))]


def test_many_rows_in_one_cell_are_one_mark():
    assert len(marks(Panel(title="add", points={"X": [(1e-6, 1e-6)] * 1000 + [(1e-3, 1e-3)]}))) == 2


def test_names_of_devices_stay_text():
    figure = draw_panels([Panel(title="<b>", points={"</svg><script>": [(1e-6, 2e-6), (1e-5, 1e-5)]})])
    assert not list(ElementTree.fromstring(svg_bytes(figure, "<i>")).iter(f"{SVG}script"))


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
    assert ElementTree.fromstring(target.read_bytes()).tag == f"{SVG}svg"
    before = target.read_bytes()
    write_picture([str(target), str(table(tmp_path, ["add"]))])
    assert target.read_bytes() == before


def test_a_table_that_is_missing_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        read_panels([tmp_path / "nowhere.csv"])
