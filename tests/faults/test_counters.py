"""Counting never harms the program: not without rights, descriptors or a worker."""

import errno
import json
import os
import sys

import pytest

from lotus.inside.common import perf_event
from lotus.recording import measurement_plan
from tests.faults.conftest import PROGRAMS, SPEAKING, UNDISTURBED, execute
from tests.integration.called import called
from tests.launching import LOTUS, PYTHON, SECCOMP, SMALL_TORCH

SPEC = "task_clock|1|0x1|0x0|uk,page_faults|1|0x2|0x0|uk"
OPTIONS = ("-q", "--counters", "task_clock,page_faults")
SCRIPT = [PYTHON, PROGRAMS / "meanwhile.py"]  # 96 samples of two operations each


@pytest.fixture(scope="session")
def counting():
    plan = measurement_plan.plan("task_clock,page_faults")
    if plan.counters is None or "task_clock" not in plan.counters:
        pytest.skip(f"task_clock cannot be counted here: {'; '.join(plan.notes)}")


def test_no_file_of_the_program_is_touched(pair, counting):
    """It closes all descriptors within an operation and between batches, and uses them anew."""
    plain, traced = pair("counted_descriptors.py", "close", options=OPTIONS)
    assert plain.out.count("wrong: []") == 4
    assert (plain.code, plain.err) == (0, "")
    assert (traced.code, traced.out, traced.err) == (0, plain.out, "")
    # What was cut is missing, not zero; what came after is counted again.
    counters = traced.run.counters
    ops = counters[counters["kind"] == "operation"]
    assert len(ops) == 3 * 64 * 3
    task_clock = ops["task_clock"]
    assert 0 < task_clock.isna().sum() <= 3 * 4 * 2 * 3
    first, *others = (ops["epoch"] == epoch for epoch in range(3))
    assert task_clock[first & (ops["batch"] > 8)].notna().any()
    assert all(task_clock[other].notna().any() for other in others)
    assert (task_clock.dropna() > -50_000).all()
    ended = called("map", traced.path, "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    json.loads(ended.stdout, parse_constant=pytest.fail)


def test_a_program_with_few_descriptors(pair, counting):
    plain, traced = pair("counted_descriptors.py", "few", options=OPTIONS)
    assert (plain.code, plain.err) == (0, "")
    assert "free: True" in plain.out
    assert (traced.code, traced.out, traced.err) == (0, plain.out, "")
    run = traced.run
    assert run.counters.empty
    assert [gap["what"] for gap in run.unseen] == ["counters"]
    assert len(run.ops) == 2 * 64


@pytest.mark.parametrize("by", ["worker", "main"])
def test_a_killed_process_leaves_readable_counts(pair, counting, by):
    plain, traced = pair("kill.py", by, "fork", options=OPTIONS)
    assert (traced.code, traced.out) == (plain.code, plain.out)
    run = traced.run
    counters = run.counters
    made = run.batches[run.batches["fetch_ns"].notna()]
    fetches = counters[counters["kind"] == "fetch"]
    assert set(zip(fetches["worker"], fetches["batch"], strict=True)) == set(
        zip(made["worker"], made["batch"], strict=True)
    )
    assert fetches["task_clock"].notna().all()
    ops = counters[counters["kind"] == "operation"]
    assert sorted(ops["row"]) == run.ops.index.tolist()


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.ENOSYS])
@pytest.mark.parametrize("workers", ["none", "fork"])
def test_a_kernel_that_refuses(tmp_path, code, workers):
    """By a seccomp filter, under the program alone, which lotus could not have known."""
    call = perf_event._CALLS.get(os.uname().machine, 241)
    path = tmp_path / "R"
    filtered = [sys.executable, "-c", SECCOMP, call, code, *SCRIPT, workers, "true"]
    words = [*LOTUS, "trace", "-o", path, *OPTIONS, "--", *filtered]
    traced = execute(words, tmp_path, path, env=SMALL_TORCH)
    if traced.code == 77:
        pytest.skip("this kernel takes no seccomp filter")
    assert (traced.code, traced.out) == (0, UNDISTURBED)
    run = traced.run
    assert run.counters.empty
    if run.manifest["counters"] is None:
        pytest.skip("nothing can be counted here anyway")
    (why,) = (gap["why"] for gap in run.unseen if gap["what"] == "counters")
    assert os.strerror(code) in why
    assert len(run.ops) == 192
    report = called("report", path)
    assert report.returncode == 0
    assert os.strerror(code) in report.stdout.replace("\n", " ").replace("  ", " ")


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
def test_a_kernel_that_refuses_lotus_too(tmp_path, code):
    """The program runs; what is missing is said once, before it."""
    call = perf_event._CALLS.get(os.uname().machine, 241)
    path = tmp_path / "R"
    words = [sys.executable, "-c", SECCOMP, call, code, *LOTUS, "trace", "-o", path, "--counters"]
    words = [*words, "--perf", "--", *SCRIPT, "fork", "true"]
    ended = execute(words, tmp_path, path, env=SMALL_TORCH)
    if ended.code == 77:
        pytest.skip("this kernel takes no seccomp filter")
    assert (ended.code, ended.out) == (0, UNDISTURBED)
    assert ended.messages
    assert "Traceback" not in ended.err
    assert len(ended.run.ops) == 192
    nothing = called("map", path)
    assert nothing.returncode == 2
    assert len(nothing.stderr.splitlines()) == 1


BAD = [
    "cycles|0|0x7fffffff|0x0|u",  # no such event
    "x|77|0x0|0x0|u",  # no such PMU
    "task_clock|1|0x1|0x0|u,x|1|0x7f|0x0|u",  # a group with one bad event
    "nothing",  # not a specification at all
    "a|b|c|d|e",
    "x|1|0x1|0x0|z",
    ",;|",
]


@pytest.mark.parametrize("spec", BAD)
def test_a_bad_specification_is_not_the_programs_problem(tmp_path, spec):
    """LOTUS_COUNTERS as another version of lotus, or a hand, may have set it."""
    path = tmp_path / "R"
    words = [*LOTUS, "trace", "-q", "-o", path, "--", *SPEAKING, f"LOTUS_COUNTERS={spec}"]
    traced = execute([*words, *SCRIPT, "fork", "true"], tmp_path, path, env=SMALL_TORCH)
    assert (traced.code, traced.out) == (0, UNDISTURBED)
    assert "Traceback" not in traced.err
    run = traced.run
    assert run.counters.empty
    # Either the counters are missing and the reason is there, or the fault was said.
    assert [gap["what"] for gap in run.unseen] == ["counters"] or traced.messages
    if not traced.messages:
        assert len(run.ops) == 192


def test_two_groups_take_turns_by_batch(tmp_path, counting):
    """Each batch counts one of two groups, from its first operation to its last, and whole."""
    names = "task_clock page_faults cpu_clock minor_faults major_faults context_switches".split()
    numbers = {"cpu_clock": 0, "task_clock": 1, "page_faults": 2, "context_switches": 3,
               "minor_faults": 5, "major_faults": 6}  # fmt: skip
    spec = ",".join(f"{name}|1|{numbers[name]:#x}|0x0|uk" for name in names)
    path = tmp_path / "R"
    words = [*LOTUS, "trace", "-q", "-o", path, "--", "env", f"LOTUS_COUNTERS={spec};{SPEC}"]
    traced = execute([*words, *SCRIPT, "none", "true"], tmp_path, path, env=SMALL_TORCH)
    assert (traced.code, traced.out, traced.err) == (0, UNDISTURBED, "")
    counters = traced.run.counters
    if counters.empty:
        pytest.skip(f"the kernel refuses them: {traced.run.unseen}")
    assert not counters["scaled"].any()
    assert (counters["running_ns"] == counters["enabled_ns"]).all()
    ops = counters[counters["kind"] != "fetch"]
    assert ops[["task_clock", "page_faults"]].notna().all(axis=None)  # of both groups
    first = ops["minor_faults"].notna()
    assert (ops[names].notna().all(axis=1) == first).all()
    by_batch = first.groupby([ops["epoch"], ops["batch"]])
    assert (by_batch.nunique() == 1).all()
    assert set(by_batch.first()) == {True, False}
    faults = ops["minor_faults"] + ops["major_faults"]
    assert (faults <= ops["page_faults"])[first].all()
