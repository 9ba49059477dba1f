"""Finds the resource that limits a loader, by simulating it with more of each resource."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from lotus.settings.space import Setting
from lotus.tune.simulation.loader_simulation import simulate
from lotus.tune.simulation.simulation_types import LoaderOutcome, Machine, Work

# The factor by which a resource is increased, and the least speed-up that counts as a gain.
MORE, WORTH = 2.0, 1.05
_NEAR = 0.5  # share of the largest gain from which the resource that is easier to change is named
_ALWAYS_SHOWN = ("workers", "consumer", "cores")
_CROWDED = 1.1  # cores wanted per core used, above which the shortage is reported
_BATCHES = 2_000  # the most batches of a simulation


@dataclass(frozen=True)
class Gain:
    """The speed-up with more of a resource; `what` describes the change that was simulated."""

    resource: str
    what: str
    times: float


@dataclass(frozen=True)
class Binding:
    """The limiting resource, why it limits, and the gain from more of each resource.

    `resource` is "workers", "prefetch", "order", "consumer", "cores", "work", "storage",
    "handover", "start-up" or "" (no single one); `gains` start with the easiest change.
    """

    resource: str
    reason: str
    gains: list[Gain]


def binding(
    work: Work,
    outcome: LoaderOutcome,
    machine: Machine,
    *,
    batches: int,
    epochs: int = 1,
) -> Binding:
    """Simulate the setting of `outcome` with more of each resource, one at a time."""
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
        return Binding("", "No single resource limits it: several do at once.", gains)
    first = next(gain for gain in gains if gain.times - 1 >= _NEAR * (most - 1))
    tries = [first]
    tries += [gain for gain in gains if gain.resource in _ALWAYS_SHOWN and gain is not first]
    tests = "; ".join(f"with {gain.what}, {_times(gain.times)}" for gain in tries)
    reason = f"{_why(first.resource, outcome)} Simulated changes: {tests}."
    return Binding(first.resource, reason, gains)


def _times(times: float) -> str:
    return "no faster" if times < 1.005 else f"{times:.2f} times as fast"


def _more(
    work: Work, setting: Setting, machine: Machine
) -> list[tuple[str, str, tuple[Work, Setting, Machine]]]:
    """Return (resource, description of the change, what to simulate), the easiest first."""
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


def _why(resource: str, outcome: LoaderOutcome) -> str:
    workers = outcome.setting.num_workers
    busy = f"it keeps {outcome.cores:.1f} cores busy ({outcome.cores_share:.0%})"
    if outcome.cores_wanted > _CROWDED * outcome.cores:
        busy += f" and could use {outcome.cores_wanted:.1f}"
    waiting = f"the training loop waits {outcome.wait_share:.0%} of the time, start-up included"
    working = f"the workers are busy {1 - outcome.idle_share:.0%} of the time"
    wait, taking = f"{outcome.wait_share:.1%}", f"{outcome.taking_share:.0%}"
    return {
        "workers": (
            f"There are too few workers: {waiting}, {working}, and {busy}."
            if workers
            else f"The main process makes the batches itself: {waiting}."
        ),
        "prefetch": f"The prefetched batches run out behind slow ones: {waiting}, {working}.",
        "order": f"Batches wait for slow ones before them: {waiting}, {working}.",
        "consumer": f"The training step sets the pace: the loop waits {wait} of the time, "
        "start-up included.",
        "cores": f"The cores set the pace: {busy}.",
        "storage": f"Waiting for storage sets the pace: {waiting}.",
        "work": f"The work per sample sets the pace: {waiting}, and {busy}.",
        "handover": f"Handing batches over sets the pace: it takes {taking} of the time.",
        "start-up": f"{outcome.startup_share:.0%} of the time passes before the first batches and "
        "after the last ones.",
    }[resource]
