"""Code generation: a plan document becomes one Python file of Numba CUDA kernels, one kernel per group."""
