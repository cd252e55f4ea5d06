"""Texts of options become values, or one line that says what was expected."""

import json

import pytest

from fusesolve.cli.options import Format, load_pins, parse_bindings, parse_sets, sink
from fusesolve.cli.request import PlanRequest
from fusesolve.errors import InputError


def request(**changes):
    base = {
        "bind": (), "strict": False, "as_dtype": None, "strategy": "cpsat", "time_limit": 60.0, "work_limit": None,
        "workers": None, "seed": 0, "together": (), "apart": (), "pins": None, "recompute": True, "max_memory": None,
        "max_kernels": None, "launch": "stream", "streams": 1, "implementation": "best",
    }  # fmt: skip
    return PlanRequest(**(base | changes))


def test_bindings():
    assert parse_bindings(["batch=8", " seq = 128 ", "batch=8"]) == {"batch": 8, "seq": 128}
    assert parse_bindings(None) == {}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["batch"], r"--bind 'batch': expected DIM=VALUE, such as --bind batch=8"),
        (["=8"], r"expected DIM=VALUE"),
        (["batch="], r"the size of batch must be an integer of at least 1, not ''"),
        (["batch=0"], r"at least 1, not '0'"),
        (["batch=-1"], r"at least 1, not '-1'"),
        (["batch=2.5"], r"at least 1, not '2.5'"),
        (["batch=²"], r"at least 1"),
        (["batch=1", "batch=2"], r"gives batch two sizes, 1 and 2"),
    ],
)
def test_bad_bindings(texts, message):
    with pytest.raises(InputError, match=message):
        parse_bindings(texts)


def test_sets_of_names():
    assert parse_sets("--together", ["a,b", "c, d ,e"]) == (("a", "b"), ("c", "d", "e"))


@pytest.mark.parametrize("text", ["a", "a,", ",", "", "a,a"])
def test_a_set_needs_two_names(text):
    with pytest.raises(InputError, match="expected at least two different operator names"):
        parse_sets("--apart", [text])


def test_pins_are_read_and_added(tmp_path):
    path = tmp_path / "pins.json"
    path.write_text(json.dumps({"format": "fusesolve-pins/1", "together": [["a,1", "b"]], "apart": [["c", "d"]]}))
    assert load_pins(path) == {"together": (("a,1", "b"),), "apart": (("c", "d"),)}
    keywords = request(pins=path, together=("x,y",)).keywords()
    assert keywords["together"] == (("x", "y"), ("a,1", "b"))
    assert keywords["apart"] == (("c", "d"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"pins\.json: not JSON, line 1 column 2"),
        ("[]", "expected an object"),
        ('{"with": []}', "unknown key 'with'; the keys are format, together, apart"),
        ('{"together": ["a", "b"]}', "expected a list of lists"),
        ('{"together": [["a", 1]]}', "expected a list of lists"),
        ('{"apart": [["a"]]}', "at least two different operator names"),
        ('{"format": "fusesolve-pins/2"}', "expected fusesolve-pins/1"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_bad_pins(tmp_path, text, message):
    path = tmp_path / "pins.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message):
        load_pins(path)


def test_missing_pins(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*none\.json: No such file"):
        load_pins(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("text", "size"), [("12 GiB", 12 * 2**30), ("1.5KiB", 1536), ("4096", 4096), ("2 MB", 2_000_000)]
)
def test_sizes(text, size):
    assert request(max_memory=text).keywords()["max_memory"] == size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_memory": "12 GHz"}, "--max-memory: .*12 GHz"),
        ({"max_memory": "lots"}, "--max-memory: "),
        ({"max_memory": "0"}, "--max-memory 0: expected a size above 0"),
        ({"time_limit": 0.0}, "--time-limit 0: expected a number above 0"),
        ({"time_limit": float("nan")}, "--time-limit nan"),
        ({"time_limit": float("inf")}, "--time-limit inf"),
        ({"work_limit": -1.0}, "--work-limit -1"),
        ({"workers": 0}, "--workers 0: expected an integer of at least 1"),
        ({"max_kernels": 0}, "--max-kernels 0"),
        ({"seed": -1}, "--seed -1: expected an integer from 0 to 2147483647"),
        ({"streams": 0}, "--streams 0: expected an integer of at least 1"),
    ],
    ids=str,
)
def test_bad_numbers(change, message):
    with pytest.raises(InputError, match=message):
        request(**change).keywords()


def test_the_form_follows_the_suffix_unless_it_is_given(tmp_path):
    assert sink(None, None).form is Format.TABLE
    assert sink(None, tmp_path / "plan.json").form is Format.JSON
    assert sink(None, tmp_path / "plan.txt").form is Format.TABLE
    assert sink(Format.TABLE, tmp_path / "plan.json").form is Format.TABLE
