"""Each feature of torch's DataLoader gives with lotus what it gives without: torch is the contract.

programs/paired/paired.py uses them one after the other and writes down every batch bit for bit,
warnings, exceptions with where they were raised, exit codes of workers, and the random state
afterwards.
`test_parity.py` has the shapes of loops, `test_failures.py` what a failing program prints.
"""

import inspect
import json
import re

import pytest

from tests.integration.conftest import PROGRAMS

RESULTS = (
    "batching samplers batch_samplers distributed_sampler generators collating pinning sharing "
    "prefetching persistent starting a_workers_world contexts streams lengths data_sets pipes "
    "in_order leaving closing as_an_object subclasses freeing"
).split()
ERRORS = "in_the_data_set going_on elsewhere ending refused nested".split()
# What a worker is told does not depend on how it started; that costs seconds, where not forked.
STARTED = ["starting"]


def features(torch):
    return [name for name in [*RESULTS, *ERRORS] if torch >= (2, 6) or name != "in_order"]


@pytest.fixture(scope="module")
def both(pair, torch):
    plain, traced = pair("paired/paired.py", "fork", *features(torch))
    assert plain.code == 0, plain.err.decode()
    assert traced.code == 0, traced.err.decode()
    return plain, traced


def documents(both):
    return [json.loads(ended.truth.read_text()) for ended in both]


@pytest.mark.parametrize("feature", [*RESULTS, *ERRORS])
def test_a_feature_gives_the_same(both, torch, feature):
    if feature not in features(torch):
        pytest.skip("in_order came with torch 2.6")
    plain, traced = (document[feature] for document in documents(both))
    assert len(plain["seen"]) > 1
    for without, with_lotus in zip(plain["seen"], traced["seen"], strict=True):
        assert with_lotus == without
    assert traced["warnings"] == plain["warnings"]
    assert traced["after"] == plain["after"]
    # AND the feature was used: it went on to its end, and left no process behind
    assert not any(row[0] == "the feature raised" for row in plain["seen"])
    assert plain["after"]["children"] == 0


def test_every_argument_of_a_loader_is_used(torch):
    """One that a later torch has needs a feature of its own here."""
    data = pytest.importorskip("torch.utils.data")
    text = "".join(path.read_text() for path in PROGRAMS.glob("paired/paired_*.py"))
    names = [*inspect.signature(data.DataLoader).parameters][1:]  # the data set is the first
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_what_is_printed_is_the_same(both):
    """What torch and Python say on stderr of workers that end and of iterators that are freed."""
    without, with_lotus = (
        re.sub(r"0x[0-9a-f]+", "0x", ended.err.decode()).splitlines() for ended in both
    )
    assert with_lotus == without
    assert any("ERROR: Unexpected bus error" in line for line in without)


def test_warnings_and_failures_were_seen(both):
    """The programs compared do warn and fail, in the main process and in workers."""
    text = json.dumps(documents(both)[0])
    for words in (
        "Length of IterableDataset", "worker processes in total", "Original Traceback",
        "Caught KeyError in DataLoader worker process 0", "Picky",
        "may not start", "cannot collate", "daemonic processes are not allowed to have children",
        "attribute should not be set after", "multiprocessing_context can only be used with",
    ):  # fmt: skip
        assert words in text
    codes = [row[1] for row in documents(both)[0]["ending"]["seen"] if isinstance(row[1], int)]
    assert codes == [3, 4, -9, -15, -7, -6]


def test_workers_that_are_started_anew(both, traced):
    """Traced, with workers that import everything again, as untraced with forked ones."""
    again = traced("paired/paired.py", "spawn", *STARTED)
    assert (again.code, again.out) == (0, b"")
    assert again.err == b"== starting\n"
    document = json.loads(again.truth.read_text())
    for feature in STARTED:
        assert document[feature]["seen"] == documents(both)[0][feature]["seen"]
        assert document[feature]["warnings"] == []


def test_the_loops_that_were_compared_were_recorded(both):
    run = both[1].run
    assert run.notes == []
    assert run.epochs["batches"].sum() > 400
    assert (run.waits["failed"]).sum() > 30
    assert {"Scale"} <= set(run.ops["operation"])
