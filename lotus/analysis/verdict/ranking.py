"""The order in which the causes of a verdict are named."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum

from lotus.analysis.verdict.causes import BY_KIND
from lotus.analysis.verdict.causes.cause_row import LOST_STEPS, SHUTDOWN, STARTUP, STEP, Charge
from lotus.analysis.verdict.causes.cores.crowded_workers import WORKER_THREADS
from lotus.analysis.verdict.causes.cores.other_programs import OTHERS
from lotus.analysis.verdict.causes.cores.step_threads import STEP_THREADS
from lotus.analysis.verdict.causes.repetition import SAMPLES_TWICE, STARVED
from lotus.analysis.verdict.causes.run.edges import REST
from lotus.analysis.verdict.causes.step.training_step import TRACING
from lotus.analysis.verdict.causes.transport import SENDING
from lotus.analysis.verdict.parts_of_loop import HIGH

# Defects in how data are divided come first: what else is waited for is measured beside them.
DEFECTS = (SAMPLES_TWICE.kind, STARVED.kind)
_EDGES = (STARTUP, SHUTDOWN)
# Of the loop: what makes steps lose as much comes before what the steps need, which remains.
_MUCH_LOST = 0.3


class Group(IntEnum):
    """Groups of causes, the one that is named first first."""

    GRAVE = 0  # a defect, or worth a change whatever sets the pace
    PACE = 1  # in the part of the loop that sets the pace, where that is not the waits
    WAITS = 2
    BESIDE = 3  # takes no time, comes once, is of other programs, or does not set the pace
    LAST = 4  # explains nothing, or nothing that a user could change


@dataclass(frozen=True)
class _Ranking:
    """`waited`: charged to all but the step; `whole`: to all; both ns. Otherwise as `ranked`."""

    charges: list[Charge]
    kind: str
    own_part: float
    brief: bool
    waited: float
    whole: float

    def key(self, charge: Charge) -> tuple[Group, float]:
        """Return what the charges are sorted by: their group, then the largest first."""
        group = self._group(charge)
        row = BY_KIND[charge.kind]
        if charge.kind == TRACING.kind:
            return (group, 0.0)
        if group is Group.GRAVE or row.silent:
            return (group, -charge.ns)
        # Only part of what others took of the edges and of the sending is known: assume the share
        # that they took of the other waits.
        partly = row.part in _EDGES or charge.kind == SENDING.kind
        sets_pace = row.part == STEP and self.kind == "consumer-bound"
        stays = charge.kind == WORKER_THREADS.kind or sets_pace
        taken = 0.0 if stays else charge.taken_ns
        return (group, (self.own_part if partly else 1.0) * (taken - charge.ns))

    def _group(self, charge: Charge) -> Group:
        row = BY_KIND[charge.kind]
        if self._is_defect(charge) or self._comes_before_the_step(charge):
            return Group.GRAVE
        if charge.kind == TRACING.kind:
            return Group.LAST
        if row.silent:
            return Group.BESIDE
        if charge.kind == REST.kind and self._explains_nothing(charge):
            return Group.LAST
        if row.part == STEP:
            return self._group_of_step(charge)
        if charge.kind == OTHERS.kind:
            return Group.BESIDE  # what it does to the figures is said first, as a doubt
        if row.part in _EDGES and self.brief:
            return Group.BESIDE
        if row.part in _EDGES and self.kind == "start-up-bound":
            return Group.PACE
        if self.kind == "consumer-bound" and LOST_STEPS in charge.evidence:
            return Group.PACE
        return Group.WAITS

    def _group_of_step(self, charge: Charge) -> Group:
        if self.kind == "consumer-bound":
            return Group.PACE
        among_waits = charge.kind == STEP_THREADS.kind or BY_KIND[charge.kind].is_grave(charge)
        return Group.WAITS if among_waits else Group.BESIDE

    def _is_defect(self, charge: Charge) -> bool:
        starves = charge.kind == STARVED.kind
        return charge.kind in DEFECTS and (not starves or self.kind == "input-bound")

    def _comes_before_the_step(self, charge: Charge) -> bool:
        """Return True if it is worth a change although the training step sets the pace."""
        if self.kind != "consumer-bound":
            return False
        if charge.evidence.get(LOST_STEPS, 0.0) >= _MUCH_LOST * self.whole > 0:
            return True
        row = BY_KIND[charge.kind]
        if not row.is_grave(charge):
            return False
        gives_way = 0.0 < HIGH * self.whole <= self._spent(row.gives_way_to)
        return row.is_pressing(charge) if gives_way else True

    def _explains_nothing(self, charge: Charge) -> bool:
        """Return True unless most of the waiting was broken off: then nothing else is the cause."""
        return charge.evidence.get("broken_off_ns", 0.0) <= self.waited / 2

    def _spent(self, kinds: Collection[str]) -> float:
        return sum(charge.ns for charge in self.charges if charge.kind in kinds)


def ranked(charges: list[Charge], kind: str, own_part: float, brief: bool) -> list[Charge]:
    """Sort the charges, the largest first.

    `kind`: of the verdict. `own_part`: the part of the waits that other programs did not take.
    `brief`: start-up and shut-down come after the waits.

    The training step comes first where it sets the pace and last where it does not, except for
    what its threads lose, which takes its place among the waits. What has no record explains
    nothing and comes last.
    """
    waited = sum(charge.waited_ns for charge in charges if BY_KIND[charge.kind].part != STEP)
    whole = sum(charge.ns for charge in charges)
    return sorted(charges, key=_Ranking(charges, kind, own_part, brief, waited, whole).key)
