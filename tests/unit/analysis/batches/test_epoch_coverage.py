"""What an epoch is, what was taken for a trial or for nothing, and what a loader is called."""

import sys

import numpy as np
import pytest

from lotus.analysis.batches.epoch_coverage import passes_of
from lotus.analysis.common.loader_titles import title_of
from lotus.analysis.common.scope import scopes
from lotus.analysis.summary import summarise
from lotus.inside.trace.loaders.library_consumers import facts_of_caller
from lotus.reporters.run.parts import coverage
from tests.unit.simulated import Plan


def simulated(epochs=3, length=40, **columns):
    run = Plan(batches=40, epochs=epochs).run()
    run.loaders["length"] = length
    for name, values in columns.items():
        run.epochs[name] = values
    return run


def words(run):
    return " ".join(coverage.loader_lines(summarise(run).loaders[0]))


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({}, "3 epochs"),
        ({"exhausted": False}, "3 epochs"),  # as many as the loader tells, as Lightning asks
        ({"exhausted": False, "length": None}, "3 iterations, none to the end"),
        ({"exhausted": [True, True, False], "length": None}, "3 epochs, 1 of them left early"),
        ({"exhausted": False, "length": 100}, "3 iterations, none to the end"),
        ({"exhausted": False, "length": 100, "epochs": 1}, "1 iteration, not to the end"),
        ({"exhausted": False, "length": 10}, "3 iterations past the length that it reports"),
        ({"sanity": [True, False, False]}, "2 epochs and Lightning's sanity check (40 batches)"),
        ({"sanity": True}, "Lightning's sanity check (120 batches)"),
    ],
)
def test_only_what_comes_to_the_end_of_the_data_is_an_epoch(columns, text):
    assert f", {text}" in words(simulated(**columns))


def test_batches_taken_ahead_and_dropped_are_told():
    run = simulated(exhausted=[True, False, False], length=None, ahead=[1, 1, 1])
    assert passes_of(scopes(run)[0]).unused == 2
    assert "2 batches that a library took ahead were not used." in words(run)
    # Where the program was killed in the loop, it is not known.
    run.epochs["end_ns"] = np.nan
    assert passes_of(scopes(run)[0]).unused == 0


def test_runs_of_older_versions_have_none_of_it():
    passes = passes_of(scopes(simulated())[0])
    assert (passes.iterations, passes.whole, passes.sanity, passes.unused) == (3, 3, 0, 0)


@pytest.mark.parametrize(
    ("loader", "title"),
    [
        ({}, ""),
        ({"dataset": "Rows"}, "Rows"),
        ({"dataset": "Rows", "call_site": "a.py:3"}, "Rows at a.py:3"),
        ({"dataset": "Rows", "call_site": "a.py:3", "iterated_at": "a.py:3"}, "Rows at a.py:3"),
        ({"dataset": "Rows", "call_site": "a.py:3", "iterated_at": "b.py:9"},
         "Rows at a.py:3, iterated at b.py:9"),
        ({"name": "train", "dataset": "Rows", "call_site": "a.py:3", "iterated_at": "b.py:9"},
         "train (a.py:3, iterated at b.py:9)"),
        ({"name": "train"}, "train"),
    ],
)  # fmt: skip
def test_titles(loader, title):
    assert title_of(loader) == title


# ── who iterates ─────────────────────────────────────────────────────────────────────────────


class Held:
    """Stands for torch's loader."""

    def __init__(self, sampler):
        self._dataset_kind, self.batch_sampler, self.sampler = 0, None, sampler


def called(module, function, code):
    """What is found of a loader that this function of a module iterates."""
    loader = Held([])
    scope = {"__name__": module, "look": lambda: facts_of_caller(loader, sys._getframe(1))}
    exec(code, scope)
    return scope[function]()


CHECK = "def _run_sanity_check():\n    return look()\n"


def test_a_sanity_check_is_known_by_who_makes_it():
    assert called("lightning.pytorch.trainer.trainer", "_run_sanity_check", CHECK) == {
        "sanity": True
    }
    assert called("pytorch_lightning.trainer.trainer", "_run_sanity_check", CHECK)
    assert called("train", "_run_sanity_check", CHECK) == {}


@pytest.mark.parametrize("sampler", [[], iter([])])
def test_lightning_takes_ahead_where_it_cannot_know_the_end(sampler):
    loader = Held(sampler)
    code = (
        "class Fetcher:\n    prefetch_batches = 0\n"
        "    def __init__(self):\n        self.prefetch_batches = 2\n"
        "    def __iter__(self):\n        return look()\n"
        "def go():\n    return Fetcher().__iter__()\n"
    )
    scope = {
        "__name__": "lightning.pytorch.loops.fetchers",
        "look": lambda: facts_of_caller(loader, sys._getframe(1)),
    }
    exec(code, scope)
    assert scope["go"]() == ({} if isinstance(sampler, list) else {"ahead": 2})


def test_accelerate_takes_one_ahead_where_it_looks_for_the_end():
    ahead = "def __iter__():\n    next_batch = look()\n    return next_batch\n"
    assert called("accelerate.data_loader", "__iter__", ahead) == {"ahead": 1}
    assert called("accelerate.data_loader", "__iter__", ahead.replace("next_batch", "one")) == {}
