"""tools/silicon.sh: what it says of a machine's counters is true, also where there are none."""

import importlib
import shutil
import sys
from pathlib import Path

import pytest

from lotus.hardware.counter_probe import INSTRUCTIONS, Probe

TOOLS = Path(__file__).resolve().parents[3] / "tools" / "silicon"


@pytest.fixture
def silicon(monkeypatch):
    """Imports a module of tools/silicon."""
    monkeypatch.syspath_prepend(str(TOOLS))

    def find(name: str):
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    return find


@pytest.fixture
def library(silicon, tmp_path):
    known_loops = silicon("known_loops")
    try:
        return known_loops, known_loops.build(tmp_path)
    except known_loops.NoCompilerError as error:
        pytest.skip(str(error))


def test_the_loops_do_what_they_say_where_instructions_are_counted(library):
    """GIVEN loops of known work WHEN their instructions are counted THEN each round has as many
    as its text says, within 1 % for what surrounds them."""
    known_loops, built = library
    if not Probe().works(INSTRUCTIONS):
        pytest.skip("no hardware counters here")
    known = known_loops.events()
    for loop in known_loops.loops(built):
        counted = known_loops.count(["instructions"], known, loop)
        if not counted:
            pytest.skip("another profiler has the counters")
        assert counted["instructions"] == pytest.approx(loop.expected["instructions"], rel=0.01)


def test_shares_that_each_have_events_of_their_own_sum_to_1(silicon):
    counted = {"cycles": 8, "slots_frontend": 0, "slots_backend": 55, "ops_retired": 9}
    shares = silicon("known_loops").topdown({**counted, "ops_dispatched": 9}, 8)
    assert shares["sum"] == pytest.approx(1)
    assert silicon("known_loops").topdown({}, 8) is None


def test_intels_and_arms_shares_are_checked_against_the_slots(silicon):
    by_formula = silicon("known_loops").shares_by_formula
    metrics = dict(zip(("fe_bound", "be_bound", "retiring", "bad_spec"), (2, 3, 4, 0), strict=True))
    counted = {"slots": 10, **{f"topdown_{name}": value for name, value in metrics.items()}}
    shares = by_formula({**counted, "cycles": 2}, "intel_sapphire")
    assert shares["sum"] == 0.9
    assert shares["frontend_bound"] == pytest.approx(2 / 9)
    counted = {"cycles": 10, "slots_frontend": 20, "slots_backend": 30}
    shares = by_formula({**counted, "ops_retired": 24, "ops_dispatched": 30}, "neoverse_v1")
    assert shares["sum"] == 1
    assert shares["retiring"] == pytest.approx(0.3)


def test_without_a_compiler_the_reason_is_said(silicon, monkeypatch, tmp_path):
    known_loops = silicon("known_loops")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(known_loops.platform, "machine", lambda: "x86_64")
    with pytest.raises(known_loops.NoCompilerError, match="gcc"):
        known_loops.build(tmp_path)


def test_the_page_says_what_was_not_measured(silicon):
    """GIVEN a machine without counters, compiler and torch THEN the page has a line for each."""
    page = silicon("table").write(
        {
            "machine": {
                "cpu": "CPU",
                "kernel": "6.1",
                "cpus": 2,
                "virtual": True,
                "python": "3.11",
                "torch": None,
            },
            "date": "2026-11-22",
            "commit": "abc",
            "seconds": 1.0,
            "load": [0.0, 0.0],
            "counts_at_once": 0,
            "announced": 0,
            "chosen": [],
            "notes": ["this VM has no hardware counters"],
            "loops": [],
            "no_loops": "no C compiler",
            "readings": [],
            "pipelines": [
                {"pipeline": "tiny", "workers": 1, "failed": "exit code 1", "operations": []}
            ],
            "instructions": [],
        }
    )
    assert "0 hardware events count correctly at once" in page
    assert "- this VM has no hardware counters" in page
    assert "Not measured: no C compiler." in page
    assert "Not measured: exit code 1." in page
