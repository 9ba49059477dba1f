"""What a DataLoader would do, by formula: quick enough for a whole space of settings, with bounds.

The rate is the least of what the workers, the cores, the pipe, the pin thread and the consumer
can do each alone (the bottleneck law), less what variation costs where batches are taken in turn
and a queue of workers x prefetch runs empty. The simulator (loader_simulation.py) is the more exact
one; this says what is not worth a trial.
Times are seconds per batch on a core that is not shared, rates are batches per second.
"""

import math
from dataclasses import dataclass

from lotus.settings.space import Setting
from lotus.tune.simulation import turn_taking
from lotus.tune.simulation.epoch_time import Pace

# Found with the simulator at 1 to 2 times as many workers as cores: 0.25 to 0.31.
CROWDED = 0.3


@dataclass(frozen=True)
class Scaling:
    """How much slower each of n cores is when all are busy (Gunther's Universal Scalability Law).

    slowdown(n) = 1 + sigma (n - 1) + kappa n (n - 1): waiting for what is shared, and exchange of
    every core with every other one (caches, memory).
    """

    sigma: float = 0.0
    kappa: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.sigma < math.inf and 0 <= self.kappa < math.inf):
            raise ValueError("sigma and kappa must be finite and at least 0")

    def slowdown(self, busy: float) -> float:
        """How many times as long work takes with so many cores busy."""
        more = max(busy - 1.0, 0.0)
        return 1.0 + self.sigma * more + self.kappa * busy * more


def fit(busy: float, gain: float, coherence: float = 0.5) -> Scaling:
    """The scaling under which `busy` cores do `gain` times the work of one.

    One such point leaves open how the loss divides: `coherence` is the part that kappa has of it
    there. 0 and 1 are the bounds: beyond `busy` sigma alone is the best case, below it the worst.
    More gain than cores is none lost.
    """
    if not (busy > 1 and gain > 0 and 0 <= coherence <= 1):
        raise ValueError("a scaling needs more than one busy core and a gain above 0")
    lost = max(busy / gain - 1.0, 0.0) / (busy - 1.0)
    return Scaling(lost * (1.0 - coherence), lost * coherence / busy)


@dataclass(frozen=True)
class Stages:
    """What each part of a loader takes for a batch, as measured with one worker."""

    cpu_s: float  # of a fetch with its collate
    wait_s: float = 0.0  # of a fetch, for storage or anything else that is no core
    send_s: float = 0.0  # CPU time of the worker to hand a batch over
    write_s: float = 0.0  # the part of it in which no other worker can write to the pipe
    get_s: float = 0.0  # to take a batch from the pipe: the main process, or the pin thread
    pin_s: float = 0.0  # to copy it into pinned memory; 0: it is never pinned
    step_s: float = 0.0  # of the consumer
    step_pinned_s: float | None = None  # the same with pinned batches; None: no other
    step_cores: float = 1.0  # that the step keeps busy
    iter_s: float = 0.0  # of `iter()` besides the workers
    spawn_s: float = 0.0  # of the main process, for each worker
    boot_s: float = 0.0  # CPU time of a worker until it asks for its first index
    first_s: float = 0.0  # CPU time that the first batch of a process takes more
    shutdown_s: float = 0.0  # of the main process, while workers end side by side
    # Standard deviation over mean of the times of fetches and of steps.
    fetch_variation: float = 0.0
    step_variation: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}: it must be finite and at least 0")
        if not self.cpu_s + self.wait_s > 0:
            raise ValueError("a fetch must take some time")
        if self.write_s > self.send_s:
            raise ValueError("write_s is a part of send_s")


@dataclass(frozen=True)
class Prediction:
    """What one setting brings; the rates are those after the start, and without its end."""

    setting: Setting
    batches_per_s: float
    low: float  # the scaling's and the queue's worst case
    high: float  # and their best: no trial can show more if the times are right
    bottleneck: str  # "workers", "cores", "pipe", "pin thread" or "consumer"
    first_batch_s: float
    setup_s: float  # of each epoch whose workers are new: first batch and end of the workers
    fetch_s: float = 0.0  # of a worker with a batch
    taken_s: float = 0.0  # the least between two batches, for the main process
    step_s: float = 0.0

    def epoch_s(self, batches: int, epochs: int = 1) -> float:
        """Mean time of an epoch of so many batches; persistent workers start in the first only."""
        each = 1.0 / self.batches_per_s
        pace = Pace(self.setting.num_workers, each, self.fetch_s, self.taken_s, self.step_s)
        first, end = self.first_batch_s, self.setup_s - self.first_batch_s
        anew = pace.epoch_s(batches, first, end)
        if not self.setting.persistent_workers:
            return anew
        return (anew + (epochs - 1) * pace.epoch_s(batches)) / epochs


def predict(
    setting: Setting, stages: Stages, cores: float, scalings: tuple[Scaling, ...] = (Scaling(),)
) -> Prediction:
    """Return what `setting` would do on so many cores.

    `scalings`: the expected one first, then others that the measurements allow, for the bounds.
    """
    if not cores > 0:
        raise ValueError("cores must be above 0")
    if not scalings:
        raise ValueError("a prediction needs a scaling")
    setting = setting.normal()
    variation = stages.fetch_variation
    worst = in_turn(setting, variation, 2.0)
    best = [_rates(setting, stages, cores, one) for one in scalings]
    rates, slow = _settled(setting, stages, cores, scalings[0], best[0])
    expected = _with_queue(setting, rates, stages.step_variation)
    slowed = [
        {name: r * (worst if name == "workers" else 1.0) for name, r in one.items()} for one in best
    ]
    pessimist = min(_with_queue(setting, one, 1.0) for one in slowed)
    optimist = max(_with_queue(setting, one, 0.0) for one in best)
    first = _first_batch(setting, stages, cores, scalings[0])
    fetch = stages.cpu_s + stages.send_s
    step = _step(setting, stages)
    ends = max(setting.num_workers / cores, 1.0) if setting.num_workers else 0.0
    return Prediction(
        setting=setting,
        batches_per_s=expected,
        low=min(pessimist, expected),
        high=max(optimist, expected),
        bottleneck=min(rates, key=lambda name: rates[name]),
        first_batch_s=first,
        setup_s=first + stages.shutdown_s * ends,
        fetch_s=fetch * slow + stages.wait_s,
        taken_s=step + stages.get_s * slow,
        step_s=step,
    )


def starved(made: float, taken: float, depth: int) -> float:
    """Probability that a queue of `depth` batches is empty when the consumer comes for one.

    Batches come at rate `made` and are taken at rate `taken`, both at random: M/M/1 with `depth`
    places, as in tf.data's model: (1 - x) / (1 - x^(depth + 1)) with x = made / taken.
    """
    if made <= 0:
        return 1.0
    log = math.log(made) - math.log(taken)
    if abs(log) * (depth + 1) < 1e-6:
        return 1.0 / (depth + 1)
    if log * (depth + 1) > 700:
        return 0.0
    return math.expm1(log) / math.expm1(log * (depth + 1))


def in_turn(setting: Setting, variation: float, coefficient: float) -> float:
    """The part of the workers' rate that is left where a slow batch keeps the others waiting.

    Batches are taken in turn, so a worker may be `prefetch_factor` batches ahead of the slowest and
    no more. The loss is near variation^2 (1/2 + 1/3 + ... + 1/workers) / prefetch: found by
    recursion of exact start times with gamma distributed ones, over 2 to 32 workers, prefetch 1 to
    16 and variations of 0.25 to 1, with a factor of 0.65 to 1.8, larger where variation is small.
    """
    if setting.num_workers < 2 or setting.in_order is False:
        return 1.0
    others = sum(1.0 / place for place in range(2, setting.num_workers + 1))
    # From 2 on a second worker would make it slower, which it does not.
    factor = min(coefficient * variation * variation / (setting.prefetch_factor or 1), 2.0)
    return 1.0 / (1.0 + factor * others)


def _in_their_turn(setting: Setting, rates: dict[str, float], variation: float) -> dict[str, float]:
    """The same with what the workers have left where batches are taken in turn (turn_taking.py)."""
    if not setting.num_workers or setting.in_order is False:
        return rates
    workers, consumer = rates["workers"], rates["consumer"]
    ratio = workers / consumer if math.isfinite(workers) else math.inf
    prefetch = setting.prefetch_factor or 1
    left = turn_taking.kept(setting.num_workers, prefetch, variation, ratio) * min(
        workers, consumer
    )
    return {
        **rates,
        "workers" if workers <= consumer or left < 0.9 * consumer else "consumer": left,
    }


def rate_with_queue(made: float, taken: float, depth: int, variation: float) -> float:
    """The rate of a producer and a consumer with a queue between them.

    Without variation it is the slower one's; where times vary as much as their mean (1, or more)
    the queue runs empty as `starved` says; in between the loss grows with the variance.
    """
    steady = min(made, taken)
    if math.isinf(taken) or math.isinf(made):
        return steady
    log = math.log(made) - math.log(taken)
    if log < -1e-9:  # the same as below, without the difference of nearly equal numbers
        random = made * math.expm1(depth * log) / math.expm1((depth + 1) * log)
    else:
        random = taken * (1.0 - starved(made, taken, depth))
    return steady - min(variation * variation, 1.0) * max(steady - random, 0.0)


def _step(setting: Setting, stages: Stages) -> float:
    if setting.pin_memory and stages.pin_s and stages.step_pinned_s is not None:
        return stages.step_pinned_s
    return stages.step_s


def _inverse(seconds: float) -> float:
    return 1.0 / seconds if seconds > 0 else math.inf


def _settled(
    setting: Setting, stages: Stages, cores: float, scaling: Scaling, rates: dict[str, float]
) -> tuple[dict[str, float], float]:
    """The rates, batches taken in turn, and how much slower cores are at that.

    `rates` are those with workers that are never idle. Idle ones slow no other core down, so
    the number of busy ones and the rate are found from each other.
    """
    variation, step = stages.fetch_variation, _step(setting, stages)
    fetch = stages.cpu_s + stages.send_s
    wanted = setting.num_workers * fetch / (fetch + stages.wait_s)
    wanted += min(stages.step_cores, 1.0) if step else 0.0
    settled, busy = _in_their_turn(setting, rates, variation), min(wanted, cores)
    computing = fetch + stages.get_s + step * stages.step_cores
    for _ in range(6):
        slow = scaling.slowdown(busy)
        now = min(settled.values()) * computing * slow
        if slow < 1.01 or now > 0.9 * busy:
            break
        busy = now**0.75 * busy**0.25
        rates = _rates(setting, stages, cores, scaling, busy)
        settled = _in_their_turn(setting, rates, variation)
    return settled, scaling.slowdown(busy)


def _rates(
    setting: Setting,
    stages: Stages,
    cores: float,
    scaling: Scaling,
    busy: float = math.inf,
) -> dict[str, float]:
    """What each part could do if the others were never in its way, with so many busy cores."""
    step, workers = _step(setting, stages), setting.num_workers
    pin = stages.pin_s if setting.pin_memory else 0.0
    if workers == 0:
        # One after the other in one thread; it pins by itself and sends nothing.
        alone = stages.cpu_s + stages.wait_s + pin
        return {"workers" if alone >= step else "consumer": _inverse(alone + step)}
    fetch = stages.cpu_s + stages.send_s
    # How many want a core at once if no one waits: workers that compute, and the consumer.
    wanted = workers * fetch / (fetch + stages.wait_s)
    wanted += min(stages.step_cores, 1.0) if step else 0.0
    slow = scaling.slowdown(min(wanted, cores, busy))
    computing = fetch + stages.get_s + pin + step * stages.step_cores
    # Workers beyond the cores take their share of them from the main process too.
    taking = stages.get_s * slow * max(wanted / cores, 1.0) ** CROWDED
    pinned = pin * slow
    return {
        "workers": workers / (fetch * slow + stages.wait_s),
        "cores": _inverse(computing * slow / cores),
        "pipe": _inverse(stages.write_s * slow),
        "pin thread": _inverse(taking + pinned) if pin else math.inf,
        "consumer": _inverse(step if pin else step + taking),
    }


def _with_queue(setting: Setting, rates: dict[str, float], variation: float) -> float:
    if setting.num_workers == 0:
        return min(rates.values())
    made = min(rate for name, rate in rates.items() if name != "consumer")
    depth = setting.num_workers * (setting.prefetch_factor or 1)
    return rate_with_queue(made, rates["consumer"], depth, variation)


def _first_batch(setting: Setting, stages: Stages, cores: float, scaling: Scaling) -> float:
    """From `iter()` to the first batch: the start and one whole batch, whatever the workers."""
    workers = setting.num_workers
    pin = stages.pin_s if setting.pin_memory else 0.0
    batch = stages.cpu_s + stages.first_s
    if workers == 0:
        return stages.iter_s + batch + stages.wait_s + pin
    slow = scaling.slowdown(min(workers, cores)) * max(workers / cores, 1.0)
    made = (stages.boot_s + batch + stages.send_s) * slow + stages.wait_s
    return stages.iter_s + stages.spawn_s * workers + made + stages.get_s + pin
