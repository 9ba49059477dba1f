"""More than one at once: traces beside and inside each other, and many workers."""

import os
from concurrent.futures import ThreadPoolExecutor

import lotus
from tests.faults.conftest import PROGRAMS, UNDISTURBED, WARM, execute
from tests.launching import LOTUS, PYTHON, ROOT, SMALL_TORCH


def test_two_traces_at_once_are_two_runs(traced, tmp_path):
    def trace_into(name):
        return traced("meanwhile.py", "fork", "true", path=tmp_path / name, env=SMALL_TORCH)

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(trace_into, "ab"))
    assert ended[0].out == ended[1].out
    runs = [trace.run for trace in ended]
    assert [len(run.samples) for run in runs] == [96, 96]
    assert not set(runs[0].processes["pid"]) & set(runs[1].processes["pid"])


def test_a_trace_at_a_place_that_is_taken_starts_nothing(traced):
    first, second = (traced("meanwhile.py", "none", "true", env=SMALL_TORCH) for _ in range(2))
    assert (second.code, second.out) == (2, "")
    assert second.err.startswith("lotus: ")
    assert len(first.run.samples) == 96


def test_a_trace_inside_a_trace_records_its_own_part(traced, tmp_path):
    places = [*SMALL_TORCH.values(), str(ROOT)]  # the last for the program's own `import lotus`
    env = {"PYTHONPATH": os.pathsep.join(places)}
    ended = traced("nested.py", tmp_path / "within", tmp_path / "block", env=env)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "[1, 2]\n[3, 4, 5]\n[6, 7]\n[8]\n"
    # By a command of the program, by its own lotus.trace, and the rest.
    sizes = [len(lotus.load(path).samples) for path in (tmp_path / "within", tmp_path / "block")]
    assert sizes == [3, 2]
    assert len(ended.run.samples) == 2 + 1
    apart = [
        f"a part of the program was recorded in a run of its own: {tmp_path / name}"
        for name in ("within", "block")
    ]
    assert ended.run.notes == apart


def test_a_trace_of_a_trace_says_where_all_of_it_is(torch, tmp_path):
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    program = [PYTHON, PROGRAMS / "meanwhile.py", "none", "true"]
    words = [*LOTUS, "trace", "-o", outer, "--", *LOTUS, "trace", "-q", "-o", inner, "--", *program]
    ended = execute(words, tmp_path, outer, env=SMALL_TORCH)
    assert (ended.code, ended.out) == (0, UNDISTURBED)
    assert ended.messages == [
        f"lotus: a part of the program was recorded in a run of its own: {inner}"
    ]
    assert len(lotus.load(inner).samples) == 96


def test_many_workers_for_a_short_epoch(pair):
    """LOTUS_WORKERS=200 for as many as a large machine has."""
    workers = int(os.environ.get("LOTUS_WORKERS", "40"))
    plain, traced = pair("many.py", workers, python=WARM)
    assert (traced.code, traced.out, traced.err) == (plain.code, plain.out, plain.err)
    run = traced.run
    # A feeder thread that got no core before its worker ended has told no send times.
    assert set(run.lost["what"]) <= {"send times of a batch"}
    assert len(run.workers) == workers
    assert sorted(run.samples["sample"]) == list(range(100))
    assert run.workers["end_ns"].notna().all()
