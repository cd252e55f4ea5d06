"""Which kernels exist: the program behind a graph, the groups that grow in it, their work and their prices."""
