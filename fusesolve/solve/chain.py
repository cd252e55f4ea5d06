"""A lower bound on the makespan of every plan on any number of streams: the longest chain of waits."""

import heapq

from fusesolve.solve.problem import PartitionProblem


def longest_chain(problem: PartitionProblem) -> int:
    """Earliest time (ns) at which all required values can be there if every column could run at once.

    A value comes from some column that writes it, which starts when its own reads are there: the least of these times
    over the columns, found like a shortest path (D. Knuth, A generalization of Dijkstra's algorithm, 1977). No plan is
    faster, whatever it recomputes. 0 where nothing is required, or some required value cannot be made.
    """
    usable = [i for i, column in enumerate(problem.columns) if problem.recompute or column.full]
    waiting: dict[int, list[int]] = {}
    missing = [len(column.reads) for column in problem.columns]
    for index in usable:
        for value in problem.columns[index].reads:
            waiting.setdefault(value, []).append(index)
    heap = [(problem.columns[i].cost, i) for i in usable if not missing[i]]
    heapq.heapify(heap)
    times: dict[int, int] = {}
    while heap:
        time, index = heapq.heappop(heap)
        for value in problem.columns[index].writes:
            if value in times:
                continue
            times[value] = time
            for reader in waiting.get(value, ()):
                missing[reader] -= 1
                if not missing[reader]:
                    heapq.heappush(heap, (time + problem.columns[reader].cost, reader))
    if not problem.required <= times.keys():
        return 0
    return max((times[value] for value in problem.required), default=0)
