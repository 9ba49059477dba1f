"""The measurements that this machine allows, and for each gap the command that closes it.

`examine` probes the machine; `report` only describes the facts that it collects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from lotus.doctor import environment
from lotus.doctor.checks import Finding, MachineFacts, findings, refusal, why_no_hardware
from lotus.doctor.pmu_survey import survey
from lotus.hardware.event_selection import choose
from lotus.hardware.sampling_probe import sampling_event
from lotus.inside.common.perf_event import Event

SCHEMA = 2


@dataclass(frozen=True)
class Report:
    """The results: `summary` as sentences, `facts` as values for programs."""

    summary: Mapping[str, str]
    findings: Sequence[Finding]
    facts: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """Return the document of `lotus doctor --json`."""
        return {
            "schema": SCHEMA,
            "summary": dict(self.summary),
            "findings": [asdict(finding) for finding in self.findings],
            "facts": dict(self.facts),
        }


def examine() -> Report:
    """Examine this machine; takes a few seconds and never raises because of a finding."""
    machine = environment.system()
    chosen = choose(("auto",))
    sampling = sampling_event()  # as lotus trace does
    trial = (sampling[0], str(sampling[1])) if sampling[0] else None
    return report(
        MachineFacts(
            machine,
            environment.perf_tool(trial),
            survey(chosen.tried),
            chosen,
            sampling,
            environment.python(),
            environment.helpers(),
            environment.room(),
        )
    )


def report(facts: MachineFacts) -> Report:
    """Describe the facts."""
    return Report(_summary(facts), findings(facts), _plain(facts))


def _plain(value: Any) -> Any:
    """Return the value as JSON; events by the names of their fields."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Event):
        return value._asdict()
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _summary(facts: MachineFacts) -> dict[str, str]:
    right, software = facts.survey.capacity.right, facts.survey.software
    counts = any(probed.state == "counts" for probed in software)
    if right:
        counting = f"yes: {right} hardware events at once"
    elif counts:
        counting = f"software events only: {why_no_hardware(facts)}"
    else:
        counting = f"no: {refusal(facts)}"
    event, rate, why = facts.sampling
    if not event:
        sampling = f"no: {why}"
    elif facts.perf.path is None:
        sampling = f"not yet: perf is missing ({event} at {rate} Hz would do)"
    elif facts.perf.recorded is False or not facts.perf.version:
        sampling = "no: perf does not record here"
    else:
        sampling = f"yes: {event} at {rate} Hz ({why})"
    if facts.counting.level_1:
        topdown = f"yes: level 1 ({facts.counting.uarch})"
    else:
        topdown = "no: " + (
            "its events do not all count here" if right else "it needs hardware events"
        )
    return {"counting": counting, "sampling": sampling, "top-down": topdown}
