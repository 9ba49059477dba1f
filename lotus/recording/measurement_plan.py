"""The measurements of `lotus trace` beside times: counters and recorders that this machine has."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lotus.common.errors import LotusError
from lotus.hardware.event_selection import choose_counters
from lotus.hardware.sampling_probe import kernel_refused, max_rate, sample, sampling_event
from lotus.inside.common import perf_event
from lotus.inside.common.perf_event import Event
from lotus.recording import perf_sidecar, py_spy_sidecar
from lotus.recording.recorders import Say, Sidecar
from native_map.errors import UnusableError
from native_map.events import cpu as cpus
from native_map.events import perf_list, spelling
from native_map.recording import perf_command

_NO_SUCH_EVENT = (errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP)


@dataclass(frozen=True)
class MeasurementPlan:
    """`counters` as LOTUS_COUNTERS has it or None, the `cpu` that says what they mean (for
    Settings), the recorders, and remarks for the user."""

    counters: str | None
    cpu: dict[str, Any] = field(default_factory=dict)
    recorders: list[Sidecar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plan(
    counters: str | None = None,
    perf: bool = False,
    perf_events: str | None = None,
    frequency: int | None = None,
    kernel: bool = False,
    py_spy: bool = False,
    say: Say | None = None,
) -> MeasurementPlan:
    """Choose what to measure on this machine; `counters` names sets or events, "auto" the best.

    Raises LotusError for what is not understood. What the machine cannot do is a remark.
    """
    notes: list[str] = []
    recorders: list[Sidecar] = []
    spec = None
    facts: dict[str, Any] = {}
    try:
        if counters is not None:
            cpu = cpus.detect()
            # If perf's own tables know this CPU, they come before those of lotus.
            known, _ = perf_list.table(cpu)
            groups, choice_notes = choose_counters(perf_command.split(counters), event_table=known)
            notes += choice_notes
            facts = {"uarch": cpu.uarch, "metrics": perf_list.saved_metrics(known)}
            if groups:
                spec = perf_event.spell_groups(groups)
        if perf or perf_events is not None:
            recorders += _perf(perf_events, frequency, kernel, notes, say)
    except UnusableError as error:
        raise LotusError(str(error)) from None
    if py_spy:
        recorders.append(py_spy_sidecar.PySpy(say=say))
    return MeasurementPlan(spec, facts, recorders, notes)


def _perf(
    events: str | None,
    frequency: int | None,
    kernel: bool,
    notes: list[str],
    say: Say | None,
) -> Sequence[Sidecar]:
    event, rate, why = sampling_event()
    if kernel and event and kernel_refused():
        kernel = False
        notes.append(
            "--perf-kernel needs perf_event_paranoid 1 or less (sudo sysctl "
            "kernel.perf_event_paranoid=1); sampling user space only"
        )
    if events is not None:
        chosen = tuple(name for name in perf_command.split(events) if _samples(name, event, notes))
        why = "asked for"
        if not chosen:
            return []
    elif not event:
        notes.append(f"no samples: {why}; lotus doctor says what would help")
        return []
    else:
        chosen = (event.removesuffix(":u") if kernel else event,)
    rate = rate or 997
    if frequency is not None:
        # perf itself refuses more, after the program was made to wait for it.
        rate = min(frequency, max_rate(Path("/"), frequency))
        if rate < frequency:
            notes.append(
                f"--perf-frequency {frequency} is more than perf_event_max_sample_rate allows: "
                f"sampling at {rate} Hz"
            )
    return [perf_sidecar.Perf(perf_command.Sampling(chosen, rate, kernel), say=say, why=why)]


def _samples(events: str, works: str, notes: list[str]) -> bool:
    """Return True if this machine can sample by an event; a note says so if it cannot.

    For cycles perf would silently take its software clock. Events that only perf knows are left to
    it: it refuses those that it cannot open.
    """
    for word in perf_command.split(events.removeprefix("{").partition("}")[0]):
        try:
            ours = spelling.parse(perf_command.bare(word))
            event = Event(
                ours.name, spelling.type_number(ours), ours.config, ours.config1, ours.flags
            )
        except UnusableError:
            continue
        error = sample(event, 997).error
        if error in _NO_SUCH_EVENT:
            other = f"; --perf-events {works.removesuffix(':u')} works" if works else ""
            notes.append(f"{events} cannot be sampled here and is left out{other}")
            return False
    return True
