"""Loops that fail or warn do so traced as they do without lotus: words, lines, exit codes."""

import re

import pytest

from lotus.inside.trace.log.log_format import FAILED
from tests.integration.conftest import PROGRAMS, PYTHON

IN_MAIN = (
    "op nested function arguments odd chain dataset getitems collate iterable sampler stop exit "
    "exit_inside interrupt thread hook goes_on warn warn_once warn_dataset warn_collate "
    "warn_error warn_longer warn_pin"
).split()
IN_WORKER = (
    "op function arguments odd chain dataset getitems collate iterable stop init exit killed "
    "timeout persistent thread hook goes_on warn warn_dataset warn_collate warn_error warn_longer"
).split()
CASES = [*(f"{case}.0" for case in IN_MAIN), *(f"{case}.1" for case in IN_WORKER)]


def cases(workers):
    return [case for case in CASES if case.endswith(workers)]


def sections(stream):
    """What was printed for each case; pids differ."""
    text = re.sub(r"\(pid(\(s\))? \d+\)", "(pid)", stream.decode())
    parts = re.split(r"^== (\S+)\n", text, flags=re.MULTILINE)
    assert parts[0] == ""
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("case", CASES)
def test_failures_and_warnings_look_the_same(pair, torch, case):
    plain, traced = pair("failures.py", *cases(case[-1]))
    assert sections(traced.out)[case] == sections(plain.out)[case]
    printed, expected = sections(traced.err)[case], sections(plain.err)[case]
    assert printed.splitlines() == expected.splitlines()
    # AND the case is one: it said something, if it does not end without a word
    silent = case.startswith(("exit", "stop", "hook", "goes_on", "warn_pin"))
    assert silent or len(expected) > 80
    assert (plain.code, traced.code) == (0, 0)


@pytest.mark.parametrize(
    ("case", "code"), [("op.0", 1), ("op.1", 1), ("exit.1", 3), ("interrupt.0", -2)]
)
def test_the_exit_code_is_the_programs(pair, torch, case, code):
    plain, traced = pair("failures.py", "alone", case)
    assert (plain.code, traced.code) == (code, code)
    assert (traced.out, traced.err) == (plain.out, plain.err)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_failed_batch_is_recorded_as_failed(pair, torch, workers):
    # GIVEN a program that forks a child a case, each with a loader of its own
    run = pair("failures.py", *cases(workers))[1].run
    names = [case.partition(".")[0] for case in cases(workers)]
    assert len(run.loaders) == len(names)
    assert run.loaders["pid"].nunique() == len(names)
    # THEN the loader whose third batch fails has two batches, a failed one, and no end
    loader = run.loaders["loader"].iloc[names.index("op")]
    waits = run.waits[run.waits["loader"] == loader]
    assert waits["batch"].tolist() == [0, 1, 2]
    assert waits["failed"].tolist() == [False, False, True]
    batches = run.batches[run.batches["loader"] == loader].set_index("batch")
    assert (batches["flags"] & FAILED).astype(bool).loc[:2].tolist() == [False, False, True]
    assert (batches["fetch_ns"].loc[:2] > 0).all()
    epoch = run.epochs[run.epochs["loader"] == loader].iloc[0]
    assert (epoch["batches"], epoch["exhausted"]) == (2, False)
    # AND one that is asked again after its failure goes on to its end
    loader = run.loaders["loader"].iloc[names.index("goes_on")]
    waits = run.waits[run.waits["loader"] == loader]
    assert waits["failed"].tolist() == [False, False, True, False]
    epoch = run.epochs[run.epochs["loader"] == loader].iloc[0]
    assert (epoch["batches"], epoch["exhausted"]) == (3, True)
    # AND the operation that failed has its time
    ops = run.ops[run.ops["loader"] == loader]
    assert ops["operation"].astype(str).value_counts().to_dict() == {"Tensor": 7, "Fails": 7}


def test_a_worker_that_a_signal_ends_is_known(torch, trace_command):
    # GIVEN a loop of which the kernel ends a worker
    got = trace_command(PYTHON, PROGRAMS / "killed_worker.py", options=())
    # THEN the program ends as untraced, by an exception of torch or of its connection to the worker
    assert got.code == 1
    assert b"Error" in got.err
    # AND which worker it was, and why, is recorded and said
    assert got.run.killed_workers[["worker", "signal"]].to_numpy().tolist() == [[1, 9]]
    assert set(got.run.killed_workers["worker_pid"]) <= set(got.run.workers["pid"])
    assert b"Worker 1 was ended by SIGKILL." in got.err
