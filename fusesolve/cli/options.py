"""Options that several commands share: their help texts and how their texts become values."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fusesolve.errors import InputError

OUTPUT_PANEL = "Output"
GRAPH_PANEL = "Graph"
SOLVE_PANEL = "Search"
PLAN_PANEL = "What a plan may do"


class Format(StrEnum):
    """How a result is written."""

    TABLE = "table"
    JSON = "json"


class Launch(StrEnum):
    """How kernels are launched."""

    STREAM = "stream"
    GRAPH = "graph"


class Verify(StrEnum):
    """What a plan's kernels are verified with while it is made."""

    NONE = "none"
    COMPILE = "compile"


class Simulate(StrEnum):
    """How the finished plan is timed."""

    CLOSED = "closed"
    EVENTS = "events"


class Implementation(StrEnum):
    """Which kind of kernel computes a contraction."""

    BEST = "best"
    LIBRARY = "library"
    GENERATED = "generated"


GraphArg = Annotated[
    str | None,
    typer.Argument(
        metavar="GRAPH",
        help="A file (.onnx, .yaml, .json) or the name of a bundled graph; left out: a transformer block.",
        show_default=False,
    ),
]
HardwareOpt = Annotated[
    str,
    typer.Option(
        "--hw", metavar="PROFILE", help="A profile file, a bundled name such as h100, or local.", show_default=False
    ),
]
BindOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--bind",
        metavar="DIM=VALUE",
        help="Give a symbolic dimension its size: --bind batch=8. Repeatable.",
        rich_help_panel=GRAPH_PANEL,
        show_default=False,
    ),
]
StrictOpt = Annotated[
    bool,
    typer.Option("--strict", help="Refuse unknown operators; without it they are priced as opaque kernels.",
                 rich_help_panel=GRAPH_PANEL),
]  # fmt: skip
DTypeOpt = Annotated[
    str | None,
    typer.Option(
        "--as-dtype", metavar="TYPE", help="Take every float tensor as this type: f16, bf16, i8 ...",
        rich_help_panel=GRAPH_PANEL, show_default=False,
    ),
]  # fmt: skip
TimeLimitOpt = Annotated[
    float,
    typer.Option("--time-limit", metavar="SECONDS", help="Wall clock for the whole command; then the best plan so far.",
                 rich_help_panel=SOLVE_PANEL),
]  # fmt: skip
WorkLimitOpt = Annotated[
    float | None,
    typer.Option("--work-limit", metavar="N", help="Limit in deterministic work units: the same plan on every machine.",
                 rich_help_panel=SOLVE_PANEL, show_default=False),
]  # fmt: skip
WorkersOpt = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", help="Threads of the solver; left out: as many as there are cores.",
                 rich_help_panel=SOLVE_PANEL, show_default=False),
]  # fmt: skip
SeedOpt = Annotated[
    int,
    typer.Option("--seed", metavar="N", help="Seed of the search; a proven optimum does not depend on it.",
                 rich_help_panel=SOLVE_PANEL),
]  # fmt: skip
StrategyOpt = Annotated[
    str,
    typer.Option("--strategy", metavar="NAME", help="cpsat (proven optimum), unfused, greedy, or one of compare's.",
                 rich_help_panel=SOLVE_PANEL),
]  # fmt: skip
TogetherOpt = Annotated[
    list[str] | None,
    typer.Option("--together", metavar="A,B", help="These operators must share a kernel. Repeatable.",
                 rich_help_panel=PLAN_PANEL, show_default=False),
]  # fmt: skip
ApartOpt = Annotated[
    list[str] | None,
    typer.Option("--apart", metavar="A,B", help="These operators must not share a kernel. Repeatable.",
                 rich_help_panel=PLAN_PANEL, show_default=False),
]  # fmt: skip
PinsOpt = Annotated[
    Path | None,
    typer.Option("--pins", metavar="FILE", help='JSON: {"together": [["a", "b"]], "apart": [["c", "d"]]}.',
                 rich_help_panel=PLAN_PANEL, show_default=False),
]  # fmt: skip
NoRecomputeOpt = Annotated[
    bool,
    typer.Option("--no-recompute", help="Compute every operator exactly once.", rich_help_panel=PLAN_PANEL),
]
MaxMemoryOpt = Annotated[
    str | None,
    typer.Option("--max-memory", metavar="SIZE", help="Limit on the peak memory of the plan, such as '12 GiB'.",
                 rich_help_panel=PLAN_PANEL, show_default=False),
]  # fmt: skip
ObjectiveOpt = Annotated[
    str,
    typer.Option("--objective", metavar="LEVELS", rich_help_panel=PLAN_PANEL,
                 help="What to minimise, in this order: latency, then dram (bytes moved), kernels or both."),
]  # fmt: skip
MaxKernelsOpt = Annotated[
    int | None,
    typer.Option("--max-kernels", metavar="N", help="Limit on the number of kernels.",
                 rich_help_panel=PLAN_PANEL, show_default=False),
]  # fmt: skip
LaunchOpt = Annotated[
    Launch,
    typer.Option("--launch", help="Price launches one by one on a stream, or replayed as a graph.",
                 rich_help_panel=PLAN_PANEL),
]  # fmt: skip
SimulateOpt = Annotated[
    Simulate,
    typer.Option("--simulate", help="closed: the formulas that the plan was chosen by; events: also block by block.",
                 rich_help_panel=PLAN_PANEL),
]  # fmt: skip
VerifyOpt = Annotated[
    Verify,
    typer.Option("--verify", help="compile: plan with what the CUDA compiler makes of the chosen kernels.",
                 rich_help_panel=PLAN_PANEL),
]  # fmt: skip
StoreOpt = Annotated[
    Path | None,
    typer.Option("--store", metavar="DIR", help="Keep what --verify compile has compiled, by source, for other runs.",
                 rich_help_panel=PLAN_PANEL, show_default=False),
]  # fmt: skip
StreamsOpt = Annotated[
    int,
    typer.Option("--streams", metavar="N", help="Streams that kernels may run on: independent ones overlap.",
                 rich_help_panel=PLAN_PANEL),
]  # fmt: skip
ImplementationOpt = Annotated[
    Implementation,
    typer.Option("--implementation", help="Price contractions as library kernels, generated ones, or the cheaper.",
                 rich_help_panel=PLAN_PANEL),
]  # fmt: skip
FormatOpt = Annotated[
    Format | None,
    typer.Option("--format", help="Table for people or JSON for programs; left out: by the suffix of -o, else table.",
                 rich_help_panel=OUTPUT_PANEL, show_default=False),
]  # fmt: skip
OutputOpt = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write the result to FILE, whole or not at all; - is stdout.",
                 rich_help_panel=OUTPUT_PANEL, show_default=False),
]  # fmt: skip
QuietOpt = Annotated[
    bool,
    typer.Option("-q", "--quiet", help="Nothing on stderr but errors.", rich_help_panel=OUTPUT_PANEL),
]
VerboseOpt = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="Log each stage on stderr, on a terminal or not.",
                 rich_help_panel=OUTPUT_PANEL),
]  # fmt: skip
DebugOpt = Annotated[
    bool,
    typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=OUTPUT_PANEL),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where a result goes and in which form: `path` None is stdout."""

    form: Format
    path: Path | None


def sink(form: Format | None, output: Path | None) -> Sink:
    """Resolve `--format` and `-o`: JSON where the file's name ends in .json, `-` is stdout.

    Raises InputError at once where the file could not be written.
    """
    from fusesolve.cli.streams import check_writable

    path = None if output is None or str(output) == "-" else output
    check_writable(path)
    by_suffix = Format.JSON if path is not None and path.suffix == ".json" else Format.TABLE
    return Sink(form=form or by_suffix, path=path)


def parse_bindings(texts: Iterable[str] | None) -> dict[str, int]:
    """`["batch=8", "seq=128"]` as sizes by name; each size is an integer >= 1, a name may be given once."""
    sizes: dict[str, int] = {}
    for text in texts or ():
        name, equals, size = (part.strip() for part in text.partition("="))
        if not (name and equals):
            raise InputError(f"--bind {text!r}: expected DIM=VALUE, such as --bind batch=8")
        if not (size.isascii() and size.isdigit() and int(size) >= 1):
            raise InputError(f"--bind {text!r}: the size of {name} must be an integer of at least 1, not {size!r}")
        if sizes.setdefault(name, int(size)) != int(size):
            raise InputError(f"--bind gives {name} two sizes, {sizes[name]} and {int(size)}; give it once")
    return sizes


def parse_sets(option: str, texts: Iterable[str] | None) -> tuple[tuple[str, ...], ...]:
    """`["a,b", "c,d,e"]` of `--together` or `--apart` as tuples of at least two different names each."""
    return tuple(_name_set(f"{option} {text!r}", text.split(",")) for text in texts or ())


def load_pins(path: Path | None) -> dict[str, tuple[tuple[str, ...], ...]]:
    """The sets of a pins file (`fusesolve-pins/1`), under the keys `together` and `apart`; none without a file."""
    pins: dict[str, tuple[tuple[str, ...], ...]] = {"together": (), "apart": ()}
    if path is None:
        return pins
    document = _read_json(path)
    if not isinstance(document, dict):
        raise InputError(f"--pins {path}: expected an object with the keys together and apart (fusesolve schema pins)")
    unknown = sorted(set(document) - {"format", *pins})
    if unknown:
        raise InputError(f"--pins {path}: unknown key {unknown[0]!r}; the keys are format, together, apart")
    if document.get("format", "fusesolve-pins/1") != "fusesolve-pins/1":
        raise InputError(f"--pins {path}: format {document['format']!r} is not known; expected fusesolve-pins/1")
    return {key: _pin_sets(f"--pins {path}: {key}", document.get(key, [])) for key in pins}


def _pin_sets(where: str, sets: Any) -> tuple[tuple[str, ...], ...]:
    ok = isinstance(sets, list) and all(isinstance(names, list) for names in sets)
    if not ok or not all(isinstance(name, str) for names in sets for name in names):
        raise InputError(f'{where}: expected a list of lists of operator names, such as [["a", "b"]]')
    return tuple(_name_set(where, names) for names in sets)


def _name_set(where: str, names: Sequence[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    if len(found) < 2:
        raise InputError(f"{where}: expected at least two different operator names, such as A,B; got {len(found)}")
    return found


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); expected JSON") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON, line {error.lineno} column {error.colno}: {error.msg}") from error
