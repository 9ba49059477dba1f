"""Which resource sets a loader's pace: what the simulation gains when there is more of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from lotus.settings.space import Setting
from lotus.tune.simulation.loader_simulation import Machine, Outcome, Work, simulate

# Times as much of a resource as is tried, and the gain that counts.
MORE, WORTH = 2.0, 1.05
_NEAR = 0.5  # of the largest gain: then what is easier to change is named
_ALWAYS_SHOWN = ("workers", "consumer", "cores")
_CROWDED = 1.1  # times as many cores wanted as had, which is worth words
_BATCHES = 2_000  # simulated for each


@dataclass(frozen=True)
class Gain:
    """How many times as fast with more of a resource; `what` says what was tried."""

    resource: str
    what: str
    times: float


@dataclass(frozen=True)
class Binding:
    """`resource`: "workers", "prefetch", "order", "consumer", "cores", "work", "storage",
    "handover", "start-up" or "" (none alone); `gains` in the order of what is easiest to change."""

    resource: str
    reason: str
    gains: list[Gain]


def binding(
    work: Work,
    outcome: Outcome,
    machine: Machine,
    *,
    batches: int,
    epochs: int = 1,
) -> Binding:
    """Try more of each resource, one at a time, for the setting of `outcome`."""
    setting = outcome.setting
    epochs = max(min(epochs, _BATCHES // max(batches, 1)), 1)
    batches = min(batches, _BATCHES)

    def rate(work: Work, setting: Setting, machine: Machine) -> float:
        tried = simulate(work, setting, machine, batches=batches, epochs=epochs)
        return tried.samples_per_s

    now = rate(work, setting, machine)
    gains = [
        Gain(name, what, rate(*tried) / now) for name, what, tried in _more(work, setting, machine)
    ]
    most = max((gain.times for gain in gains), default=1.0)
    if most < WORTH:
        return Binding("", "No resource alone holds it up: several bind at once.", gains)
    first = next(gain for gain in gains if gain.times - 1 >= _NEAR * (most - 1))
    tries = [first]
    tries += [gain for gain in gains if gain.resource in _ALWAYS_SHOWN and gain is not first]
    tests = "; ".join(f"with {gain.what}, {_times(gain.times)}" for gain in tries)
    reason = f"{_why(first.resource, outcome)} What it would be: {tests}."
    return Binding(first.resource, reason, gains)


def _times(times: float) -> str:
    return "no faster" if times < 1.005 else f"{times:.2f} times as fast"


def _more(
    work: Work, setting: Setting, machine: Machine
) -> list[tuple[str, str, tuple[Work, Setting, Machine]]]:
    """(resource, what is tried, what to simulate), what is easiest to change first."""
    less = 1.0 / MORE

    def costs(**changes: float) -> Work:
        made = {name: getattr(work, name) * factor for name, factor in changes.items()}
        return dataclasses.replace(work, **made)

    def settings(**changes: int | bool) -> Setting:
        return dataclasses.replace(setting, **changes)  # type: ignore[arg-type]

    tried = []
    workers, prefetch = setting.num_workers, setting.prefetch_factor or 1
    if workers:
        more = settings(prefetch_factor=4 * prefetch)
        tried.append(("prefetch", "four times the prefetch", (work, more, machine)))
        more = settings(num_workers=2 * workers)
        tried.append(("workers", "twice as many workers", (work, more, machine)))
        if setting.in_order is not False:
            tried.append(("order", "in_order=False", (work, settings(in_order=False), machine)))
    else:
        more = settings(num_workers=2)
        tried.append(("workers", "two workers", (work, more, machine)))
    half = costs(step_ns=less)
    tried.append(("consumer", "a step that takes half as long", (half, setting, machine)))
    wider = dataclasses.replace(machine, cores=machine.cores * MORE)
    tried.append(("cores", "twice the cores", (work, setting, wider)))
    quicker = dataclasses.replace(
        machine,
        bandwidth=machine.bandwidth * MORE,
        latency_ns=None if machine.latency_ns is None else machine.latency_ns * less,
    )
    tried.append(
        ("storage", "half the waiting for storage", (costs(wait_ns=less), setting, quicker))
    )
    half = costs(cpu_ns=less)
    tried.append(("work", "half the work per sample", (half, setting, machine)))
    half = costs(get_ns=less, pin_ns=less, pickle_ns=less)
    tried.append(("handover", "half the cost of handing batches over", (half, setting, machine)))
    half = costs(iter_ns=less, spawn_ns=less, boot_ns=less, first_ns=less, shutdown_ns=less)
    tried.append(("start-up", "half the start-up", (half, setting, machine)))
    return tried


def _why(resource: str, outcome: Outcome) -> str:
    workers = outcome.setting.num_workers
    busy = f"{outcome.cores:.1f} of the cores are busy with it ({outcome.cores_share:.0%})"
    if outcome.cores_wanted > _CROWDED * outcome.cores:
        busy += f" where it could use {outcome.cores_wanted:.1f}"
    waiting = f"the training loop waits {outcome.wait_share:.0%} of the time"
    working = f"the workers are busy {1 - outcome.idle_share:.0%} of theirs"
    return {
        "workers": (
            f"There are too few workers: {waiting}, {working}, and {busy}."
            if workers
            else f"The main process makes the batches itself: {waiting}."
        ),
        "prefetch": f"The prefetched batches run out behind slow ones: {waiting}, {working}.",
        "order": f"Batches wait for slow ones before them: {waiting}, {working}.",
        "consumer": f"The training step sets the pace: the loop waits {outcome.wait_share:.1%} of the "
        "time.",
        "cores": f"The cores set the pace: {busy}.",
        "storage": f"Waiting for storage sets the pace: {waiting}.",
        "work": f"The work per sample sets the pace: {waiting}, and {busy}.",
        "handover": f"Handing batches over sets the pace: it takes {outcome.taking_share:.0%} of the "
        "time.",
        "start-up": f"{outcome.startup_share:.0%} of the time passes before the first batches and "
        "after the last ones.",
    }[resource]
