"""Choosing columns: the exact partition problem, its strategies and its checker."""

from fusesolve.solve.problem import Column, Limits, PartitionProblem, Progress, SolveResult, Status, check_problem

__all__ = ["Column", "Limits", "PartitionProblem", "Progress", "SolveResult", "Status", "check_problem"]
