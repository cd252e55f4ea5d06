"""Pictures: what is in them, that names from files stay text, and that a browser shows them without an error."""

import importlib.util
import json
import re
import shutil
from html.parser import HTMLParser

import pytest

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
from fusesolve.report.pictures.whatif_pages import sweep_page

EVIL = "</script><img src=x onerror=alert(1)>"
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


def pages(block):
    return {
        "plan": plan_page(*block), "compare": compare_page(COMPARED), "sweep": sweep_page(SWEEP),
        "validation": validation_page(VALIDATED),
    }  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: install chromium to run this test")
@pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="playwright is not installed")
def test_a_browser_shows_the_pages_without_an_error(block, tmp_path, theme):
    from playwright.sync_api import sync_playwright

    figures = {"plan": 3, "compare": 1, "sweep": 2, "validation": 1}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        for name, text in pages(block).items():
            path = tmp_path / f"{name}.html"
            path.write_text(text, encoding="utf-8")
            view = browser.new_page(color_scheme=theme)
            view.set_default_timeout(120_000)
            faults = []
            view.on("console", lambda item, found=faults: found.append(item.text) if item.type == "error" else None)
            view.on("pageerror", lambda error, found=faults: found.append(str(error)))
            view.on("request", lambda item, found=faults: None if item.url.startswith(("file:", "data:", "blob:"))
                    else found.append(item.url))  # fmt: skip
            view.goto(path.as_uri())
            view.wait_for_function(f"document.querySelectorAll('.main-svg').length >= {figures[name]}")
            rows = view.locator("tbody tr").count()
            view.locator("input[type=search]").first.fill("no such text")
            assert view.locator("tbody tr:visible").count() == 0 < rows
            view.locator("th").first.click()
            assert faults == [], name
            view.close()
        browser.close()
