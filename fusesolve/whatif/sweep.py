"""Running a study: blocks out, outcomes in, kept in the journal until the table is whole."""

import time
from collections.abc import Sequence
from pathlib import Path

from fusesolve.errors import NoPlanError
from fusesolve.pipeline.options import Report
from fusesolve.whatif.evaluate import evaluate_block
from fusesolve.whatif.executors import Resources, execute
from fusesolve.whatif.points import Block, Study
from fusesolve.whatif.remaining import teller
from fusesolve.whatif.rows import Cell, Table, make_table
from fusesolve.whatif.state import Journal, open_journal

WORTH_PROCESSES = 8  # blocks: starting a process takes about as long as working out one


def run_study(
    study: Study, resources: Resources, *, state: Path | None = None, progress: Report | None = None
) -> tuple[Table, Journal]:
    """The table of a study, and the journal to finish once it is written.

    `state`: a file for what is finished; where it holds blocks of the same study these are not worked out again.
    The rows do not depend on the executor, the number of workers, or on how often the study was interrupted. Raises
    NoPlanError where the time limit ends it, and what `open_journal` and the executors raise.
    """
    started = time.monotonic()
    journal = open_journal(state, study.sha256)
    blocks = list(study.blocks())
    rest = [block for block in blocks if block.index not in journal.done]
    points = sum(len(block.points) for block in blocks)
    tell = teller("points", points, points - sum(len(block.points) for block in rest), progress)
    tell(0)
    left = len(rest)
    with execute(evaluate_block, rest, resources, worth=WORTH_PROCESSES) as results:
        for number, outcomes in results:
            block = rest[number]
            journal.add(block.index, [_row(study, block, place, o.cells()) for place, o in enumerate(outcomes)])
            left -= 1
            tell(len(outcomes))
            spent = time.monotonic() - started
            if left and resources.time_limit is not None and spent > resources.time_limit:
                raise NoPlanError(_too_late(journal, blocks, resources.time_limit))
    rows = [row for block in blocks for row in journal.done[block.index]]
    return make_table([number.path for number in study.paths], rows), journal


def _row(study: Study, block: Block, place: int, cells: Sequence[Cell]) -> list[Cell]:
    point = block.points[place]
    return [*point.numbers, block.subject.graph.name, point.hardware, *cells]


def _too_late(journal: Journal, blocks: Sequence[Block], limit: float) -> str:
    done = sum(len(blocks[index].points) for index in journal.done)
    total = sum(len(block.points) for block in blocks)
    kept = "repeat the command to go on" if journal.path is not None else "with -o FILE a sweep can be resumed"
    return f"the time limit of {limit:g} s ended the sweep after {done:,} of {total:,} points; {kept}"
