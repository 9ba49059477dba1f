"""The default search: predict from what few trials show, try what is predicted, race the rest.

At most five different settings are asked for, the program's own counted:

1. the program's own; one worker; then about as many as are predicted to suffice (estimate.py);
2. while trials are left (the last one is kept for what the model does not know, such as pinning,
   where that varies): the cheapest of those predicted to be fastest, or, where that is measured
   already, what could still be better by its bound, found by descending the parameter's AVL tree,
   which is rooted at the predicted optimum. Equal settings are never tried, nor those that the
   problem refuses, nor those whose upper bound lies below what is measured;
3. those that may be the cheapest within 2 % of the best are asked for again, in blocks of
   all of them in random order, until that is sure or the budget is spent.

Settings that differ in `persistent_workers` alone are one loader until an epoch ends: one is
measured, the other worked out by what starting workers takes, and asked for only to be chosen.

Each measurement told is taken for one more block of its setting, by itself; blocks of a setting are
put together here. A setting that fails rules out what is larger in the same respect.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace

from lotus.tune import avl, model
from lotus.tune.epochs import observed_pace
from lotus.tune.space import PARAMETERS, TORCH_PREFETCH, Measurement, Observed, Setting
from lotus.tune.strategies.estimate import Estimate
from lotus.tune.strategies.hypotheses import SHARED, Known
from lotus.tune.strategies.problem import Problem

TRIALS = 5  # different settings
TIE = 0.02  # who is so little slower and cheaper is preferred
AIM = 0.01  # the same, of what is only predicted
WORTH = 0.01  # how much faster a bound must be to be worth a trial
LEISURE = 0.1  # how much below the best a bound may be where there is time
AT_LEISURE = 0.5  # there is, until so much of the budget is spent
ERROR = 0.02  # of a rate, where trials do not tell it (standard deviation of its logarithm)
BLOCKS = 8  # of each setting at most
DEAR = 0.2  # of the budget, for the first trial: then one worker alone is not tried
UNEVEN_BATCHES = 0.5  # variation from which on taking batches in turn may cost much
Z95 = 1.96

# In words, what a prediction calls its bottleneck.
LIMITS = {
    "workers": "the number of workers",
    "cores": "the number of cores",
    "consumer": "the program's own step",
    "pipe": "handing batches over",
    "pin thread": "pinning",
    SHARED: SHARED,
}
# Those that the model does not know: tried at the best setting where trials are left.
UNKNOWN = ("pin_memory", "in_order", "threads", "start_method")


class Lotus:
    """The search described above. Pure: no clock, no chance but from the problem's seed."""

    name = "lotus"

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._chance = random.Random(problem.seed)
        self._blocks: dict[Setting, list[Measurement]] = {}
        self._failed: dict[Setting, Measurement] = {}
        self._names: dict[Setting, Setting] = {}  # the one asked for, of those that are the same
        self._spent = 0.0
        self._round: list[Setting] = []
        self._asked: Setting | None = None
        self._searching, self._done = True, False
        self._estimate: Estimate | None = None
        self._reason = "nothing was asked for yet"
        self._out: dict[str, str] = {}
        self._own = self._same(problem.own)
        self._names[self._own] = problem.own.normal()
        self._candidates = self._all()
        self._space = frozenset(self._candidates)

    # Asking and telling

    def ask(self) -> Setting | None:
        if self._asked is None and not self._done:
            found = self._next()
            if found is None:
                self._done = True
            else:
                self._asked, self._reason = found
        return None if self._asked is None else self._names.get(self._asked, self._asked)

    def tell(self, measurement: Measurement) -> None:
        setting = self._same(measurement.setting)
        self._names.setdefault(setting, measurement.setting.normal())
        self._spent += measurement.seconds
        if measurement.failed or not measurement.samples_per_s > 0:
            self._failed[setting] = measurement
            self._blocks.pop(setting, None)
            self._drop(setting, measurement.failed or "it gave no samples")
        else:
            self._blocks.setdefault(setting, []).append(measurement)
        if setting == self._asked:
            self._asked = None
        self._estimate = None

    def best(self) -> Measurement | None:
        """The cheapest that is within 2 % of the fastest, all its blocks together."""
        chosen = self._chosen()
        if chosen is None:
            return None
        if chosen.setting not in self._blocks:  # its twin alone was told
            loader = _loader(chosen.setting)
            chosen = next(one for one in self._known() if _loader(one.setting) == loader)
        blocks = self._blocks[chosen.setting]
        if len(blocks) == 1 and not any(one in self._blocks for one in _twins(chosen.setting)):
            return blocks[0]
        spread = math.exp(Z95 * chosen.error)
        return replace(
            blocks[-1],
            setting=self._names[chosen.setting],
            samples_per_s=chosen.rate,
            low=chosen.rate / spread,
            high=chosen.rate * spread,
            seconds=sum(block.seconds for block in blocks),
        )

    def reason(self) -> str:
        return self._reason

    def ruled_out(self) -> list[tuple[str, str]]:
        """What was never tried, or not again, and why."""
        return list(self._out.items())

    def predicted(self, setting: Setting) -> model.Prediction | None:
        """What is expected of a setting by all that was told; None before anything was."""
        estimate = self._expected()
        if estimate is None:
            return None
        return replace(estimate.prediction(self._same(setting)), setting=setting.normal())

    # The space

    def _same(self, setting: Setting) -> Setting:
        """One of all settings that make the same loader, or differ in nothing that matters."""
        setting, own, problem = setting.normal(), self.problem.own.normal(), self.problem
        fields = {
            name: None
            for name in ("start_method", "in_order", "threads")
            if getattr(setting, name) == getattr(own, name)
        }
        if not problem.accelerator and False in problem.space.pin_memory:
            fields["pin_memory"] = False  # type: ignore[assignment]
        if problem.batches is not None and setting.num_workers:
            enough = math.ceil(problem.batches / setting.num_workers)
            steps = sorted(p for p in _prefetches(problem.space.prefetch_factor) if p >= enough)
            if steps and (setting.prefetch_factor or 0) > steps[0]:
                fields["prefetch_factor"] = steps[0]  # type: ignore[assignment]
        return replace(setting, **fields).normal()  # type: ignore[arg-type]

    def _all(self) -> list[Setting]:
        """All of the space that is worth a thought, the cheapest first."""
        found: set[Setting] = set()
        equal = 0
        refused: dict[str, list[Setting]] = {}
        for setting in self.problem.space.settings():
            same = self._same(setting)
            if same in found:
                equal += 1
                continue
            why = self.problem.allowed(self._names.get(same, same))
            if why:
                refused.setdefault(why, []).append(same)
            else:
                found.add(same)
                self._names.setdefault(same, setting)
        if equal:
            self._out[f"{equal} settings"] = "they make the same loader as others here"
        for why, settings in refused.items():
            first = words(min(settings))
            more = f" and {len(settings) - 1} more" if len(settings) > 1 else ""
            self._out[first + more] = why
        return sorted(found)

    def _drop(self, failed: Setting, why: str) -> None:
        """What a failure rules out: what is larger in the same respect, if nothing larger works."""
        larger = [
            one for one in self._candidates if one != failed and _larger(one, failed)
        ]  # fmt: skip
        if any(_larger(one, failed) for one in self._blocks):
            larger = []
        gone = {failed, *larger} - set(self._blocks)
        self._candidates = [one for one in self._candidates if one not in gone]
        self._out[words(failed)] = why
        if larger:
            self._out[f"{len(larger)} settings with as much or more than {words(failed)}"] = (
                "as that failed"
            )

    # What was measured

    def _known(self) -> list[Known]:
        """Each setting that works, its blocks put together."""
        told = [_told_error(block) for blocks in self._blocks.values() for block in blocks]
        squares, free = 0.0, 0
        for blocks in self._blocks.values():
            logs = [math.log(block.samples_per_s) for block in blocks]
            mean = statistics.fmean(logs)
            squares += sum((log - mean) ** 2 for log in logs)
            free += len(logs) - 1
        found = []
        for setting, blocks in self._blocks.items():
            before = statistics.fmean(told) if free else _told_error(blocks[0])
            # As if what trials say of themselves came from four blocks.
            variance = (3.0 * before**2 + squares) / (3.0 + free)
            rate = math.exp(statistics.fmean(math.log(b.samples_per_s) for b in blocks))
            error = math.sqrt(variance / len(blocks))
            found.append(Known(setting, rate, error, self._observed(setting)))
        return found

    def _observed(self, setting: Setting) -> Observed | None:
        """What a trial of the loader showed: the last one that showed anything."""
        told = [block for one in _both(setting) for block in self._blocks.get(one, ())]
        return next((one.observed for one in reversed(told) if one.observed is not None), None)

    def _loaders(self) -> list[Known]:
        """Each loader that works, as the better of its twins, whether it was told or not.

        Settings that differ in persistent_workers alone are one loader until an epoch ends: what
        one gives says what the other does, so that noise does not choose between them.
        """
        found: dict[Setting, list[Known]] = {}
        full = len(self._blocks) + len(self._failed) >= TRIALS
        for one in self._known():
            twin = self._twin_of(one)
            if twin is not None and twin.setting not in self._blocks and full:
                twin = None  # it cannot be chosen, as it cannot be told any more
            mine = found.setdefault(_loader(one.setting), [])
            mine += [one] if twin is None else [one, twin]
        return [
            _better(*(_together(s, twins) for s in _settings(twins))) for twins in found.values()
        ]

    def _twin_of(self, one: Known) -> Known | None:
        """The other value of persistent_workers, worked out; None where that cannot be."""
        twin = replace(one.setting, persistent_workers=not one.setting.persistent_workers)
        problem, seen = self.problem, one.observed
        if not twin.num_workers or twin not in self._space:
            return None
        if problem.batches is None:
            return replace(one, setting=twin)
        if seen is None:
            return None
        epoch_s = problem.batches * problem.samples / one.rate
        each = min(max(seen.capacity_s, problem.step_s + seen.get_s), epoch_s / problem.batches)
        pace = observed_pace(twin.num_workers, each, seen, problem.step_s)
        kept = pace.epoch_s(problem.batches)
        saved = pace.epoch_s(problem.batches, seen.startup_s, seen.shutdown_s) - kept
        if twin.persistent_workers:
            other = max(epoch_s - max(saved, 0.0), min(kept, epoch_s) / 2)  # both are noisy
        else:
            other = epoch_s + max(saved, 0.0)
        return replace(one, setting=twin, rate=problem.batches * problem.samples / other)

    def _chosen(self) -> Known | None:
        """The cheapest within 2 % of the fastest; perhaps one that is only worked out."""
        known = self._loaders()
        if not known:
            return None
        most = max(one.rate for one in known)
        return min(
            (one for one in known if one.rate >= (1.0 - TIE) * most),
            key=lambda one: _cost(one.setting),
        )

    def _expected(self) -> Estimate | None:
        if self._estimate is None and self._blocks:
            derived = [twin for one in self._known() if (twin := self._twin_of(one)) is not None]
            self._estimate = Estimate(self.problem, self._known(), derived)
        return self._estimate

    # What comes next

    def _next(self) -> tuple[Setting, str] | None:
        tried = len(self._blocks) + len(self._failed)
        best = self._chosen()
        if best is not None and best.setting not in self._blocks:
            tried += 1  # its twin is kept a place
        if tried == 0 and not self.problem.allowed(self._names[self._own]):
            return self._own, "the program's own setting, against which the others are held"
        if self._searching and tried < TRIALS and self._affordable():
            found = self._profile()
            if found is None and tried == TRIALS - 1:
                found = self._unknown()  # so that it has its turn
            found = found or self._target() or self._explore(1.0 + WORTH) or self._unknown()
            if found is None and self._spent < AT_LEISURE * self.problem.budget_s:
                found = self._explore(1.0 - LEISURE)
            if found is not None:
                return found
        if self._searching:
            self._searching = False
            self._prune()
        return self._told_twin() or self._race()

    def _told_twin(self) -> tuple[Setting, str] | None:
        """The setting to choose, where only its twin was told: what is chosen is measured."""
        best, told = self._chosen(), len(self._blocks) + len(self._failed)
        if best is None or best.setting in self._blocks or told >= TRIALS:
            return None
        if best.setting not in self._candidates or not self._affordable():
            return None
        value = "persistent_workers" if best.setting.persistent_workers else "new workers"
        return best.setting, f"the same loader with {value}, by what starting workers takes"

    def _prune(self) -> None:
        """Name what was not tried, as it cannot be the fastest by its bound."""
        estimate, best = self._expected(), self._chosen()
        if estimate is None or best is None:
            return
        least = estimate.guess(best.setting).low
        known = {*self._blocks, *self._failed}
        loaders = {_loader(one) for one in known}
        slow = [estimate.guess(one).high for one in self._candidates if _loader(one) not in loaders]
        slow = [high for high in slow if high < least]
        if slow:
            self._out[f"{len(slow)} settings that were not tried"] = (
                f"predicted to reach at most {max(slow) / best.rate:.0%} of {words(best.setting)}"
            )

    def _affordable(self) -> bool:
        """Whether a trial like the dearest so far still fits in the budget."""
        most = [sum(b.seconds for b in blocks[:1]) for blocks in self._blocks.values()]
        most += [one.seconds for one in self._failed.values()]
        return self._spent + max(most, default=0.0) <= self.problem.budget_s

    def _profile(self) -> tuple[Setting, str] | None:
        """One worker, where no other trial tells what a batch takes."""
        if any(s.num_workers <= 1 for s in (*self._blocks, *self._failed)):
            return None
        if self._blocks and self._spent > DEAR * self.problem.budget_s:
            return None  # the slowest of all would take what is left
        ones = [one for one in self._candidates if one.num_workers == 1]
        if not ones:
            return None
        like = self._own.prefetch_factor or TORCH_PREFETCH
        one = min(
            ones,
            key=lambda s: (
                self._strange(s),
                abs((s.prefetch_factor or TORCH_PREFETCH) - like),
                s,
            ),
        )
        return one, "one worker alone tells what a batch takes, without contention"

    def _target(self) -> tuple[Setting, str] | None:
        """The cheapest of those predicted to be fastest, if it is not measured yet."""
        estimate = self._expected()
        pool = {*self._candidates, *self._blocks}
        if estimate is None:
            return (self._candidates[0], "nothing has worked yet") if self._candidates else None
        rates = {one: estimate.guess(one).rate for one in pool}
        most = max(rates.values())
        target = min(
            (one for one, rate in rates.items() if rate >= (1.0 - AIM) * most),
            key=lambda one: (
                one.num_workers,
                self._strange(one),
                _rarity(one.prefetch_factor),
                one,
            ),
        )
        best = self._chosen()
        target = self._cheaper_twin(target, rates)
        if self._was_told(target) or (best is not None and self._twin(target, best.setting)):
            return None
        gain = rates[target] / best.rate - 1.0 if best else 0.0
        if best is None or gain >= AIM:
            held = LIMITS.get(estimate.prediction(target).bottleneck, "the machine")
            return target, f"predicted to be {gain:.0%} faster than the best so far; {held} decides"
        if target < best.setting:
            return target, f"predicted to be as fast as {words(best.setting)} at less cost"
        return target, f"predicted to be as fast as {words(best.setting)}"

    def _explore(self, worth: float) -> tuple[Setting, str] | None:
        """What may reach `worth` times the best rate by its bound, in the middle of such."""
        estimate, best = self._expected(), self._chosen()
        if estimate is None or best is None:
            return None
        found: list[tuple[float, Setting, str]] = []
        for name in ("num_workers", "prefetch_factor", "persistent_workers"):
            line = self._line(best.setting, name)
            if name == "num_workers":
                line += [one for one in self._candidates if not one.num_workers]
            line = [one for one in line if not self._was_told(one)]
            if name == "prefetch_factor":  # one batch ahead gains nothing but by chance
                line = [one for one in line if one.prefetch_factor != 1]
            bounds = {one: estimate.guess(one) for one in line}
            alive = sorted(one for one in line if bounds[one].high > worth * best.rate)
            below = [i for i, one in enumerate(alive) if one < best.setting]
            above = [i for i, one in enumerate(alive) if one > best.setting]
            for side in (below, above):
                if side:
                    one = alive[avl.tree(side).value]
                    found.append((bounds[one].high, one, name))
        if not found:
            return None
        high, one, name = max(found, key=lambda each: (each[0], each[1]))
        if high < (1.0 + WORTH) * best.rate:
            return one, f"another {name} than those tried, to be sure: there is time for it"
        return one, (
            f"what another {name} brings is not known well: "
            f"it may be up to {high / best.rate - 1:.0%} faster"
        )

    def _strange(self, setting: Setting) -> int:
        """In how many parameters that the model does not know it differs from the own setting."""
        return sum(getattr(setting, name) != getattr(self._own, name) for name in UNKNOWN)

    def _twin(self, one: Setting, other: Setting) -> bool:
        """Whether two settings differ in nothing that the model knows."""
        return all(
            getattr(one, name) == getattr(other, name) for name in PARAMETERS if name not in UNKNOWN
        )

    def _unknown(self) -> tuple[Setting, str] | None:
        """The best setting with a value that no trial had, of what the model does not know."""
        best = self._chosen()
        if best is None:
            return None
        for name in self._promising():
            for one in self._line(best.setting, name):
                value = getattr(one, name)
                if not any(
                    getattr(other, name) == value for other in (*self._blocks, *self._failed)
                ):
                    return one, f"whether {name} {value} is faster only a trial tells"
        return None

    def _was_told(self, setting: Setting) -> bool:
        """Whether a setting was told, or can be worked out from its twin."""
        estimate = self._expected()
        return setting in self._blocks or (estimate is not None and setting in estimate.known)

    def _cheaper_twin(self, setting: Setting, rates: Mapping[Setting, float]) -> Setting:
        """New workers for each epoch where persistent ones bring too little."""
        other = replace(setting, persistent_workers=False)
        return other if rates.get(other, 0.0) >= (1.0 - TIE) * rates[setting] else setting

    def _promising(self) -> tuple[str, ...]:
        """What the model does not know, that first which may bring most: there are few trials."""
        seen = [self._observed(one) for one in self._blocks]
        varies = max((one.variation for one in seen if one is not None), default=0.0)
        if varies < UNEVEN_BATCHES:
            return UNKNOWN
        return ("in_order", *(name for name in UNKNOWN if name != "in_order"))

    def _line(self, setting: Setting, name: str) -> list[Setting]:
        """Candidates that differ from a setting in nothing but one parameter."""
        blank = {name: getattr(setting, name)}
        return [
            one
            for one in self._candidates
            if one != setting and one.num_workers and replace(one, **blank) == setting
        ]

    def _race(self) -> tuple[Setting, str] | None:
        """Who is measured again: all that may be the one to choose, in rounds of random order."""
        self._round = [one for one in self._round if self._ask_for(one) is not None]
        if not self._round:
            self._round, why = self._contenders()
            if not self._round:
                self._reason = why
                return None
            self._chance.shuffle(self._round)
        one = self._ask_for(self._round[-1])
        if one is None or self._spent + self._blocks[one][-1].seconds > self.problem.budget_s:
            self._reason = "the budget is spent, with others too close to tell apart"
            return None
        self._round.pop()
        return one, "it may be the one to choose: measured again, in turn with the others"

    def _contenders(self) -> tuple[list[Setting], str]:
        """Those between which another block of each may decide; none, and why it is decided."""
        best = self._chosen()
        if best is None:
            return [], "nothing that was tried has worked"
        known = self._loaders()
        most = max(one.rate for one in known)
        found, unsure = [best.setting], False
        for one in known:
            if _loader(one.setting) == _loader(best.setting):
                continue
            wide = Z95 * math.hypot(one.error, best.error)
            if math.log(one.rate / most) + wide > math.log(1.0 - TIE):
                found.append(one.setting)
                unsure = unsure or wide > TIE
        if len(found) == 1:
            return [], f"{words(best.setting)}: all others that were tried are slower"
        if not unsure:
            return [], f"{words(best.setting)}: no other is cheaper, or faster by more than 2 %"
        if min(len(self._told_blocks(one)) for one in found) >= BLOCKS:
            return [], f"{words(best.setting)}: others are too close to tell apart"
        return found, ""

    def _told_blocks(self, setting: Setting) -> list[Measurement]:
        return [block for one in _both(setting) for block in self._blocks.get(one, ())]

    def _ask_for(self, setting: Setting) -> Setting | None:
        """Of a setting and its twin the one that was told; None where neither was."""
        return next((one for one in _both(setting) if one in self._blocks), None)


def _loader(setting: Setting) -> Setting:
    """The setting that stands for a loader until an epoch ends."""
    return replace(setting, persistent_workers=False)


def _twins(setting: Setting) -> tuple[Setting, ...]:
    return (replace(setting, persistent_workers=not setting.persistent_workers),)


def _both(setting: Setting) -> tuple[Setting, ...]:
    """A setting and its twin."""
    return (setting, *_twins(setting)) if setting.num_workers else (setting,)


def _settings(known: Iterable[Known]) -> list[Setting]:
    return list(dict.fromkeys(one.setting for one in known))


def _together(setting: Setting, known: Iterable[Known]) -> Known:
    """All that is known of one setting, told and worked out, weighed by how sure it is."""
    some = [one for one in known if one.setting == setting]
    weights = [one.error**-2 for one in some]
    log = sum(w * math.log(one.rate) for w, one in zip(weights, some, strict=True)) / sum(weights)
    return replace(some[0], rate=math.exp(log), error=sum(weights) ** -0.5)


def _better(*twins: Known) -> Known:
    """Of twins the faster one; without persistent workers where it is as fast."""
    most = max(one.rate for one in twins)
    return min((o for o in twins if o.rate >= (1.0 - TIE) * most), key=lambda o: _cost(o.setting))


def words(setting: Setting) -> str:
    """A setting in a few words."""
    said = [f"{setting.num_workers} workers" if setting.num_workers != 1 else "1 worker"]
    if setting.num_workers:
        said.append(f"prefetch {setting.prefetch_factor or TORCH_PREFETCH}")
    for name in PARAMETERS[2:]:
        value = getattr(setting, name)
        if value is True:
            said.append(name)
        elif value not in (False, None) or (value is False and name == "in_order"):
            said.append(f"{name} {value}")
    return ", ".join(said)


def _prefetches(values: Iterable[int | None]) -> list[int]:
    return [TORCH_PREFETCH if value is None else value for value in values]


def _rarity(prefetch: int | None) -> tuple[bool, int]:
    """One batch ahead leaves no slack for what no model knows: the last that is only predicted."""
    return (prefetch == 1, prefetch or 0)


def _cost(setting: Setting) -> tuple[int, tuple[bool, int], Setting]:
    """What is preferred of equals: the least."""
    return (setting.num_workers, _rarity(setting.prefetch_factor), setting)


def _larger(one: Setting, other: Setting) -> bool:
    """Whether a setting needs at least as much of everything as another one."""
    return (
        one.start_method == other.start_method
        and one.num_workers >= other.num_workers
        and (one.prefetch_factor or 0) >= (other.prefetch_factor or 0)
        and one.pin_memory >= other.pin_memory
    )


def _told_error(block: Measurement) -> float:
    """The standard deviation of the logarithm of its rate, by its own interval."""
    if 0 < block.low < block.high:
        return max(math.log(block.high / block.low) / (2.0 * Z95), 1e-4)
    return ERROR
