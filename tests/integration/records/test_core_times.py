"""Time of operations on a core, ready without one, and blocked, in workers without enough cores."""

import json

import pytest

from lotus import cli
from lotus.inside.trace.log import rusage
from lotus.inside.trace.log.log_format import UNMEASURED
from tests.integration.conftest import PROGRAMS, PYTHON

MS = 1_000_000


@pytest.fixture(scope="module")
def run(torch, trace_command):
    if rusage.run_delay_ns() == UNMEASURED:
        pytest.skip("this kernel does not tell how long a thread waited for a core")
    options = ("-q", "--level", "op+cpu")
    got = trace_command(PYTHON, PROGRAMS / "waits/core_times.py", options=options)
    assert (got.code, got.out, got.err) == (0, b"", b"")
    return got.run


@pytest.fixture(scope="module")
def ops(run):
    ops = run.ops.assign(operation=run.ops["operation"].astype(str))
    off = ops["duration_ns"] - ops["cpu_ns"]
    return ops.assign(off_ns=off, blocked_ns=off - ops["run_delay_ns"])


def test_the_three_parts_are_all_of_the_time(ops):
    assert ops["operation"].value_counts().to_dict() == {"Compute": 48, "Sleep": 48, "Helped": 48}
    assert (ops["run_delay_ns"] >= 0).all()
    # Reading the clocks takes a while, too.
    assert (ops["run_delay_ns"] <= ops["off_ns"].clip(lower=0)).all()


def test_who_computes_lacked_a_core_and_who_sleeps_was_blocked(ops):
    # Now and then a machine stands still between two readings.
    compute, sleep = (ops[ops["operation"] == name] for name in ("Compute", "Sleep"))
    assert (compute["run_delay_ns"] >= 4.9 * MS).mean() > 0.9
    assert (sleep["blocked_ns"] >= 9.9 * MS).mean() > 0.9


def test_what_helpers_used_is_in_the_process(ops):
    helped = ops[ops["operation"] == "Helped"]
    assert (helped["process_cpu_ns"] - helped["cpu_ns"] >= 5 * MS).all()
    assert (ops["process_cpu_ns"] >= ops["cpu_ns"] - MS / 10).all()


def test_the_report_says_so(run, capsys):
    assert cli.main(["report", str(run.path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["operation"]: row for row in document["loaders"][0]["operations"]}
    for row in rows.values():
        on = row["cpu_ns"] / row["total_ns"]
        assert on + row["run_delay_share"] + row["blocked_share"] == pytest.approx(1, abs=0.01)
    assert rows["Helped"]["helper_cpu_ns"] >= 48 * 5 * MS
    assert rows["Helped"]["helper_share"] > 0.5
    assert cli.main(["report", str(run.path)]) == 0
    text = capsys.readouterr().out
    table = text.partition("\nOperations")[2].partition("\n\n")[0]
    for title in ("no core", "blocked", "helpers"):
        assert title in table
