"""A real run, replayed: the order of its settings must come out, whatever the machine."""

import json

from tests.integration.called import called


def whatif(path, *words):
    done = called("whatif", path, "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_data_set_that_waits(traced):
    run = traced("waiting.py", options=("--level", "op+cpu"))
    assert run.code == 0
    told = whatif(run.path, "--step-cores", "0", "--workers", "8", "--batches", "2000")
    today, then = told["today"], told["whatif"]
    assert today["setting"]["num_workers"] == 2
    assert told["measured"]["samples_per_s"] > 0
    # It sleeps 5 ms a sample: however busy the machine, it is no faster, and needs no core for it.
    assert 0 < today["samples_per_s"] < 2 / 0.005
    assert today["waiting_share"] > 0.5
    assert then["setting"]["num_workers"] == 8
    assert then["steady_samples_per_s"] > 2 * today["steady_samples_per_s"]
    for words in (["--latency", "0ms"], ["--speedup", "Remote=5"]):
        quick = whatif(run.path, "--step-cores", "0", *words)["whatif"]
        assert quick["steady_samples_per_s"] > 1.5 * today["steady_samples_per_s"]
