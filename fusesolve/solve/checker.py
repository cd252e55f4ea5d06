"""The solver-free checker: recomputes everything a result claims, from the problem alone."""

from collections import Counter
from collections.abc import Mapping

from fusesolve.ragged import choose
from fusesolve.solve.problem import Column, PartitionProblem, SolveResult, Status


def check_solution(problem: PartitionProblem, result: SolveResult) -> list[str]:
    """Every claim of `result` that does not hold, one line each; an empty list means the result is sound.

    Checked: indices, cover (exact partitions), required values, availability in the stated order, the limits on kernels
    and memory, the objective, and that status, objective and bound fit together. The bound's truth is the solver's to
    prove.
    """
    if not result.selected:
        return _claim_faults(problem, result, {})
    bad = [index for index in result.selected if not 0 <= index < len(problem.columns)]
    if bad:
        return [f"selected columns {bad[:5]} do not exist (there are {len(problem.columns)})"]
    columns = dict(zip(result.selected, choose(problem.columns, result.selected), strict=True))
    faults = [f"column {i} is selected {n} times" for i, n in Counter(result.selected).items() if n > 1]
    faults += _order_faults(problem, result.selected, columns)
    if not problem.recompute:
        faults += _cover_faults(problem, result.selected, columns)
    if problem.max_kernels is not None and len(result.selected) > problem.max_kernels:
        faults.append(f"{len(result.selected)} kernels are selected, the limit is {problem.max_kernels}")
    if problem.max_live is not None and not faults:
        faults += _memory_faults(problem, [columns[i] for i in result.selected], problem.max_live)
    return faults + _claim_faults(problem, result, columns)


def _memory_faults(problem: PartitionProblem, selected: list[Column], limit: int) -> list[str]:
    """Bytes live at each step, by definition: values first touched by then and touched then or later."""
    touched = [{*column.reads, *column.writes} for column in selected]
    faults = []
    for step in range(len(touched)):
        before = set().union(*touched[: step + 1])
        after = set().union(*touched[step:])
        live = sum(problem.live_bytes[value] for value in before & after)
        if live > limit:
            faults.append(f"{live} bytes are live at kernel {step}, the limit is {limit}")
    return faults


def _order_faults(problem: PartitionProblem, selected: tuple[int, ...], columns: Mapping[int, Column]) -> list[str]:
    faults = []
    written: set[int] = set()
    for place, index in enumerate(selected):
        column = columns[index]
        missing = [value for value in column.reads if value not in written]
        if missing:
            faults.append(f"kernel {place} (column {index}) reads values {missing[:5]} before any kernel writes them")
        written.update(column.writes)
    lost = sorted(problem.required - written)
    if lost:
        faults.append(f"required values {lost[:5]} are written by no kernel")
    return faults


def _cover_faults(problem: PartitionProblem, selected: tuple[int, ...], columns: Mapping[int, Column]) -> list[str]:
    times = Counter(op for index in selected for op in columns[index].members)
    wrong = [op for op in range(problem.n_ops) if times[op] != 1]
    faults = [f"operator {op} is in {times[op]} kernels, must be in one" for op in wrong]
    partial = [index for index in selected if not columns[index].full]
    if partial:
        faults.append(f"columns {partial[:5]} keep a value back and may not stand in an exact partition")
    return faults


def _claim_faults(problem: PartitionProblem, result: SolveResult, columns: Mapping[int, Column]) -> list[str]:
    has_plan = result.status in (Status.OPTIMAL, Status.FEASIBLE)
    if has_plan != (result.objective is not None):
        return [f"status {result.status} with objective {result.objective}"]
    if not has_plan:
        return [f"status {result.status} with {len(result.selected)} columns"] if result.selected else []
    faults = []
    total = sum(columns[index].cost for index in result.selected)
    if total != result.objective:
        faults.append(f"the objective is stated as {result.objective} ns, the selected columns cost {total} ns")
    if not result.selected and (problem.required or (problem.n_ops and not problem.recompute)):
        faults.append(f"status {result.status} with no columns although the problem is not empty")
    if result.bound is not None and result.bound > total:
        faults.append(f"the bound {result.bound} ns is above the objective {total} ns")
    if result.status is Status.OPTIMAL and result.bound != result.objective:
        faults.append(f"status OPTIMAL with objective {result.objective} and bound {result.bound}")
    return faults
