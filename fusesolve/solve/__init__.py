"""Choosing columns: the exact partition problem, its strategies and its checker."""

from fusesolve.solve.checker import check_solution
from fusesolve.solve.driver import STRATEGIES, solve
from fusesolve.solve.problem import Column, Limits, PartitionProblem, Progress, SolveResult, Status, check_problem
from fusesolve.solve.shortlist import Shortlist, start_shortlist

__all__ = [
    "STRATEGIES",
    "Column",
    "Limits",
    "PartitionProblem",
    "Progress",
    "Shortlist",
    "SolveResult",
    "Status",
    "check_problem",
    "check_solution",
    "solve",
    "start_shortlist",
]
