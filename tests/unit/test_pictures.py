"""Pictures: what is in them, that names from files stay text, and that a browser shows them without an error."""

import importlib.util
import json
import re
import shlex
import shutil
from html.parser import HTMLParser

import jsonschema
import pytest
from playwright.sync_api import sync_playwright

import fusesolve
from fusesolve.cli import main
from fusesolve.errors import MissingError
from fusesolve.importers.native import parse_native
from fusesolve.report.pictures import page as page_module
from fusesolve.report.pictures.drawn import draw, title
from fusesolve.report.pictures.other_pages import compare_page, validation_page
from fusesolve.report.pictures.overlays import dot_text, node_data_document, trace_document
from fusesolve.report.pictures.page import Number, Page, Table
from fusesolve.report.pictures.plan_page import plan_page
from fusesolve.report.pictures.whatif_pages import sensitivity_page, sweep_page, thresholds_page
from fusesolve.schema import load_schema
from tests.docs.pages import STUDIES, commands

EVIL = "</script><img src=x onerror=alert(1)>"
INK = "document.querySelector('.figure')._fullLayout.font.color"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def block():
    return fusesolve.plan("gpt2_block", "h100"), fusesolve.plan("gpt2_block", "h100", strategy="unfused")


@pytest.fixture(scope="module")
def hostile():
    text = json.dumps({
        "format": "fusesolve-graph/1", "name": EVIL, "inputs": ["x: f32[64,64]"],
        "ops": ["a = softmax(x; axis=1)", "y = relu(a)"], "outputs": ["y"],
    })  # fmt: skip
    return fusesolve.plan(parse_native(text, EVIL, {}, False), "h100")


class Scripts(HTMLParser):
    """Collects elements and what points outside the page."""

    def __init__(self):
        super().__init__()
        self.tags, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]


def parsed(text):
    found = Scripts()
    found.feed(text)
    return found


def test_the_trace_has_every_kernel_in_order(block):
    plan, _ = block
    document = json.loads(trace_document(plan))
    kernels = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert len(kernels) == len(plan.groups)
    ends = [event["ts"] + event["dur"] for event in kernels]
    assert [event["ts"] for event in kernels][1:] == pytest.approx(ends[:-1])
    assert ends[-1] == pytest.approx(plan.objective_ns / 1e3)
    assert {name["args"]["name"] for name in document["traceEvents"] if name["ph"] == "M"} >= {"stream 0"}


def test_a_simulated_plan_has_a_second_process():
    plan = fusesolve.plan("softmax", "h100", simulate="events")
    processes = {event["pid"] for event in json.loads(trace_document(plan))["traceEvents"]}
    assert processes == {0, 1}


def test_dot_has_a_cluster_a_kernel_and_an_edge_an_edge(block):
    plan, _ = block
    text = dot_text(plan)
    assert text.count("subgraph cluster_") == len(plan.groups)
    assert text.count(" -> ") == len(draw(plan).edges)
    assert text.count("{") == text.count("}")


def test_node_data_is_keyed_by_tensors_of_the_graph(block):
    plan, _ = block
    graph = parse_native(json.dumps(plan.graph.definition), "g", {}, False)
    results = json.loads(node_data_document(plan))["results"]
    assert set(results) <= set(graph.values)
    assert all(item["value"] > 0 and re.fullmatch("#[0-9a-f]{6}", item["bgColor"]) for item in results.values())


def test_operators_know_their_kernels(block):
    plan, _ = block
    drawn = draw(plan)
    assert {i for ids in drawn.kernels.values() for i in ids} == {group.id for group in plan.groups}
    position = {name: n for n, name in enumerate(drawn.operators)}
    assert all(position[a] < position[b] for a, b in drawn.edges)


def test_kernels_are_called_by_their_operators_in_short(group_with):
    events = [group_with(id=3, nodes=("a", "b")), group_with(id=4, nodes=tuple(f"operator_{n}" for n in range(40)))]
    names = [title(group) for group in events]
    assert names[0] == "3: a+b"
    assert len(names[1]) <= 64


def test_the_page_is_whole_and_fetches_nothing(block):
    text = plan_page(*block)
    found = parsed(text)
    assert found.links == []
    assert len(text) < 8 << 20
    assert text.count("class=figure ") == 3
    assert f"optimal over {block[0].space.candidates:,} kernels" in text


def test_names_from_files_stay_text(hostile):
    """A graph whose name is markup: no element comes of it, in HTML, in JSON or in DOT."""
    text = plan_page(hostile, None)
    found = parsed(text)
    assert "img" not in found.tags
    assert EVIL not in text
    assert EVIL.replace('"', '\\"') in dot_text(hostile)
    assert json.loads(trace_document(hostile))["otherData"]["graph"] == EVIL
    assert "&lt;/script&gt;" in Page(
        title="t", line="l", facts=[(EVIL, EVIL)], notes=[EVIL],
        parts=[Table(heading=EVIL, note=EVIL, columns=[EVIL], rows=[[EVIL], [Number(None, "")]])],
    ).html()  # fmt: skip


def test_a_plan_that_does_not_exist_has_a_page(infeasible):
    text = plan_page(infeasible, None)
    assert "no plan, infeasible" in text
    assert "at least 2 kernels are needed" in text


def test_without_the_libraries_the_extra_is_named(monkeypatch, block, capsys, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"fusesolve\[plots\]"):
        page_module.need_plots()
    assert main(["plan", "softmax", "--hw", "h100", "--html", str(tmp_path / "p.html")]) == 4
    assert capsys.readouterr().out == ""  # said before any work


def test_the_command_writes_every_picture(tmp_path, capsys):
    files = {name: tmp_path / f"p.{name}" for name in ("html", "trace", "node-data", "dot")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    assert main(["plan", "softmax", "--hw", "h100", "-q", *options]) == 0
    assert all(path.stat().st_size > 100 for path in files.values())
    assert "optimal" in capsys.readouterr().out


def test_a_picture_that_cannot_be_written_is_refused_before_the_work(tmp_path, capsys):
    assert main(["plan", "softmax", "--hw", "h100", "--dot", str(tmp_path / "no" / "p.dot")]) == 2
    assert "no folder" in capsys.readouterr().err


SWEEP = {
    "format": "fusesolve-whatif/1", "paths": ["memory.dram.bandwidth", "launch.stream"],
    "rows": [
        {
            "memory.dram.bandwidth": b, "launch.stream": s, "graph": "g", "hardware": "h",
            "plan_sha256": ("a" if b < 2e12 else "b") * 64, "status": "OPTIMAL", "objective_ns": int(1e17 / b),
            "bound_ns": 1, "gap": 0.0, "unfused_ns": 10**6, "kernels": 2, "dram_bytes": 10**6,
        }
        for b in (1e12, 2e12, 4e12) for s in (1e-6, 2e-6)
    ],
}  # fmt: skip
COMPARED = {
    "format": "fusesolve-compare/1",
    "rows": [
        {
            "name": name, "kind": kind, "objective_ns": ns, "ratio": ns / 1000, "kernels": 3, "dram_bytes": 10**6,
            "legal": True, "in_space": True, "priced_as": "own", "illegal": [], "seconds": 0.1,
        }
        for name, kind, ns in (("cpsat", "strategy", 1000), ("xla", "strategy", 1200), ("tvm.x", "partition", 1500))
    ],
}  # fmt: skip
VALIDATED = {
    "format": "fusesolve-validation/1", "on": "cpu", "plan": "p", "target": "this CPU", "ok": True,
    "spearman": 1.0, "median_ape": 0.1,
    "groups": [
        {
            "id": n, "ok": True, "error": 1e-7, "tolerance": 1e-5, "generated": True, "note": None,
            "predicted": {"latency_ns": 100.0 * n}, "compiled": None,
            "measured": {"latency_ns": 110.0 * n, "p20_ns": 1.0, "p80_ns": 2.0, "unfused_latency_ns": None},
        }
        for n in (1, 2, 3)
    ],
}  # fmt: skip


SEGMENTS = [
    {"low": 1e-6, "high": 4e-6, "plan_sha256": "a" * 64, "kernels": 3, "low_ns": 5000, "high_ns": 9000},
    {"low": 4.1e-6, "high": 5e-6, "plan_sha256": "b" * 64, "kernels": 2, "low_ns": 9100, "high_ns": 9600},
    {"low": 5.1e-6, "high": 9e-6, "plan_sha256": None, "kernels": None, "low_ns": None, "high_ns": None},
]  # fmt: skip
CHANGES = [
    {
        "below": 4e-6, "above": 4.1e-6, "below_sha256": "a" * 64, "above_sha256": "b" * 64, "gain_ns": 10,
        "gain_at_end_ns": 400, "groups": [{"kind": "merged", "nodes": ["t<b>", "y"], "from": 2, "to": 1}],
    },
    {
        "below": 5e-6, "above": 5.1e-6, "below_sha256": "b" * 64, "above_sha256": None, "gain_ns": None,
        "gain_at_end_ns": None, "groups": [],
    },
]  # fmt: skip
THRESHOLDS = {
    "format": "fusesolve-thresholds/1", "path": "launch.stream", "dimension": "seconds",
    "set": ["memory.dram.bandwidth"],
    "lines": [
        {
            "graph": "g", "hardware": "h", "path": "launch.stream", "resolution": 1e-7, "segments": SEGMENTS,
            "changes": CHANGES, "set": {"memory.dram.bandwidth": b},
        }
        for b in (1e12, 4e12)
    ],
}  # fmt: skip
SENSITIVITY = {
    "format": "fusesolve-sensitivity/1", "set": [],
    "lines": [
        {
            "graph": "g", "hardware": "h", "plan_sha256": "a" * 64, "objective_ns": 1000, "kernels": 2, "set": {},
            "numbers": [
                {
                    "path": path, "value": value, "dimension": dimension, "elasticity": elasticity, "delta_ns": -9,
                    "step": 0.01, "accuracy": 0.05, "could_flip": elasticity > 0, "stuck": None,
                }
                for path, value, dimension, elasticity in (
                    ("memory.dram.bandwidth", 1e12, "bytes per second", -0.9), ("launch.stream", 1e-6, "seconds", 0.1),
                )
            ],
        }
    ],
}  # fmt: skip


def hovers(text):
    """All tooltips of the figures of a page."""
    found = re.findall(r"class=figure-data data-for=f\d+>(.*?)</script>", text, re.DOTALL)
    traces = [trace for figure in found for trace in json.loads(figure)["data"]]
    return [line for trace in traces for line in trace.get("hovertext", ())], traces


def test_the_map_of_thresholds_has_a_named_phase_a_plan_and_says_what_changes():
    jsonschema.validate(THRESHOLDS, load_schema("thresholds"))
    texts, traces = hovers(thresholds_page(THRESHOLDS))
    names = ["plan 1: 3 kernels, aaaaaaaa", "plan 2: 2 kernels, bbbbbbbb", "no plan"]
    assert sorted(trace["name"] for trace in traces) == sorted(names)
    assert len({trace["marker"]["color"] for trace in traces}) == 3
    first = next(trace for trace in traces if trace["name"] == names[0])
    assert first["y"] == ["1 TB/s", "4 TB/s"]
    assert first["text"] == ["1", "1"]
    # in us: from 1 up to half-way between 4 and 4.1
    assert (first["base"], first["x"]) == (pytest.approx([1.0, 1.0]), pytest.approx([3.05, 3.05]))
    hover = next(text for text in texts if text.startswith("<b>plan 1"))
    assert "1 us .. 4 us<br>time 5 us .. 9 us<br>above it: merged 2 &gt; 1: t&lt;b&gt;+y" in hover


def test_the_tornado_marks_what_could_flip_the_plan():
    jsonschema.validate(SENSITIVITY, load_schema("sensitivity"))
    _, traces = hovers(sensitivity_page(SENSITIVITY))
    found = {trace["name"]: (trace["y"], trace["x"]) for trace in traces}
    assert found == {
        "holds within its stated accuracy": (["memory.dram.bandwidth"], [-0.9]),
        "could flip the plan": (["launch.stream"], [0.1]),
    }


def test_a_sweep_over_two_numbers_has_a_map_of_its_own():
    _, traces = hovers(sweep_page(SWEEP))
    phases = {trace["name"]: trace["y"] for trace in traces if trace["type"] == "bar"}
    assert phases == {
        "plan 1: 2 kernels, aaaaaaaa": ["1 us", "2 us"], "plan 2: 2 kernels, bbbbbbbb": ["1 us", "1 us", "2 us", "2 us"]
    }  # fmt: skip


def test_values_that_are_far_apart_are_drawn_on_a_log_scale_with_borders_half_way_on_it():
    rows = [{**row, "memory.dram.bandwidth": b} for row, b in zip(SWEEP["rows"][::2], (1e11, 1e12, 1e13), strict=True)]
    text = sweep_page({**SWEEP, "rows": rows})
    figures = re.findall(r"class=figure-data data-for=f\d+>(.*?)</script>", text, re.DOTALL)
    assert [json.loads(figure)["layout"]["xaxis"]["type"] for figure in figures] == ["log", "log"]
    (bars,) = [[t for t in hovers(text)[1] if t["type"] == "bar"]]
    spans = sorted((base, base + size) for bar in bars for base, size in zip(bar["base"], bar["x"], strict=True))
    # GB/s, a factor of 10 apart: borders at 100 / sqrt(10), 100 * sqrt(10), ...
    assert spans == [
        (pytest.approx(100 * 10 ** (k - 0.5)), pytest.approx(100 * 10 ** (k + 0.5))) for k in range(3)
    ]  # fmt: skip


def test_a_search_has_no_page(capsys, tmp_path):
    question = ["--minimise", "launch.stream=1us..2us", "--target", "1ms", "--html", str(tmp_path / "p.html")]
    assert main(["whatif", "softmax", "--hw", "h100", *question]) == 2
    assert "--html shows a sweep, --threshold or --sensitivity" in capsys.readouterr().err


def study_pages(folder):
    """The pages that the commands of the studies write, with two steps a range; and how many figures each has."""
    found = {}
    for line in [line for study in STUDIES for line in commands(study) if "--html" in line]:
        words = [re.sub(r"(\.\.[^:]*):\d+", r"\1:2", word) for word in shlex.split(line)[1:]]
        for option in ("-o", "--html"):
            place = words.index(option) + 1
            words[place] = str(folder / words[place])
        assert main([*words, "--workers", "1", "-q"]) == 0
        path = folder / words[words.index("--html") + 1]
        found[path.stem] = (path.read_text(encoding="utf-8"), 1)
    return found


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: install chromium to run this test")
def test_a_browser_shows_the_pages_without_an_error(block, tmp_path):
    """Every kind of page, and those of the studies' own commands, by day and by night."""
    pages = {
        "plan": (plan_page(*block), 3), "compare": (compare_page(COMPARED), 1), "sweep": (sweep_page(SWEEP), 2),
        "validation": (validation_page(VALIDATED), 1), "thresholds": (thresholds_page(THRESHOLDS), 1),
        "sensitivity": (sensitivity_page(SENSITIVITY), 1), **study_pages(tmp_path),
    }  # fmt: skip
    assert {"launch", "llama", "scratchpad"} <= set(pages)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        for name, (text, figures) in pages.items():
            path = tmp_path / f"{name}.html"
            path.write_text(text, encoding="utf-8")
            view = browser.new_page(color_scheme="light")
            view.set_default_timeout(120_000)
            faults = []
            view.on("console", lambda item, found=faults: found.append(item.text) if item.type == "error" else None)
            view.on("pageerror", lambda error, found=faults: found.append(str(error)))
            view.on("request", lambda item, found=faults: None if item.url.startswith(("file:", "data:", "blob:"))
                    else found.append(item.url))  # fmt: skip
            view.goto(path.as_uri())
            view.wait_for_function(f"document.querySelectorAll('.main-svg').length >= {figures}")
            by_day = view.evaluate(INK)
            view.emulate_media(color_scheme="dark")
            view.wait_for_function(f"({INK}) !== {json.dumps(by_day)}")  # the figures are drawn anew in the other ink
            rows = view.locator("tbody tr").count()
            view.locator("input[type=search]").first.fill("no such text")
            assert view.locator("tbody tr:visible").count() < rows
            view.locator("th").first.click()
            assert faults == [], name
            view.close()
        browser.close()
