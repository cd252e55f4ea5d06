"""What a fusion policy may ask: the program, its neighbourhoods, and the simulator's verdict on a group."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TypeAlias

from fusesolve.candidates.grow import closure
from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.pricing import Priced, limit_refusal, nanoseconds_of
from fusesolve.candidates.program import Operator, Program, Read
from fusesolve.candidates.siblings import share_operand
from fusesolve.candidates.space import DROPPED_WRITES, Kernel, inspect_group
from fusesolve.errors import FusesolveError
from fusesolve.group import FusionGroup, Refusal
from fusesolve.hardware import HardwareProfile
from fusesolve.ops.definition import OpKind

Members: TypeAlias = tuple[int, ...]

ARITHMETIC_FREE = frozenset({OpKind.MOVEMENT, OpKind.GENERATE, OpKind.GATHER})


class OutOfTimeError(FusesolveError):
    """A policy was stopped by the clock: it has no groups."""


class Context:
    """A priced program as policies see it. Groups are ascending tuples of operator numbers; costs are whole ns.

    Everything is remembered: asking twice costs nothing. Once `late` returns True, the next question about a group
    that is new raises OutOfTimeError.
    """

    def __init__(self, priced: Priced, late: Callable[[], bool] | None = None) -> None:
        self.priced = priced
        self._late = late
        self.program: Program = priced.space.program
        self.profile: HardwareProfile = priced.profile
        self.operators: tuple[Operator, ...] = self.program.operators
        self._judged: dict[tuple[Members, frozenset[int] | None], FusionGroup | Refusal] = {}
        self._cost: dict[Members, int | None] = {
            kernel.members: priced.cost_ns[kernel.unique] for kernel in priced.space.kernels if kernel.full
        }

    @cached_property
    def reach(self) -> tuple[list[int], list[int]]:
        """Ancestors and descendants of every operator as bit masks."""
        return closure(self.program)

    @property
    def preds(self) -> tuple[Members, ...]:
        """Operators that make what each operator reads, ascending."""
        return self.program.preds

    @property
    def succs(self) -> tuple[Members, ...]:
        """Operators that read what each operator makes, ascending."""
        return self.program.succs

    def name(self, index: int) -> str:
        """The primitive's name in the graph."""
        return self.program.graph.nodes[self.operators[index].node].name

    def op(self, index: int) -> str:
        """The primitive that the operator is, such as `add`."""
        return self.program.graph.nodes[self.operators[index].node].op

    def kind(self, index: int) -> OpKind:
        """What the kernel space does with the operator."""
        return self.operators[index].kind

    def is_pointwise(self, index: int) -> bool:
        """Elementwise, or an index map without arithmetic."""
        kind = self.kind(index)
        return kind is OpKind.ELEMENTWISE or kind in ARITHMETIC_FREE

    def widens(self, index: int) -> bool:
        """Whether the operator is a cast to a wider type."""
        if self.op(index) != "cast":
            return False
        operator, storage = self.operators[index], self.program.storage
        source = storage[operator.reads[0].storage].type.dtype
        return storage[operator.writes[0]].type.dtype.itemsize > source.itemsize

    def required(self, index: int) -> bool:
        """Whether the graph must deliver something that the operator makes."""
        return any(self.program.storage[w].required for w in self.operators[index].writes)

    def is_convex(self, members: Iterable[int]) -> bool:
        """Whether no data path leaves the group and comes back."""
        above = below = mask = 0
        ancestors, descendants = self.reach
        for member in members:
            above |= ancestors[member]
            below |= descendants[member]
            mask |= 1 << member
        return not above & below & ~mask

    def judge(self, members: Members, writes: frozenset[int] | None = None) -> FusionGroup | Refusal:
        """The group as a kernel that writes `writes` (None: all that others need), or the structural refusal."""
        key = (members, writes)
        if key not in self._judged:
            self.check_time()
            self._judged[key] = self._judge(members, writes)
        return self._judged[key]

    def check_time(self) -> None:
        """Raise OutOfTimeError once it is late; for loops that ask nothing else."""
        if self._late is not None and self._late():
            raise OutOfTimeError("the time limit came before the policy had its groups")

    def _judge(self, members: Members, writes: frozenset[int] | None) -> FusionGroup | Refusal:
        if self._waits_for_itself(members, self.touched(members)[1] if writes is None else writes):
            return Refusal(
                rule="convex", message="a data path leaves the group and comes back, so it would wait for itself",
                lever="include the operators on the path, or split the group there",
            )  # fmt: skip
        return inspect_group(self.program, build_nest(self.program, members), writes)

    def is_stated(self, kernel: Kernel) -> bool:
        """Whether the stated space has kernels like this one: few writes left out, convex, products that may share.

        Sets that are not convex but wait for nothing of their own are in it where they hold no contraction, one value
        leads back into them, and their hull is no kernel (`Grower`); this answers for the convex ones.
        """
        needed = self.touched(kernel.members)[1]
        few = len(needed.difference(kernel.writes)) <= DROPPED_WRITES
        return few and self.is_convex(kernel.members) and self._may_share(kernel.members)

    def _may_share(self, members: Members) -> bool:
        """Whether the products of a kernel that has several side by side may join it one after the other."""
        nest = build_nest(self.program, members)
        if not nest.facts.side_by_side:
            return True
        waiting = {members[head] for head in nest.heads}
        reached = {waiting.pop()}
        while near := {m for m in waiting if any(share_operand(self.program, head, m) for head in reached)}:
            reached |= near
            waiting -= near
        return not waiting

    def _waits_for_itself(self, members: Members, writes: Iterable[int]) -> bool:
        """Whether something written leads to something read: what the group computes only for itself does not count."""
        inside = sum(1 << member for member in members)
        _, descendants = self.reach
        return any(
            (descendants[reader] | 1 << reader) & inside
            for value in writes
            for reader in self.program.storage[value].readers
            if not inside >> reader & 1
        )

    def limits(self, group: FusionGroup) -> Refusal | None:
        """Why no tiling of the group fits the profile, or None where one does."""
        return limit_refusal(group.workload, self.profile, self.priced.options)

    def costs(self, groups: Sequence[Members]) -> list[int | None]:
        """Cost of each group as one kernel in ns, launch included; None where it is none. Priced in one go."""
        fresh = [members for members in dict.fromkeys(groups) if members not in self._cost]
        found = {members: self.judge(members) for members in fresh}
        legal = [members for members in fresh if isinstance(found[members], FusionGroup)]
        self._cost.update(dict.fromkeys(fresh))
        workloads = [group.workload for members in legal if isinstance(group := found[members], FusionGroup)]
        prices = nanoseconds_of(workloads, self.profile, self.priced.options) if workloads else ()
        self._cost.update(zip(legal, prices, strict=True))
        return [self._cost[members] for members in groups]

    def cost(self, members: Members) -> int | None:
        """Cost of one group as one kernel in ns, None where it is no kernel on the profile."""
        return self.costs((members,))[0]

    def bytes_of(self, storage: int) -> int:
        """Bytes of a tensor."""
        return self.program.storage[storage].type.nbytes

    def made_in(self, read: Read) -> int | None:
        """The operator that makes what is read, None for an input or a weight."""
        return self.program.storage[read.storage].producer

    def touched(self, members: Iterable[int]) -> tuple[set[int], set[int]]:
        """Storage that a group reads from memory, and storage that it makes and someone outside needs."""
        inside = set(members)
        reads: set[int] = set()
        writes: set[int] = set()
        for member in inside:
            operator = self.operators[member]
            reads.update(r.storage for r in operator.reads if self.made_in(r) not in inside)
            for value in operator.writes:
                storage = self.program.storage[value]
                if storage.required or not inside.issuperset(storage.readers):
                    writes.add(value)
        return reads, writes
