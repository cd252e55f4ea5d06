"""Choosing columns: the exact partition problem, its strategies and its checker."""

from fusesolve.solve.checker import check_solution
from fusesolve.solve.core import Least, Rule, find_core, least_kernels, least_live
from fusesolve.solve.driver import STRATEGIES, solve
from fusesolve.solve.problem import Column, Limits, PartitionProblem, Progress, SolveResult, Status, check_problem
from fusesolve.solve.shortlist import Shortlist, start_shortlist

__all__ = [
    "STRATEGIES",
    "Column",
    "Least",
    "Limits",
    "PartitionProblem",
    "Progress",
    "Rule",
    "Shortlist",
    "SolveResult",
    "Status",
    "check_problem",
    "check_solution",
    "find_core",
    "least_kernels",
    "least_live",
    "solve",
    "start_shortlist",
]
