"""`lotus trace --counters` inside programs that do odd things: they run as without us, and what
was counted is right or not there.
"""

import os
import re

import pytest

from lotus.inside.common import perf_event
from tests.faults.conftest import PROGRAMS, WARM, execute
from tests.launching import PYTHON, ROOT, SMALL_TORCH

SOFTWARE = ("-q", "--counters", "software")
SCRIPT = "counted_hostile.py"
# What concerns torch, by torch itself: where an exception meets its loops, a fetch of its
# iterables. In all else its stand-in starts at once.
TORCH = {"PYTHONPATH": str(ROOT)}
STAND_IN = {"PYTHONPATH": os.pathsep.join([*SMALL_TORCH.values(), str(ROOT)])}
OF_TORCH = ["signals", "spans"]


@pytest.fixture(scope="session", autouse=True)
def counters():
    event = perf_event.Event("task_clock", perf_event.SOFTWARE, 1)
    try:
        perf_event.EventGroup([event]).close()
    except OSError as error:
        pytest.skip(f"perf_event_open: {error.strerror}")


CASES = "signals opening siblings limit fork spans nested threads many errno audit".split()
CASES += ["seccomp"] * (os.uname().machine == "x86_64")


def _python(env):
    return WARM if env is TORCH else PYTHON


@pytest.fixture(scope="module")
def plain(torch, tmp_path_factory):
    """What the program prints without lotus, by case."""
    folder, printed = tmp_path_factory.mktemp("plain"), {}
    for env, cases in (
        (TORCH, OF_TORCH),
        (STAND_IN, [case for case in CASES if case not in OF_TORCH]),
    ):
        ended = execute([_python(env), PROGRAMS / SCRIPT, *cases], folder, folder, env=env)
        assert (ended.code, ended.err) == (0, "")
        parts = re.split(r"^== (\w+)\n", ended.out, flags=re.MULTILINE)
        printed |= dict(zip(parts[1::2], parts[2::2], strict=True))
    return printed


@pytest.fixture
def both(plain, traced):
    """both(case): the program plain and counted; what it does is the same. Returns the run."""

    def run(case):
        env = TORCH if case in OF_TORCH else STAND_IN
        ended = traced(SCRIPT, case, options=SOFTWARE, env=env, python=_python(env))
        assert (ended.code, ended.out, ended.err) == (0, plain[case], "")
        recorded = ended.run
        assert not recorded.lost["what"].str.contains("fault").any()
        return recorded

    return run


def why_not(run):
    return " ".join(gap["why"] for gap in run.unseen if gap["what"] == "counters")


def operations(run):
    counters = run.counters
    return counters[counters["kind"] == "operation"]


def losses(run, what):
    lost = run.lost
    return int(lost["count"][lost["what"].str.startswith(what)].sum())


def sane(run):
    """Rows that are counted lie within their fetch and took about the time that they took."""
    rows = run.counters[run.counters["task_clock"].notna()]
    assert len(rows)
    assert (rows["enabled_ns"] >= 0).all()
    assert (rows["readings"] > 0).all()
    # CPU time of a thread is no more than the time. The kernel reads the two one after the other,
    # and a virtual machine may be held up in between, once or twice in a run of 50 rows, too.
    assert (rows["task_clock"] > rows["enabled_ns"] + 1000).sum() <= max(2, 0.01 * len(rows))
    slack = 20_000 + 2_000 * rows["readings"]
    assert (rows["enabled_ns"] <= rows["duration_ns"] * 1.5 + slack).mean() > 0.9
    for event in ("task_clock", "page_faults", "context_switches"):
        assert (rows[event] > -10_000).all()


def test_exceptions_of_a_handler_come_out_of_readings(both):
    run = both("signals")
    sane(run)
    # Each operation of a fetch that ended is counted, or told of.
    ops = operations(run)
    assert len(ops) + losses(run, "counts of op") + losses(run, "operation outside") >= len(run.ops)
    last = run.loaders["loader"].max()
    assert len(ops[ops["loader"] == last]) == 16


def test_exceptions_while_counters_are_opened_leave_the_program_its_descriptors(both):
    both("opening")


def test_what_the_program_opened_in_the_place_of_counters_is_not_touched(both):
    run = both("siblings")
    ops = operations(run)
    assert ops["task_clock"].isna().any()  # after they were closed
    assert ops[ops["loader"] == ops["loader"].max()]["task_clock"].notna().all()  # opened anew


def test_where_few_files_may_be_open_it_counts_below(both):
    run = both("limit")
    sane(run)
    assert operations(run)["task_clock"].notna().all()


def test_a_fork_in_an_operation_leaves_the_parent_its_counters(both):
    run = both("fork")
    ops = operations(run)
    assert len(ops) == 2 * 8 * 2
    assert ops["task_clock"].notna().all()
    work = ops[ops["operation"] == "Work"]["task_clock"]
    assert (work > 10_000).all()


def test_a_span_that_ends_in_another_fetch_is_no_number(both):
    run = both("spans")
    ops = operations(run)
    spans = ops[ops["operation"] == "all of it"]
    assert len(spans) == 1
    assert spans["task_clock"].isna().all()


def test_a_fetch_in_an_operation_counts_beside_and_within(both):
    run = both("nested")
    sane(run)
    ops = operations(run)
    assert ops["task_clock"].notna().all()
    counters = run.counters
    outer = counters[(counters["loader"] == 0) & (counters["kind"] == "fetch")]
    inner = counters[(counters["loader"] > 0) & (counters["kind"] == "fetch")]
    assert len(inner) == 4
    assert outer["task_clock"].sum() > inner["task_clock"].sum()


def test_threads_that_have_ended_leave_nothing_behind(both):
    run = both("threads")
    sane(run)
    assert operations(run)["task_clock"].notna().all()
    assert len(operations(run)) == 30 * 8


def test_more_operations_than_are_counted_are_no_numbers(both):
    run = both("many")
    ops = operations(run)
    assert len(ops) == 4 * 40_002 == len(run.ops)
    counted = ops["task_clock"].notna()
    assert 30_000 < counted.sum() < 70_000
    fetch = run.counters[run.counters["kind"] == "fetch"]
    assert fetch["task_clock"].notna().all()


def test_the_error_number_of_the_programs_own_calls_stays(both):
    sane(both("errno"))


def test_where_ctypes_is_forbidden_times_are_recorded(both):
    run = both("audit")
    assert run.counters.empty
    assert why_not(run)
    assert len(run.ops) == 16


def test_a_filter_that_kills_is_not_tried(both):
    if os.uname().machine != "x86_64":
        pytest.skip("the filter is written for x86_64")
    run = both("seccomp")
    assert run.counters.empty
    assert "seccomp" in why_not(run)
    assert len(run.ops) == 16
