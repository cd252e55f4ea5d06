"""The CPU emitter: each group of a plan as a Numba kernel that runs on all cores, vectorised along its innermost loop."""
