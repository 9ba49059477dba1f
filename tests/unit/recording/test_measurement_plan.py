"""What `lotus trace` records beside times, and what it says of what it cannot."""

import errno
from pathlib import Path

import pytest

from lotus.hardware.sampling_probe import ProbeSampling
from lotus.inside.common.perf_event import Event
from lotus.recording import measurement_plan, perf_sidecar


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that samples the software clock only, at 4000 Hz at most, the kernel's part too."""

    def sample(event: Event, frequency: int) -> ProbeSampling:
        if event.name in ("cycles", "instructions"):
            return ProbeSampling(event, error=errno.ENOENT)
        return ProbeSampling(event, 20)

    monkeypatch.setattr(measurement_plan, "sampling_event", lambda: ("cpu-clock:u", 997, "made"))
    monkeypatch.setattr(measurement_plan, "sample", sample)
    monkeypatch.setattr(measurement_plan, "kernel_refused", lambda: False)
    monkeypatch.setattr(measurement_plan, "max_rate", lambda root, otherwise: 4000)


def perf(plan: measurement_plan.MeasurementPlan) -> dict[str, object]:
    (recorder,) = plan.recorders
    assert isinstance(recorder, perf_sidecar.Perf)
    return recorder.note()


def test_the_kernel_is_sampled_where_that_is_allowed() -> None:
    plan = measurement_plan.plan(perf=True, kernel=True)
    assert (perf(plan)["kernel"], perf(plan)["events"]) == (True, ["cpu-clock"])
    assert plan.notes == []


def test_where_the_kernel_may_not_be_sampled_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement_plan, "kernel_refused", lambda: True)
    plan = measurement_plan.plan(perf=True, kernel=True)
    assert (perf(plan)["kernel"], perf(plan)["events"]) == (False, ["cpu-clock:u"])
    (note,) = plan.notes
    assert "sudo sysctl kernel.perf_event_paranoid=1" in note
    assert "user space only" in note


@pytest.mark.parametrize("event", ["cycles", "cycles:u", "cycles:pp", "{cycles,instructions}"])
def test_an_event_that_cannot_be_sampled_is_never_replaced_by_another(event: str) -> None:
    plan = measurement_plan.plan(perf=True, perf_events=event)
    assert plan.recorders == []
    (note,) = plan.notes
    assert note.startswith(f"{event} cannot be sampled here")
    assert "--perf-events cpu-clock works" in note


def test_the_other_events_are_sampled_and_unknown_ones_left_to_perf() -> None:
    plan = measurement_plan.plan(perf=True, perf_events="cycles,cpu-clock,sched:sched_switch")
    assert perf(plan)["events"] == ["cpu-clock", "sched:sched_switch"]
    assert len(plan.notes) == 1


@pytest.mark.parametrize(("requested", "taken"), [(1_000_000, 4000), (4000, 4000), (49, 49)])
def test_the_frequency_is_no_higher_than_the_kernel_allows(requested: int, taken: int) -> None:
    plan = measurement_plan.plan(perf=True, frequency=requested)
    assert perf(plan)["frequency"] == taken
    assert [str(requested) in note for note in plan.notes] == ([True] if taken < requested else [])


def test_quiet_recorders_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lotus import cli
    from lotus.commands import trace

    arguments: list[object] = []

    def plan(*values: object) -> measurement_plan.MeasurementPlan:
        arguments.append(values[-1])
        return measurement_plan.MeasurementPlan(None, notes=["a remark"])

    monkeypatch.setattr(measurement_plan, "plan", plan)
    lines: list[str] = []

    def say(text: str, **_: object) -> None:
        lines.append(text)

    monkeypatch.setattr(trace, "say", say)
    for option in ("-q", "-f"):
        out = str(tmp_path / option)
        assert cli.main(["trace", "--perf", option, "-o", out, "--", "true"]) == 0
    assert arguments == [None, say]
    assert lines[0] == "lotus: a remark"


@pytest.mark.parametrize(
    ("words", "code", "option"),
    [
        (["-o", "X"], 2, "-o stands after the command"),
        (["--counters=cache"], 2, "--counters=cache stands after the command"),
        (["-o", "X"], 0, ""),
        (["-o", "X"], 1, ""),
        (["--epochs", "1"], 2, ""),
    ],
)
def test_an_option_behind_the_command_is_told_where_the_program_refused_it(
    words: list[str], code: int, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lotus import cli
    from lotus.commands import trace

    lines: list[str] = []
    monkeypatch.setattr(trace, "say", lambda text, **_: lines.append(text))
    script = ["sh", "-c", f"exit {code}", *words]
    assert cli.main(["trace", "-o", str(tmp_path / "run"), *script]) == code
    assert ("stands after the command" in lines[0]) == bool(option)
    assert option in lines[0]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--counters", "sh", "short.py"], True),
        (["--counters", "sh"], True),
        (["--counters", "nosuch", "short.py"], False),
    ],
)
def test_a_program_taken_for_a_set_of_counters_is_told(
    arguments: list[str], hint: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    from lotus import cli

    assert cli.main(["trace", *arguments]) == 2
    assert ("put `--` before the command" in capfd.readouterr().err) == hint
