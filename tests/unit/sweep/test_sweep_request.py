"""What the options of `lotus sweep` ask for."""

import argparse
from pathlib import Path

import pytest

from lotus.commands import sweep as verb
from lotus.common.errors import LotusError
from lotus.settings.space import Setting
from lotus.sweep import sweep_plan, sweep_record
from lotus.sweep.sweep_plan import SweepPlan, combined
from lotus.sweep.sweep_record import Sweep
from lotus.sweep.sweep_request import SweepRequest, worker_counts

PLAN = SweepPlan(combined({"num_workers": (0, 1, 2, 4)}), ("num_workers",), 4, counters=None)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return sweep_record.load(sweep_plan.begin(tmp_path / "S", ["true"], PLAN, 1))


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    return parser.parse_args([*words, "--", "true"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--workers=1", "--workers: not as"),
        ("--workers=0,2 --prefetch=2", "--prefetch: not as"),
        ("--repeat=3", "--repeat: not as"),
        ("--seed=2", "--seed: not as"),
        ("--loader=0 --batches=1:2", "--loader, --batches: not as"),
        ("--counters=auto", "--counters: not as"),
        ("--perf", "--perf: not as"),
        ("--iterable-safe", "--iterable-safe: not as"),
        ("-o=elsewhere", "--output: not as"),
    ],
)
def test_a_resumed_sweep_keeps_its_plan(sweep: Sweep, options: str, message: str) -> None:
    before = (sweep.path / sweep_record.NAME).read_bytes()
    with pytest.raises(LotusError, match=message):
        verb.run(parsed(f"--resume={sweep.path}", *options.split()))
    assert (sweep.path / sweep_record.NAME).read_bytes() == before


def test_a_resumed_sweep_may_be_told_what_it_is(sweep: Sweep) -> None:
    request = SweepRequest(
        {"num_workers": (4, 2, 1, 0)}, repeat=4, seed=1, counters="none", output=sweep.path
    )
    request.check_resumed(sweep)
    SweepRequest({}).check_resumed(sweep)


def test_options_become_a_plan() -> None:
    request = SweepRequest(
        {
            "num_workers": (0, 2, 4),
            "prefetch_factor": (2, 8),
            "pin_memory": (True,),
            "persistent_workers": None,
            "start_method": ("spawn",),
        },
        repeat=5,
        loader="Train",
        counters="none",
    )
    plan = request.plan()
    assert plan.varied == ("num_workers", "prefetch_factor", "pin_memory", "start_method")
    assert plan.settings == (
        Setting(0, pin_memory=True),
        *(Setting(workers, two, True, False, "spawn") for workers in (2, 4) for two in (2, 8)),
    )
    assert (plan.repeat, plan.loader, plan.counters) == (5, {"dataset": "Train"}, None)
    assert SweepRequest({}, loader=1).plan().loader == {"number": 1}


def test_the_command_line_becomes_a_request() -> None:
    words = "--workers 4,0,2,2 --pin-memory on,off --batches 1:5 --perf --loader 1 -o S"
    request = verb._request(parsed(*words.split()))
    values = {name: values for name, values in request.values.items() if values is not None}
    assert values == {"num_workers": (0, 2, 4), "pin_memory": (True, False)}
    asked = SweepRequest(request.values, loader=1, batches="1:5", perf=True, output=Path("S"))
    assert request == asked


def test_by_default_workers_go_up_to_the_cores() -> None:
    assert worker_counts(1) == (1,)
    assert worker_counts(6) == (1, 2, 4, 6)
    assert worker_counts(16) == (1, 2, 4, 8, 16)
    plan = SweepRequest({"num_workers": None, "prefetch_factor": None}).plan()
    assert plan.varied == ("num_workers",)
    assert (plan.repeat, plan.loader, plan.counters) == (3, None, "auto")


@pytest.mark.parametrize(
    "words",
    ["--workers -1", "--workers 1,,2", "--workers x", "--workers 1e9", "--prefetch 0",
     "--pin-memory yes", "--start-method thread", "--repeat 0", "--seed -1", "--batches 5:2"],
)  # fmt: skip
def test_what_is_no_value_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(*words.replace(" ", "=").split())
    assert "error: argument --" in capsys.readouterr().err
