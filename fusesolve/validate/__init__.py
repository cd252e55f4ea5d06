"""Validation: what a plan promises, checked step by step (reference, CUDA simulator, CUDA compiler)."""
