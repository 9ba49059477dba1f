"""A row of the table of causes, and the charges that it makes to a loop."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lotus.analysis.observations.places import BlockedPlace
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import CODE, Remedy
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.numbers.array_types import Floats

# The parts of a loop; the waits are what remains between its start-up and its shut-down.
WAITS, STEP, STARTUP, SHUTDOWN = "waits", "step", "start-up", "shut-down"

# Evidence of work in the workers, which `lost_steps.py` adds.
LOST_STEPS = "lost_steps_ns"
OF_LOST_STEPS = {LOST_STEPS: "What the steps lost as it used their cores, nanoseconds."}


class Evidence:
    """Numbers by name, their units in the names (_ns, _share, _bytes); NaN for a missing one."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> float:
        return self._values.get(name, math.nan)

    def has(self, name: str) -> bool:
        """Return True if the number is known."""
        return not math.isnan(self[name])


@dataclass(frozen=True)
class Charge:
    """`ns` of the loop's time that a cause takes; `name`: the operation, or the cause's title.

    `within`: the component of the batches' making that most of it was in; "": not known.
    `delay_ns`: how long the same work had no core, which is charged to other programs.
    `taken_ns`: how much of `ns` was without a core that other programs had.
    `step_ns`: how much of `ns` was in the training step, of a cause of waits.
    `at_once`: how many workers could do it at the same time but for a lock; NaN: no lock is known.
    `by_batch`: how much of it was at each batch of the loop (n,), ns; None where not known.
    `looks`: the share of observations that `ns` was inferred from, and their number; (NaN, 0): it
    was measured.
    `place`: where most of the threads in it were blocked; None: not known, or several.
    `work`: the kind of the work that is blocked, where being blocked is a kind of its own.
    """

    kind: str
    name: str
    ns: float
    evidence: dict[str, float] = field(default_factory=dict)
    within: str = ""
    delay_ns: float = 0.0
    taken_ns: float = 0.0
    step_ns: float = 0.0
    at_once: float = math.nan
    by_batch: Floats | None = field(default=None, repr=False, compare=False)
    looks: tuple[float, float] = (math.nan, 0.0)
    place: BlockedPlace | None = None
    work: str = ""

    @property
    def waited_ns(self) -> float:
        """The part of it that was not in the training step, of a cause of waits."""
        return self.ns - self.step_ns


Words = Callable[[Charge, Circumstances], str]


@dataclass(frozen=True)
class CauseRow:
    """One kind of cause.

    `charges` takes the cause's time from the ledger: what rows before it in the table have left.
    `facts` describes each number of its evidence. `reason` makes a sentence of them, "" if the
    share says all. `full_title` is the title with what is known of this charge.
    """

    kind: str  # as stored in documents
    title: str
    charges: Callable[[Ledger], Iterable[Charge]]
    advice: Callable[[Charge, Circumstances], Advice]
    part: str = WAITS  # of the loop
    full_title: Words = lambda charge, circumstances: charge.name
    facts: Mapping[str, str] = field(default_factory=dict)
    reason: Callable[[Evidence], str] = lambda evidence: ""
    silent: bool = False  # takes no time
    # True: worth a change in any case, so it is named before a training step that sets the pace.
    is_grave: Callable[[Charge], bool] = lambda charge: False
    # Kinds of causes that come before it where they take much of the loop, unless it is pressing.
    gives_way_to: frozenset[str] = frozenset()
    is_pressing: Callable[[Charge], bool] = lambda charge: False


def fixed(text: str) -> Words:
    """Return a function of words that are the same for every charge."""
    return lambda charge, circumstances: text


def always(text: str, remedy: Remedy = CODE) -> Callable[[Charge, Circumstances], Advice]:
    """Return a function of advice that is the same for every charge."""
    return lambda charge, circumstances: Advice(text, remedy)
