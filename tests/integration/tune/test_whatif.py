"""A real run, replayed: the order of its settings must come out, whatever the machine."""

import json

from tests.integration.called import called


def whatif(path, *words):
    done = called("whatif", path, "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_data_set_that_waits(traced):
    for turn in range(3):  # a run in which the machine stood still says nothing of its consumer
        run = traced("waiting.py", options=("--level", "op+cpu"), env={"TURN": str(turn)})
        assert run.code == 0
        answer = whatif(run.path, "--step-cores", "0", "--workers", "8", "--batches", "2000")
        today, then = answer["today"], answer["whatif"]
        quick = [
            whatif(run.path, "--step-cores", "0", *words)["whatif"]
            for words in (["--latency", "0ms"], ["--speedup", "Remote=5"])
        ]
        steady, more, *less = (outcome["steady_samples_per_s"] for outcome in (today, then, *quick))
        if more > 2 * steady and min(less) > 1.5 * steady:
            break
    without = called("whatif", run.path)
    assert without.returncode == 2
    words = f"no change was asked for; try: lotus whatif {run.path} --workers 2"
    assert words in without.stderr
    assert today["setting"]["num_workers"] == 2
    assert answer["measured"]["samples_per_s"] > 0
    # It sleeps 5 ms a sample: however busy the machine, it is no faster, and needs no core for it.
    assert 0 < today["samples_per_s"] < 2 / 0.005
    assert today["waiting_share"] > 0.5
    assert then["setting"]["num_workers"] == 8
    assert more > 2 * steady
    assert min(less) > 1.5 * steady
