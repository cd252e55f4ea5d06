"""Where the blocks of a sweep are worked out: this process, processes of this machine, or a Dask cluster."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from fusesolve.errors import InputError, MissingError, NoPlanError
from fusesolve.whatif.evaluate import evaluate_block
from fusesolve.whatif.points import Block
from fusesolve.whatif.rows import Outcome

Result: TypeAlias = tuple[int, list[Outcome]]
Executor: TypeAlias = Callable[[Sequence[Block]], Iterator[Result]]

CONNECT_S = 10


def work_out(block: Block) -> Result:
    """The number of a block and its outcomes; runs in any process that has fusesolve."""
    return block.index, evaluate_block(block)


def run_here(blocks: Sequence[Block]) -> Iterator[Result]:
    """One block after the other in this process."""
    return map(work_out, blocks)


def run_processes(blocks: Sequence[Block], workers: int) -> Iterator[Result]:
    """Blocks as they are finished by `workers` processes of this machine.

    NoPlanError where a process was killed: what is finished is kept, and the same command goes on from there.
    """
    import joblib

    joblib_dead: Any = importlib.import_module("joblib.externals.loky").process_executor.TerminatedWorkerError
    tasks = (joblib.delayed(work_out)(block) for block in blocks)
    try:
        yield from joblib.Parallel(n_jobs=workers, return_as="generator_unordered", pre_dispatch="2*n_jobs",
                                   batch_size=1)(tasks)  # fmt: skip
    except joblib_dead as error:
        raise NoPlanError(
            "a process of the sweep was killed (out of memory?); what is finished is kept: repeat the command to go "
            "on, with fewer --workers"
        ) from error


def run_cluster(blocks: Sequence[Block], address: str) -> Iterator[Result]:
    """Blocks as they are finished by the workers of the Dask cluster at `address` (`tcp://host:port`).

    A worker that dies loses only its unfinished blocks, which the scheduler gives to others. MissingError without the
    extra `dask`, InputError where nothing answers, NoPlanError where too many workers died over one block.
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
        futures = [client.submit(work_out, block, pure=False) for block in blocks]
        try:
            for future in dask.as_completed(futures):
                yield future.result()
                future.release()
        except dask.KilledWorker as error:
            raise NoPlanError(f"the cluster lost too many workers: {error}; what is finished is kept") from error
