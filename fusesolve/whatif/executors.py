"""Where the parts of a study are worked out: this process, processes of this machine, or a Dask cluster."""

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from fusesolve.errors import InputError, MissingError, NoPlanError

Part = TypeVar("Part")
Result = TypeVar("Result")

CONNECT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a study may use: processes of this machine (None: one a core), or the Dask cluster at `scheduler`.

    `time_limit`: seconds for all of it, or None.
    """

    workers: int | None = None
    scheduler: str | None = None
    time_limit: float | None = None


def execute(
    work: Callable[[Part], Result], parts: Sequence[Part], resources: Resources, *, worth: int = 2
) -> "closing[_Results[tuple[int, Result]]]":
    """`(place, work(part))` of all parts as they are finished, in any order; what is not asked for is not started.

    `work` is a function of a module, so that any process can run it; a part's result must not depend on where it ran.
    Fewer than `worth` parts are worked out here: starting processes would take longer.
    """
    tasks = list(enumerate(parts))
    count = min(resources.workers or os.cpu_count() or 1, len(tasks)) if len(tasks) >= worth else 1
    if resources.scheduler is not None and tasks:
        found = _on_cluster(work, tasks, resources.scheduler)
    elif count > 1:
        found = _in_processes(work, tasks, count)
    else:
        found = (_work(work, place, part) for place, part in tasks)
    return closing(_Results(found))


class _Results(Iterator[Result]):
    """An iterator that can be closed, whatever it iterates over."""

    def __init__(self, results: Iterator[Result]) -> None:
        self.results = results

    def __next__(self) -> Result:
        return next(self.results)

    def close(self) -> None:
        """End the executor: nothing more is started."""
        end = getattr(self.results, "close", None)
        if end is not None:
            end()


def _work(work: Callable[[Part], Result], place: int, part: Part) -> tuple[int, Result]:
    return place, work(part)


def _in_processes(
    work: Callable[[Part], Result], tasks: Sequence[tuple[int, Part]], workers: int
) -> Iterator[tuple[int, Result]]:
    """Processes of this machine; NoPlanError where one was killed."""
    import joblib

    killed: Any = importlib.import_module("joblib.externals.loky").process_executor.TerminatedWorkerError
    calls = (joblib.delayed(_work)(work, place, part) for place, part in tasks)
    pool = joblib.Parallel(n_jobs=workers, return_as="generator_unordered", pre_dispatch="2*n_jobs", batch_size=1)
    try:
        yield from pool(calls)
    except killed as error:
        raise NoPlanError(
            "a process of the sweep was killed (out of memory?); what is finished is kept: repeat the command to go "
            "on, with fewer --workers"
        ) from error


def _on_cluster(
    work: Callable[[Part], Result], tasks: Sequence[tuple[int, Part]], address: str
) -> Iterator[tuple[int, Result]]:
    """The workers of a Dask cluster; what a worker that dies had in work is given to others by the scheduler.

    MissingError without the extra `dask`, InputError where nothing answers, NoPlanError where one part took too many
    workers with it.
    """
    try:
        dask: Any = importlib.import_module("distributed")
    except ModuleNotFoundError as error:
        raise MissingError("--scheduler needs the extra dask: pip install 'fusesolve[dask]'") from error
    try:
        client = dask.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"--scheduler {address}: no Dask scheduler answers there ({error})") from error
    with client:
        futures = [client.submit(_work, work, place, part, pure=False) for place, part in tasks]
        try:
            for future in dask.as_completed(futures, loop=client.loop):
                yield future.result()
                future.release()
        except dask.KilledWorker as error:
            raise NoPlanError(f"the cluster lost too many workers: {error}; what is finished is kept") from error
