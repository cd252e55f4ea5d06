"""Partitions that other compilers chose: read, and brought onto a program's operators."""

from fusesolve.peers.document import PeerPartition, load_partition, parse_partition
from fusesolve.peers.mapping import Mapped, map_partition

__all__ = ["Mapped", "PeerPartition", "load_partition", "map_partition", "parse_partition"]
