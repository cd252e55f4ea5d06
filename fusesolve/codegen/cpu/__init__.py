"""The CPU emitter: each group of a plan as a Numba kernel for all cores, vectorised along its innermost loop."""
