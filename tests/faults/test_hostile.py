"""Objects that resist and odd programs: all comes out as without us, and we ask them nothing."""

import re

import pytest


def test_objects_that_resist_being_looked_at_are_not_asked(pair, lotus_report):
    plain, traced = pair("hostile.py")
    assert plain.code == 0
    assert (traced.code, traced.out, traced.err) == (plain.code, plain.out, plain.err)
    run = traced.run
    assert run.lost.empty
    assert run.notes == ["operations in Data.7 not found: TypeError"]
    counts = run.ops["operation"].value_counts()
    # Two epochs of 8 samples without workers, two with.
    for name in ("ResistingTransform", "Looping", "Registered", "Slotted", "Empty", "Keywords",
                 "TwoWays", "Static", "x" * 200, "Identity"):  # fmt: skip
        assert counts[name] == counts[f"target_transform:{name}"] == 32, name
    assert counts["line\nfeed\x1b[31m\r[0]"] == 32
    # An index that could only be had by asking the program is unknown.
    alone = run.samples[run.samples["loader"] == 0]
    assert set(alone["sample"]) == {-1}
    assert set(run.samples[run.samples["loader"] == 1]["sample"]) == set(range(8))
    # Their names do nothing to the terminal.
    ended = lotus_report(traced.path)
    assert ended.code == 0
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", ended.out)
    assert "line\\nfeed" in ended.out
    assert lotus_report(traced.path, "--json").code == 0


def test_odd_programs_run_as_without_us(pair):
    plain, traced = pair("odd.py")
    assert plain.code == 0
    assert traced.out == plain.out
    assert traced.code == plain.code
    # Two workers print the same error of torch's at once: whose line comes first is chance.
    assert sorted(traced.err.splitlines()) == sorted(plain.err.splitlines())
    run = traced.run
    assert set(run.lost["what"]) == {"send times of a batch"}  # of what could not be pickled
    loaders = run.ops.groupby("loader")["operation"].agg(set)
    assert {"Add", "Forks"} == set.union(*(found for found in loaders if "Forks" in found))
    durations = run.ops["duration_ns"]  # by our clock, not by that of the program
    assert durations.between(0, 60e9).all()


@pytest.mark.parametrize(
    "lacks", ["", "_MultiProcessingDataLoaderIter", "_utils.worker._worker_loop", "_utils"]
)
def test_a_torch_that_we_do_not_know_switches_tracing_off(traced, lacks):
    ended = traced("strange.py", env={"LACKS": lacks})
    assert (ended.code, ended.out) == (0, "['a', 'b', 'c', 'd']\n" * 2)
    assert len(ended.messages) == 1
    assert ended.err == ended.messages[0] + "\n"
    if lacks:
        assert "torch 99.0 is not as lotus knows it" in ended.messages[0]
    assert ended.run.lost["what"].str.startswith("tracer fault").tolist() == [True]


def test_memory_does_not_grow_with_time(pair):
    plain, traced = pair("growth.py", options=("-q", "--batches", "0:10"))
    assert (traced.code, traced.err) == (0, "")
    grown = dict(line.split() for line in traced.out.splitlines())
    before = dict(line.split() for line in plain.out.splitlines())
    for what in ("epochs", "loaders", "by_hand", "worker"):
        assert int(grown[what]) - int(before[what]) < 1 << 20, what
