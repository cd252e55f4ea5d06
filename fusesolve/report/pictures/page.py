"""One self-contained HTML page: figures by Plotly, tables that sort and filter, light and dark, nothing fetched.

Everything that comes from a file is escaped: text in HTML, and JSON inside script elements (`<` as an escape).
"""

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from fusesolve import __version__
from fusesolve.errors import MissingError
from fusesolve.units import format_seconds

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

EXTRA = "--html: the extra plots is missing (plotly, networkx): install it with pip install 'fusesolve[plots]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure under a heading; `height` in pixels. `width`: pixels of a figure that is scrolled in its frame."""

    heading: str
    note: str
    figure: "Figure"
    height: int = 420
    width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table under a heading; a cell is text, or a number that is shown as its text and sorted by its value."""

    heading: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence["Cell"]]


@dataclass(frozen=True, slots=True)
class Number:
    """A number and how it is written; None is written as a dash and sorts last."""

    value: float | None
    text: str


Cell: TypeAlias = str | Number

# What all figures have in common; colours are the page's own, by its theme.
LAYOUT: dict[str, Any] = {"margin": {"l": 70, "r": 20, "t": 30, "b": 60}, "font": {"size": 12}, "template": "none"}


def time_cell(ns: float | None) -> Number:
    """Nanoseconds as a cell."""
    return Number(ns, "" if ns is None else format_seconds(ns / 1e9))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page: title, one line below it, facts as (name, text), notes, then pictures and tables in order."""

    title: str
    line: str
    facts: Sequence[tuple[str, str]]
    parts: Sequence[Picture | Table]
    notes: Sequence[str] = field(default=())

    def html(self) -> str:
        """The whole document."""
        library = _library() if any(isinstance(part, Picture) for part in self.parts) else ""
        body = "".join(_picture(n, p) if isinstance(p, Picture) else _table(n, p) for n, p in enumerate(self.parts))
        facts = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in self.facts)
        notes = "".join(f"<p class=note>{_text(note)}</p>" for note in self.notes)
        return (
            f"<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>{_text(self.title)}</title>"
            '<meta name=viewport content="width=device-width, initial-scale=1">'
            f"<style>{STYLE}</style>{library}</head>\n<body><header><h1>{_text(self.title)}</h1>"
            f"<p class=line>{_text(self.line)}</p><dl>{facts}</dl>{notes}</header>\n<main>{body}</main>"
            f"<footer>fusesolve {__version__}</footer><script>{SCRIPT}</script></body></html>\n"
        )


def need_plots() -> None:
    """MissingError (exit 4) that names the extra where the plotting libraries are not installed."""
    import importlib.util

    if any(importlib.util.find_spec(name) is None for name in ("plotly", "networkx")):
        raise MissingError(EXTRA)


def escape_hover(text: str) -> str:
    """Text for a tooltip, a name in a legend or a label: Plotly reads a few HTML tags there."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _library() -> str:
    from plotly.offline import get_plotlyjs

    return f"<script>{get_plotlyjs()}</script>"


def _text(text: object) -> str:
    return html.escape(str(text))


def _json(data: Any) -> str:
    """JSON that cannot end the script element that it stands in."""
    return json.dumps(data).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _picture(number: int, part: Picture) -> str:
    figure = json.loads(part.figure.to_json())
    figure = {"data": figure["data"], "layout": {**figure["layout"], "height": part.height}}
    frame, style = "frame", f"height:{part.height}px"
    if part.width is not None:
        frame, style = "frame wide", f"{style};width:{part.width}px;min-width:100%"
    return (
        f"<section><h2>{_text(part.heading)}</h2><p class=note>{_text(part.note)}</p>"
        f"<div class='{frame}'><div id=f{number} class=figure style='{style}'></div></div>"
        f"<script type='application/json' class=figure-data data-for=f{number}>{_json(figure)}</script></section>\n"
    )


def _table(number: int, part: Table) -> str:
    heads = "".join(f"<th tabindex=0>{_text(name)}</th>" for name in part.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in part.rows)
    search = f"<input type=search data-for=t{number} placeholder='filter' aria-label='filter {_text(part.heading)}'>"
    return (
        f"<section><h2>{_text(part.heading)}</h2><p class=note>{_text(part.note)}</p>{search}"
        f"<div class=frame><table id=t{number}><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
        "</section>\n"
    )


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return f"<td>{_text(cell)}</td>"
    if cell.value is None:
        return "<td class=n data-v=''>-</td>"
    return f"<td class=n data-v='{cell.value!r}'>{_text(cell.text)}</td>"


STYLE = """
:root{color-scheme:light dark;--fg:#1f2328;--dim:#59636e;--bg:#fff;--line:#d1d9e0;--soft:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--dim:#9198a1;--bg:#0d1117;--line:#3d444d;--soft:#151b23}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1280px;padding:16px;color:var(--fg);background:var(--bg)}
body{font:14px/1.45 system-ui,sans-serif}
h1{font-size:22px;margin:0}h2{font-size:17px;margin:28px 0 2px}.line{margin:2px 0 10px;font-size:16px}
.note{color:var(--dim);margin:2px 0 8px}footer{color:var(--dim);margin:24px 0 8px}
dl{display:flex;flex-wrap:wrap;gap:6px 26px;margin:0}dl div{min-width:90px}
dt{color:var(--dim);font-size:12px}dd{margin:0}
.frame{border:1px solid var(--line);border-radius:6px;overflow:auto;max-width:100%}
.wide{max-height:720px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:4px 9px;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
td{max-width:460px}td:nth-child(2){overflow-wrap:anywhere;min-width:140px}
th{position:sticky;top:0;background:var(--soft);cursor:pointer;white-space:nowrap}
td.n{text-align:right;white-space:nowrap}tr:hover td{background:var(--soft)}
input{font:inherit;color:inherit;background:var(--soft);border:1px solid var(--line);border-radius:6px;padding:4px 9px}
input{margin:0 0 6px;width:220px;max-width:100%}
"""

SCRIPT = """
const dark=matchMedia('(prefers-color-scheme: dark)');
function themed(layout){
  const css=getComputedStyle(document.documentElement),get=n=>css.getPropertyValue(n).trim();
  const made=structuredClone(layout);
  made.paper_bgcolor=made.plot_bgcolor='rgba(0,0,0,0)';made.font={...(made.font||{}),color:get('--fg')};
  const line=get('--line'),axis={gridcolor:line,zerolinecolor:line,linecolor:line};
  for(const key of Object.keys(made))if(/^[xy]axis/.test(key))Object.assign(made[key],axis);
  made.modebar={bgcolor:'rgba(0,0,0,0)',color:get('--dim'),activecolor:get('--fg')};
  made.hoverlabel={align:'left',bgcolor:get('--soft'),font:{color:get('--fg')}};
  return made;
}
function drawAll(){
  for(const item of document.querySelectorAll('.figure-data')){
    const figure=JSON.parse(item.textContent);
    const options={responsive:true,displaylogo:false,scrollZoom:false};
    Plotly.react(item.dataset.for,figure.data,themed(figure.layout),options);
  }
}
if(window.Plotly){drawAll();dark.addEventListener('change',drawAll);}
for(const head of document.querySelectorAll('th')){
  const sort=()=>{
    const at=[...head.parentNode.children].indexOf(head),body=head.closest('table').tBodies[0];
    const up=head.dataset.up!=='1';head.dataset.up=up?'1':'0';
    const key=row=>{const cell=row.children[at];
      return cell.dataset.v===undefined?cell.textContent:cell.dataset.v===''?Infinity:Number(cell.dataset.v)};
    const rows=[...body.rows].sort((a,b)=>{const x=key(a),y=key(b);return (x<y?-1:x>y?1:0)*(up?1:-1)});
    body.append(...rows);
  };
  head.addEventListener('click',sort);
  head.addEventListener('keydown',event=>{if(event.key==='Enter')sort()});
}
for(const box of document.querySelectorAll('input[data-for]'))box.addEventListener('input',()=>{
  const wanted=box.value.toLowerCase();
  for(const row of document.getElementById(box.dataset.for).tBodies[0].rows)
    row.hidden=!row.textContent.toLowerCase().includes(wanted);
});
"""
