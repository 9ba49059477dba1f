"""The speed of a training loop without each of its stalls, from blocks of its own steps.

Pure: the blocks come from ceiling_blocks.py.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lotus.advise.ceilings.fed_blocks import FedBlock
from lotus.common.numbers.statistics import t_quantile
from lotus.common.text.formatting import amount, factor_between
from lotus.tune.program.program import Watched
from lotus.tune.search.trials.trial_rates import Speedup, compared

REAL, SAME, UNSENT, FREE = (
    "real",
    "same",
    "unsent",
    "free",
)  # as lotus/inside/tune/feeds/fed_training.py has them
EXACT, ALL = "exact", "all"  # alternatives that leave values equal, and all
_WITH = {
    REAL: "with the loader as it is",
    FREE: "with data always ready",
    EXACT: "with alternatives that change no value",
    ALL: "with all alternatives",
}
LEAST_ROUNDS = 2  # for an interval
_NOTHING = 0.02  # a gain up to this is none
_LITTLE = 0.1  # a possible gain below this needs no interval
_UNEVEN = 0.25  # half an interval's width, from which it says little
WIDE = 5.0  # times the lower end of an interval, which then says next to nothing
MOST = 100.0  # times as fast: from there on, a loop has no step to speak of

# Name of a stall: what it is.
STALLS = {
    "storage": "the part of the wait that is gone when the same samples are read again: their "
    "files, and the caches of the data set",
    "making": "the rest of the wait: samples are read from memory, prepared and collated; they are "
    "sent, too, where delivery has no share of its own",
    "delivery": "the wait that is gone where workers make batches and do not send them: pickling, "
    "the queue, the mapping of their memory, pinning",
    "waiting": "the wait for batches: samples are read, prepared and collated; they are sent, too, "
    "where delivery has no share of its own",
    "interference": "the step is slower while the loader works, or after it has",
    "step": "the training step alone, with data always ready",
}


Round = Mapping[str, FedBlock]  # a block of each kind, measured next to each other


@dataclass(frozen=True)
class Share:
    """The part of the loop's time that a stall has, with its 95 % interval.

    The share of a stall may be negative, where its absence made the loop slower.
    """

    stall: str  # of `STALLS`
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Ceilings:
    """The measurements, as `lotus.tune.session.subprocess_tuning.Measured`."""

    watched: Watched
    rounds: tuple[Round, ...]
    seconds: float
    budget_s: float
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    failure: str = ""  # why nothing could be measured
    refused: Mapping[str, str] = field(default_factory=dict)  # kinds of alternatives, and why
    stopped: str = ""  # why the blocks ended before `budget_s`; "": they did not

    @property
    def speedup(self) -> Speedup | None:
        """The speed-up of the loop with data always ready; None if unknown."""
        return self.over(FREE)

    @property
    def storage_speedup(self) -> Speedup | None:
        """The same with the samples' files in memory."""
        return self.over(SAME)

    def over(self, kind: str) -> Speedup | None:
        """Return the speed with data of a kind over that with the loader as it is."""
        pairs = [
            (1 / each[kind].sample_s, 1 / each[REAL].sample_s)
            for each in self.rounds
            if kind in each
        ]
        return compared(pairs) if len(pairs) >= LEAST_ROUNDS else None

    def shares(self) -> list[Share]:
        """Return the shares of all stalls, which add up to 1; none if they are not known.

        Where some rounds have no block of the same samples, or none that is not sent, only those
        that have one count.
        """
        if self.speedup is None:
            return []
        rounds = [each for each in self.rounds if SAME in each]
        if len(rounds) < LEAST_ROUNDS:
            sent = [each for each in self.rounds if UNSENT in each]
            if len(sent) >= LEAST_ROUNDS and not rounds:  # a stream: no samples are repeated
                return [
                    _share("waiting", sent, lambda each: each[UNSENT].wait_s),
                    _share("delivery", sent, lambda each: each[REAL].wait_s - each[UNSENT].wait_s),
                    *_of_step(sent),
                ]
            return [
                _share("waiting", self.rounds, lambda each: each[REAL].wait_s),
                *_of_step(self.rounds),
            ]
        whole = [each for each in rounds if UNSENT in each]
        if len(whole) < LEAST_ROUNDS:
            return [
                _share("storage", rounds, lambda each: each[REAL].wait_s - each[SAME].wait_s),
                _share("making", rounds, lambda each: each[SAME].wait_s),
                *_of_step(rounds),
            ]
        return [
            _share("storage", whole, lambda each: each[REAL].wait_s - each[SAME].wait_s),
            _share("making", whole, lambda each: each[UNSENT].wait_s),
            _share("delivery", whole, lambda each: each[SAME].wait_s - each[UNSENT].wait_s),
            *_of_step(whole),
        ]

    @property
    def waits_for_storage(self) -> bool:
        """True unless the share of storage was shown to be next to nothing."""
        of_storage = (each for each in self.shares() if each.stall == "storage")
        return all(each.high >= _NOTHING for each in of_storage)

    def rates(self) -> dict[str, float]:
        """Return the mean samples/s with data of each kind that was measured."""
        kinds = dict.fromkeys(kind for each in self.rounds for kind in each)
        return {
            kind: 1 / statistics.mean(each[kind].sample_s for each in self.rounds if kind in each)
            for kind in kinds
        }

    def differ(self, *kinds: str) -> str:
        """Return how far blocks of one kind are apart where they differ too much; "" if not.

        `kinds`: whose speed over that of the loader as it is was to be known.
        """
        shown = [speedup for kind in kinds if (speedup := self.over(kind)) is not None]
        if all(each.precision <= _UNEVEN for each in shown):
            return ""
        ranges = []
        for kind in (REAL, *kinds):
            rates = sorted(1 / each[kind].sample_s for each in self.rounds if kind in each)
            if rates:
                ends = dict.fromkeys([amount(rates[0]), amount(rates[-1])])
                ranges.append(f"{' to '.join(ends)} samples/s {_WITH[kind]}")
        return ", ".join(ranges)

    def sentence(self) -> str:
        """Return the answer in one sentence."""
        shown = self.speedup
        if shown is None:
            return self.failure or "the ceiling is not known: too few blocks were measured"
        always = "with data always ready this loop would be at most"
        if shown.high < 1 + _NOTHING:
            return f"Nothing to gain from the loader: {always} {shown.high:.2f} times as fast"
        if not shown.is_significant and shown.high < 1 + _LITTLE:
            return (
                f"No gain from the loader is shown: {always} {shown.high:.2f} times as fast, and "
                "that it would be faster at all is not significant"
            )
        if shown.low > MOST:
            return (
                "This loop does nothing but wait for data: with data always ready it would be more "
                f"than {MOST:.0f} times as fast"
            )
        least = max(shown.low, 1.0)  # data that is always ready slows nothing down
        if shown.high > WIDE * least:
            return (
                f"W{always[1:]} {least:.3g} to {shown.high:.3g} times as fast: the blocks differ "
                "too much to say more"
            )
        between = factor_between(max(shown.mean, 1.0), least, shown.high)
        text = f"W{always[1:]} {between} times as fast"
        return text if shown.is_significant else f"{text}, which is not significant"

    def notes_on(self) -> list[str]:
        """Return what has to be known besides."""
        apart = self.differ(FREE)
        uneven = (
            f"the blocks differ a lot, as they do while other programs use the cores: {apart}; the "
            "intervals are wide; measure again on a quieter machine, or with a larger --budget"
        )
        return [*self.notes, *([uneven] if apart else []), *self.watched.notes]


def _of_step(rounds: Sequence[Round]) -> list[Share]:
    return [
        _share("interference", rounds, lambda each: each[REAL].step_s - each[FREE].step_s),
        _share("step", rounds, lambda each: each[FREE].sample_s),
    ]


def _share(stall: str, rounds: Sequence[Round], seconds: Callable[[Round], float]) -> Share:
    """Return the share of a stall that takes so many seconds of a sample, and its interval."""
    parts = [seconds(each) / each[REAL].sample_s for each in rounds]
    mean = statistics.mean(parts)
    half = t_quantile(len(parts) - 1) * statistics.stdev(parts) / math.sqrt(len(parts))
    return Share(stall, mean, mean - half, mean + half)
