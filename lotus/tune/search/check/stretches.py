"""Trains with several settings in turn, and compares their speeds over an epoch.

Each round has a stretch of every setting, and every other round goes through them backwards, so
that a machine that becomes steadily busier or calmer favours none.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Protocol

from lotus.common.torch_defaults import TORCH_PREFETCH
from lotus.inside.tune.candidates.trial_requests import Reply, Request, Train
from lotus.settings.space import Setting
from lotus.tune.program.program import TrialError, Watched
from lotus.tune.search.check.round_timings import LEAST_BATCHES, Timings, speedup
from lotus.tune.search.outcome import search_notes
from lotus.tune.search.outcome.decision import is_faster, may_gain
from lotus.tune.search.trials.trial_rates import Checked
from lotus.tune.strategies.preference import TIE

_STRETCH_S, _SHORTEST_S = 2.0, 0.5  # longest and shortest intended duration of a stretch
_ROUNDS = 4  # that the time is divided into, and the fewest before the check may end by itself
_LEAST_ROUNDS = 2  # for an interval
_LONGEST = 1.5  # times the intended duration, where settings differ in threads
_LEAST, _MOST = 8, 400  # batches of a stretch
_FEW = LEAST_BATCHES + 1  # batches that a stretch needs where the time of others runs out
_HOPELESS = 0.4  # of the best one's speed: a setting this slow is not tried again
_PRECISE = 0.03  # half the interval's width over the mean, at which the check ends


class Trains(Protocol):
    """A program that can train on for a while, as
    `lotus.tune.session.program_pipe.PipedProgram` does.
    """

    watched: Watched
    problem: str  # why it has ended, or ""

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply: ...


class Stretches:
    """Stretches of training with the own setting and others, in turn.

    `settings` are compared in this order, the own one among them; a setting that proves slower than
    another one is not trained with again. Training takes `seconds`, and up to twice as long if few
    rounds fit, or they leave open whether the most promising setting gains.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        own: Setting,
        program: Trains,
        seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self.settings, self.own, self.program = list(settings), own, program
        self.seconds, self.clock = seconds, clock
        self.until = clock() + seconds
        self.timings = {setting: Timings() for setting in settings}
        self.rounds = 0  # complete ones
        self.refused: dict[Setting, str] = {}  # settings that could not be trained with, and why
        watched = program.watched
        self.left = left_of(watched)
        self.in_flight = _in_flight(own)
        times = [wait + step for wait, step in zip(watched.waits_s, watched.steps_s, strict=False)]
        self.batch_s = statistics.median(times) if times else 0.0  # an estimate with warm-up
        self.stretch_s = _stretch_s(len(settings), seconds)
        self._took: dict[Setting, float] = {}  # seconds of the last stretch of each
        # Stretches still to come that have to fit into this epoch, the next one first.
        self._planned = _planned(self.settings, own, watched)

    def beyond_epoch(self) -> bool:
        """Return whether the program was given more batches than its epoch has."""
        return self.program.watched.endless and self.left < 0

    def untried(self) -> list[Setting]:
        """Return the settings that have not been trained with."""
        tried = {*self._took, *self.refused}
        return [setting for setting in self.timings if setting not in tried]

    def replace(self, setting: Setting, other: Setting) -> None:
        """Train with `other` in place of an untried setting."""
        if other in self.timings:
            return
        for settings in (self.settings, self._planned):
            settings[:] = [other if each == setting else each for each in settings]
        self.timings = {
            other if key == setting else key: value for key, value in self.timings.items()
        }

    def step_s(self, setting: Setting) -> float | None:
        """Return the median seconds of a step with a setting; None if none was measured."""
        steps = self.timings[setting].steps
        return statistics.median(steps) if steps else None

    def run(
        self,
        on_stretch: Callable[[Setting], object] | None,
        measured: Callable[[Setting], object] | None = None,
    ) -> None:
        """Train with each setting in turn, as long as time and epoch allow and it is not decided.

        `on_stretch` is called with a setting before it is trained with, `measured` afterwards.
        """
        while len(self.settings) > 1 and not self._is_decided():
            turns = range(len(self.settings))
            for turn in reversed(turns) if self.rounds % 2 else turns:
                setting = self.settings[turn]
                if not self._trains(setting, on_stretch):
                    return
                if measured is not None:
                    measured(setting)
            self.rounds += 1
            self._drop([setting for setting in self.settings if setting in self.refused])
            self._drop_slower()

    def _trains(self, setting: Setting, on_stretch: Callable[[Setting], object] | None) -> bool:
        """Train with a setting for a stretch; return whether another one may follow."""
        if setting in self.refused:
            return True
        if self._is_of_other_loader(setting):
            return self._refuses(setting, search_notes.STREAM)
        start = self.clock()
        until = self.until + (self.seconds if self._is_open() else 0.0)
        if start + self._took.get(setting, 0.0) >= until:
            return False
        batches = self._batches(setting)
        if batches < LEAST_BATCHES:
            return False
        if on_stretch is not None:
            on_stretch(setting)
        seconds = min(until - start, self._longest_s(setting))
        request = Train(batches, discard=setting.num_workers, seconds=seconds)
        try:
            trained = self.program.perform(setting, request)
            if trained.refused:
                raise TrialError(trained.refused)
        except TrialError as error:
            if self.program.problem or setting == self.own:
                raise
            return self._refuses(setting, str(error))
        self._took[setting] = self.clock() - start
        self.left -= trained.passed
        self.in_flight = _in_flight(setting)
        self.timings[setting].add(self.rounds, trained)
        del self._planned[:1]
        return not trained.over

    def _is_of_other_loader(self, setting: Setting) -> bool:
        """Return whether the loader of a stream would have to change for a setting."""
        loader = dataclasses.replace(setting, torch_threads=self.own.torch_threads)
        return self.program.watched.iterable and loader != self.own

    def _refuses(self, setting: Setting, why: str) -> bool:
        """Note why a setting cannot be trained with; return whether others are left to compare."""
        self.refused[setting] = why
        return len(self.settings) > len(self.refused) + 1

    def _is_open(self) -> bool:
        """Return True if more rounds than fit into the time may be worth it."""
        if self.rounds < _ROUNDS:
            return True
        shown = [self.compared(setting) for setting in self.settings if setting != self.own]
        gains = [each.speedup for each in shown if each is not None and may_gain(each.speedup)]
        # Twice the time hardly narrows an interval that tells nothing after some rounds.
        may_tell = any(not each.tells_nothing for each in gains)
        return may_tell and not any(is_faster(each) for each in gains)

    def _longest_s(self, setting: Setting) -> float:
        """Return the longest duration of a stretch.

        Other work on the machine makes steps with many threads many times as long. A stretch of
        them must leave time to the settings with fewer threads.
        """
        if all(each.torch_threads is None for each in self.timings):
            return math.inf
        uncounted = self.in_flight + setting.num_workers
        longest_s = max(_LONGEST * self.stretch_s, (_FEW + uncounted) * self.batch_s)
        return longest_s * (2 if setting.num_workers else 1)  # workers have to start

    def _is_decided(self) -> bool:
        """Return True if the speed-ups of all remaining settings are known precisely."""
        shown = [self.compared(setting) for setting in self.settings if setting != self.own]
        return self.rounds >= _ROUNDS and all(
            each is not None and each.speedup.precision <= _PRECISE for each in shown
        )

    def _drop_slower(self) -> None:
        """Leave out settings that are slower than the best one, so that others get the time."""
        shown = {setting: self.compared(setting) for setting in self.settings}
        best = max(
            self.settings, key=lambda setting: each.speedup.mean if (each := shown[setting]) else 0
        )
        for setting in [each for each in self.settings if each not in (best, self.own)]:
            beside = self.compared(setting, best)
            if beside is None:
                continue
            if beside.speedup.high < 1 - TIE or beside.speedup.mean < _HOPELESS:
                self._drop([setting])

    def _drop(self, those: Sequence[Setting]) -> None:
        """Train no more with these settings."""
        self.settings = [each for each in self.settings if each not in those]
        self._planned = [each for each in self._planned if each not in those]

    def _batches(self, setting: Setting) -> int:
        """Return how many batches the next stretch has, limited by its time and by the epoch."""
        seen = self.timings[setting].times
        mean = statistics.mean(seen) if seen else self.batch_s
        wanted = max(_LEAST, min(int(self.stretch_s / mean), _MOST)) if mean > 0 else _LEAST
        spare = self.left - self.in_flight - 1 - setting.num_workers
        if self._planned:  # leave as many for the next ones
            later = self._planned[1:]
            spare = (spare - _passed(setting, later)) / (1 + len(later))
        elif self.program.watched.endless:
            spare = math.inf
        return int(min(wanted, max(spare, 0)))

    def compared(self, setting: Setting, other: Setting | None = None) -> Checked | None:
        """Return the speed-up over the own setting, or another one, over an epoch.

        None if they were not both trained with in the same round.
        """
        other = self.own if other is None else other
        sides = [(each, self.timings[each]) for each in (setting, other)]
        shown = speedup(sides[0], sides[1], self.program.watched.batches)
        if shown is None:
            return None
        counts = [
            sum(len(timings.rounds[number].times) for number in shown[1]) for _, timings in sides
        ]
        return Checked(setting, shown[0], *counts)


def affordable(
    settings: Sequence[Setting], optional: Sequence[Setting], watched: Watched, seconds: float
) -> list[Setting]:
    """Return `settings` and the first of `optional` for which time and epoch suffice."""
    taken, left = list(settings), left_in(watched)
    times = [wait + step for wait, step in zip(watched.waits_s, watched.steps_s, strict=False)]
    least_s = _FEW * (statistics.median(times) if times else 0.0)
    for setting in optional:
        several = [*taken, setting]
        in_turn = _in_turn(several, _LEAST_ROUNDS)
        passed = _passed(watched.setting, in_turn) + len(in_turn) * _FEW
        if passed > left or len(several) * max(_LEAST_ROUNDS * _SHORTEST_S, least_s) > seconds:
            break
        taken = several
    return taken


def _in_turn(settings: Sequence[Setting], rounds: int) -> list[Setting]:
    """Return the order of stretches in so many rounds."""
    turns = (settings[:: -1 if number % 2 else 1] for number in range(rounds))
    return list(itertools.chain.from_iterable(turns))


def _planned(settings: Sequence[Setting], own: Setting, watched: Watched) -> list[Setting]:
    """Return the stretches that have to share what is left of the epoch: as many rounds as fit.

    None have to where the epoch is long, or begins again at its end and two rounds do not fit.
    """
    left = left_of(watched)
    if math.isinf(left):
        return []
    least = _LEAST if watched.endless else LEAST_BATCHES
    for rounds in range(_ROUNDS, _LEAST_ROUNDS - 1, -1):
        in_turn = _in_turn(settings, rounds)
        if _passed(own, in_turn) + len(in_turn) * least <= left:
            return in_turn
    return [] if watched.endless else _in_turn(settings, _LEAST_ROUNDS)


def _stretch_s(settings: int, seconds: float) -> float:
    """Return the duration of a stretch, so that there are some rounds of several settings."""
    return min(_STRETCH_S, max(_SHORTEST_S, seconds / ((_ROUNDS + 0.5) * settings)))


def _passed(before: Setting, later: Sequence[Setting]) -> int:
    """Return how many batches pass uncounted before the stretches of settings."""
    pairs = itertools.pairwise([before, *later])
    return sum(_in_flight(former) + 1 + setting.num_workers for former, setting in pairs)


def left_of(watched: Watched) -> float:
    """Return the number of batches left of the epoch that the program is in; inf: not known.

    A stream with a length is compared over several epochs, too.
    """
    if watched.batches is None or watched.iterable:
        return math.inf
    return max(watched.batches - len(watched.waits_s) - len(watched.alone_s), 0)


def left_in(watched: Watched) -> float:
    """Return the number of batches until the epoch ends; inf: unknown, or it begins again."""
    return math.inf if watched.endless else left_of(watched)


def fitting(best: Setting, own: Setting, watched: Watched) -> Setting:
    """Return the setting to compare with the own one: less prefetching in a short epoch."""
    passed = _in_flight(own) + _in_flight(best) + 2 + best.num_workers + own.num_workers
    if not best.num_workers or left_in(watched) >= passed + 2 * _LEAST:
        return best
    fewer = min(best.prefetch_factor or TORCH_PREFETCH, TORCH_PREFETCH)
    return dataclasses.replace(best, prefetch_factor=fewer)


def _in_flight(setting: Setting) -> int:
    """Return how many batches are requested from the workers before the first is taken."""
    return setting.num_workers * (setting.prefetch_factor or TORCH_PREFETCH)
