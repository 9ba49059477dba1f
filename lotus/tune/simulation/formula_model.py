"""Predicts a DataLoader's rate by formula, with bounds: fast enough for a whole space of settings.

The rate is the least of the rates of workers, cores, pipe, pin thread and training step, each on
its own (the bottleneck law). Two losses from varying times are subtracted: batches are taken in
turn, and the queue of workers x prefetch batches may run empty. The simulator
(loader_simulation.py) is more exact; this model decides which settings are not worth a trial.
Times are seconds per batch on a core that is not shared, rates are batches per second.
"""

import math
from dataclasses import dataclass

from lotus.settings.space import Setting
from lotus.tune.simulation import turn_taking
from lotus.tune.simulation.epoch_time import Pace

# Fitted to the simulator at 1 to 2 workers per core, which gave 0.25 to 0.31.
CROWDED = 0.3


@dataclass(frozen=True)
class Scaling:
    """The slowdown of each of n busy cores (Gunther's Universal Scalability Law).

    slowdown(n) = 1 + sigma (n - 1) + kappa n (n - 1). sigma is contention for shared resources,
    kappa the traffic between each pair of cores (caches, memory).
    """

    sigma: float = 0.0
    kappa: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.sigma < math.inf and 0 <= self.kappa < math.inf):
            raise ValueError("sigma and kappa must be finite and at least 0")

    def slowdown(self, busy: float) -> float:
        """Return the factor by which work takes longer with `busy` cores busy."""
        more = max(busy - 1.0, 0.0)
        return 1.0 + self.sigma * more + self.kappa * busy * more


def fit(busy: float, gain: float, coherence: float = 0.5) -> Scaling:
    """Return the scaling under which `busy` cores do `gain` times the work of one.

    One point does not determine both parameters: `coherence` is kappa's share of the loss at that
    point. 0 and 1 are the bounds: sigma alone is the best case beyond `busy` and the worst below
    it. A gain above the number of cores counts as no loss.
    """
    if not (busy > 1 and gain > 0 and 0 <= coherence <= 1):
        raise ValueError("a scaling needs more than one busy core and a gain above 0")
    lost = max(busy / gain - 1.0, 0.0) / (busy - 1.0)
    return Scaling(lost * (1.0 - coherence), lost * coherence / busy)


@dataclass(frozen=True)
class Stages:
    """Time of each part of a loader for one batch, as measured with one worker."""

    cpu_s: float  # CPU time of a fetch with its collate
    wait_s: float = 0.0  # time a fetch waits for storage or anything else but a core
    send_s: float = 0.0  # CPU time of the worker to send a batch
    write_s: float = 0.0  # the part of send_s in which it holds the pipe's lock
    get_s: float = 0.0  # time to take a batch from the pipe, in the main process or the pin thread
    pin_s: float = 0.0  # time to copy it into pinned memory; 0: it is never pinned
    step_s: float = 0.0  # the training step
    step_pinned_s: float | None = None  # the training step with pinned batches; None: the same
    step_cores: float = 1.0  # cores that the step keeps busy
    iter_s: float = 0.0  # time of `iter()` besides the workers
    spawn_s: float = 0.0  # time of the main process to start one worker
    boot_s: float = 0.0  # CPU time of a worker until it asks for its first index
    first_s: float = 0.0  # extra CPU time of the first batch of a process
    shutdown_s: float = 0.0  # time of the main process, while workers end in parallel
    # Standard deviation divided by mean, of the times of fetches and of steps.
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
class SettingPrediction:
    """The predicted performance of one setting; rates leave out start-up and shutdown."""

    setting: Setting
    batches_per_s: float
    low: float  # the worst case of scaling and queue
    high: float  # their best case: no trial can exceed it if the times are right
    first_batch_s: float
    setup_s: float  # per epoch with new workers: the first batch and the end of the workers
    fetch_s: float = 0.0  # a worker's time for a batch
    taken_s: float = 0.0  # the main process's least time between two batches
    step_s: float = 0.0

    def epoch_s(self, batches: int, epochs: int = 1) -> float:
        """Return mean seconds per epoch of so many batches; persistent workers start only once."""
        each = 1.0 / self.batches_per_s
        pace = Pace(self.setting.num_workers, each, self.fetch_s, self.taken_s, self.step_s)
        first, end = self.first_batch_s, self.setup_s - self.first_batch_s
        anew = pace.epoch_s(batches, first, end)
        if not self.setting.persistent_workers:
            return anew
        return (anew + (epochs - 1) * pace.epoch_s(batches)) / epochs


def predict(
    setting: Setting, stages: Stages, cores: float, scalings: tuple[Scaling, ...] = (Scaling(),)
) -> SettingPrediction:
    """Predict the performance of `setting` on so many cores.

    `scalings` starts with the expected one; the others, which the measurements also allow, give
    the bounds. Raises ValueError without a scaling or if `cores` is not above 0.
    """
    if not cores > 0:
        raise ValueError("cores must be above 0")
    if not scalings:
        raise ValueError("a prediction needs a scaling")
    setting = setting.normal()
    variation = stages.fetch_variation
    worst = in_turn(setting, variation, 2.0)
    best = [_rates(setting, stages, cores, scaling) for scaling in scalings]
    rates, slow = _settled(setting, stages, cores, scalings[0], best[0])
    expected = _with_queue(setting, rates, stages.step_variation)
    slowed = [
        {name: rate * (worst if name == "workers" else 1.0) for name, rate in case.items()}
        for case in best
    ]
    pessimist = min(_with_queue(setting, case, 1.0) for case in slowed)
    optimist = max(_with_queue(setting, case, 0.0) for case in best)
    first = _first_batch(setting, stages, cores, scalings[0])
    fetch = stages.cpu_s + stages.send_s
    step = _step(setting, stages)
    ends = max(setting.num_workers / cores, 1.0) if setting.num_workers else 0.0
    return SettingPrediction(
        setting=setting,
        batches_per_s=expected,
        low=min(pessimist, expected),
        high=max(optimist, expected),
        first_batch_s=first,
        setup_s=first + stages.shutdown_s * ends,
        fetch_s=fetch * slow + stages.wait_s,
        taken_s=step + stages.get_s * slow,
        step_s=step,
    )


def starved(made: float, taken: float, depth: int) -> float:
    """Return the probability that a queue of `depth` batches is empty when one is needed.

    Batches are made at rate `made` and taken at rate `taken`, both at random: M/M/1 with `depth`
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
    """Return the share of the workers' rate that remains when slow batches delay the others.

    Batches are taken in turn, so a worker can be at most `prefetch_factor` batches ahead of the
    slowest one. The loss is about variation^2 (1/2 + 1/3 + ... + 1/workers) / prefetch. This was
    fitted to exact start times of gamma distributed batches, for 2 to 32 workers, prefetch 1 to 16
    and variations of 0.25 to 1; the factor was 0.65 to 1.8, larger for small variations.
    """
    if setting.num_workers < 2 or setting.in_order is False:
        return 1.0
    others = sum(1.0 / place for place in range(2, setting.num_workers + 1))
    # Above 2 a second worker would reduce the rate, which does not happen.
    factor = min(coefficient * variation * variation / (setting.prefetch_factor or 1), 2.0)
    return 1.0 / (1.0 + factor * others)


def _in_their_turn(setting: Setting, rates: dict[str, float], variation: float) -> dict[str, float]:
    """Return the rates, reduced by the loss of taking batches in turn (turn_taking.py)."""
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
    """Return the rate of a producer and a consumer with a queue of `depth` items between them.

    Without variation it is the rate of the slower one. At a variation of 1 or more the queue runs
    empty with the probability of `starved`; in between the loss grows with the variance.
    """
    steady = min(made, taken)
    if math.isinf(taken) or math.isinf(made):
        return steady
    log = math.log(made) - math.log(taken)
    if log < -1e-9:  # as below, but numerically stable
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
    """Return (rates with batches taken in turn, the slowdown of busy cores at these rates).

    `rates` assume that no worker is ever idle. Idle workers do not slow other cores down, so the
    number of busy cores and the rates are computed by iteration.
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
    """Return the rate of each part if no other part limited it, with so many busy cores."""
    step, workers = _step(setting, stages), setting.num_workers
    pin = stages.pin_s if setting.pin_memory else 0.0
    if workers == 0:
        # One thread does everything in turn; it pins batches itself and sends nothing.
        alone = stages.cpu_s + stages.wait_s + pin
        return {"workers" if alone >= step else "consumer": _inverse(alone + step)}
    fetch = stages.cpu_s + stages.send_s
    # Cores wanted at once if nobody waits: by computing workers and by the training step.
    wanted = workers * fetch / (fetch + stages.wait_s)
    wanted += min(stages.step_cores, 1.0) if step else 0.0
    slow = scaling.slowdown(min(wanted, cores, busy))
    computing = fetch + stages.get_s + pin + step * stages.step_cores
    # With more workers than cores, the main process gets less of a core too.
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
    """Return seconds from `iter()` to the first batch: start-up and one batch."""
    workers = setting.num_workers
    pin = stages.pin_s if setting.pin_memory else 0.0
    batch = stages.cpu_s + stages.first_s
    if workers == 0:
        return stages.iter_s + batch + stages.wait_s + pin
    slow = scaling.slowdown(min(workers, cores)) * max(workers / cores, 1.0)
    made = (stages.boot_s + batch + stages.send_s) * slow + stages.wait_s
    return stages.iter_s + stages.spawn_s * workers + made + stages.get_s + pin
