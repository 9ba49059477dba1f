"""`lotus tune` lets the program itself train on with one setting and another: the same samples."""

import itertools
import json
import time

import pytest

from lotus.inside.apply.settings_applier import Applier
from tests.integration.conftest import PYTHON, Start, command_of
from tests.integration.tune.tuned import (
    SCRIPT,
    processes_of,
    ranks,
    same_as,
    trained,
    truth_of,
    tuned,
)

MORE = {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True}
IN_TURN = """
train(program, found.best, 6)
train(program, watched.setting, 5)
train(program, found.best, 6, discard=2)
train(program, Setting(1, prefetch_factor=1), 3)
"""
TO_THE_END = "train(program, found.best, 10_000)"
BACK = """
train(program, found.best, 6)
found.best = watched.setting
"""
BACK_AT_THE_END = f"{TO_THE_END}\nfound.best = watched.setting"
FORKED = """
train(program, watched.setting, 30)
train(program, watched.setting, 5)
"""
STOPPED = """
import threading
threading.Timer(2, os.kill, (%s, signal.%s)).start()
train(program, found.best, 1_000_000)
"""
LOTUS_KILLED = STOPPED % ("os.getpid()", "SIGKILL")
INTERRUPTED = STOPPED % ("watched.pid", "SIGINT")
HANDLED = STOPPED % ("watched.pid", "SIGUSR1")
OTHER_METHOD = """
train(program, found.best, 6)
train(program, watched.setting, 5)
"""
LONG = ["batches=200"]
THREADS = """
train(program, found.best, 6)
train(program, watched.setting, 5)
train(program, replace(found.best, num_workers=2), 6)
"""
STREAM = """
train(program, found.best, 6)
train(program, watched.setting, 5)
train(program, found.best, 6, discard=1)
train(program, Setting(0 if watched.setting.num_workers else 1), 3)
"""
STREAM_OWN = """
train(program, found.best, 6)
train(program, found.best, 6)
found.best = watched.setting
"""
PEEKED_OWN = """
train(program, found.best, 6)
train(program, watched.setting, 10_000)
found.best = watched.setting
"""
KEPT_OWN = f"{THREADS}\nfound.best = watched.setting"
STREAMED = ["stream", "torch_threads=2", "batches=16", "epochs=4"]
PLAIN = {
    "plain": LONG,
    "plain_persistent": ["workers=2", "persistent", *LONG],
    "plain_workers": ["workers=1", *LONG],
    "plain_left": ["leave=60", *LONG],
    "plain_peeked": ["peek=60", *LONG],
    "plain_stream": STREAMED,
}
SLOW = ["batches=200", "epochs=1", "step=0.05", "finally"]


def threads_plan():
    """Programs with two threads of torch that train with one for a while."""
    two, best = ["torch_threads=2", *LONG], {"num_workers": 0, "torch_threads": 1}
    one = {"num_workers": 1, "prefetch_factor": 2, "persistent_workers": True}
    return {
        "threads": (two, {"do": THREADS, "best": best, "apply": True}),
        "threads_own": (two, {"do": KEPT_OWN, "best": best, "apply": True}),
        "threads_left": (
            ["leave=60", *two],
            {"do": BACK_AT_THE_END, "best": {**best, "num_workers": 1}, "apply": True},
        ),
        "stream": (STREAMED, {"do": STREAM, "best": best, "apply": True}),
        "stream_workers": (
            [*STREAMED, "workers=1", "persistent"],
            {
                "do": STREAM,
                "best": {**best, **one},
            },
        ),
        "stream_persistent": (
            [*STREAMED, "workers=1", "persistent"],
            {"do": STREAM_OWN, "best": {**best, **one}, "apply": True},
        ),
        "stream_kept": (["keep", *STREAMED], {"do": STREAM_OWN, "best": best, "apply": True}),
        "stream_over": (
            ["after=600", "finally", "stream", "torch_threads=2", "epochs=1"],
            {"do": "train(program, found.best, 100, seconds=1)", "best": best},
        ),
        "threads_raised": (["raise=60", "finally", *two], {"do": TO_THE_END, "best": best}),
    }


@pytest.fixture(scope="module")
def runs(torch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trains")
    persistent, left = PLAIN["plain_persistent"], ["leave=60", *LONG]
    real = {"python": PYTHON}  # signals are looked at
    plan = {
        "ended": ([*LONG, "finally"], {"do": IN_TURN, "best": MORE}),
        "applied": (LONG, {"do": IN_TURN, "best": MORE, "apply": True}),
        "from_workers": (persistent, {"do": IN_TURN, "best": {"num_workers": 0}, "apply": True}),
        "to_the_end": ([], {"do": TO_THE_END, "apply": True}),
        "again": (["finally"], {"do": "train(program, found.best, 50)"}),
        "left": (["leave=14", "finally"], {"do": TO_THE_END, "best": MORE}),
        "back": (LONG, {"do": BACK, "best": MORE, "apply": True}),
        "back_new": (["new", *LONG], {"do": BACK, "best": MORE, "apply": True}),
        "left_applied": (left, {"do": TO_THE_END, "best": MORE, "apply": True}),
        "left_new": (["new", "finally", *left], {"do": TO_THE_END, "best": MORE}),
        "peeked_own": (PLAIN["plain_peeked"], {"do": PEEKED_OWN, "best": MORE, "apply": True}),
        "peeked": (PLAIN["plain_peeked"], {"do": BACK_AT_THE_END, "best": MORE, "apply": True}),
        "forked": (["fork=30", *LONG], {"do": FORKED, "apply": True}),
        **threads_plan(),
        "killed": (SLOW, {"do": LOTUS_KILLED, **real}),
        "killed_applying": (SLOW, {"do": LOTUS_KILLED, "apply": True, **real}),
        "interrupted": (SLOW, {"do": INTERRUPTED, **real}),
        "handled": (["handler", *SLOW], {"do": HANDLED, **real}),
        "forkserver": (
            ["workers=1", "method=forkserver", *LONG],
            {
                "do": OTHER_METHOD,
                "best": {"num_workers": 2, "start_method": "forkserver"},
                "apply": True,
            },
        ),
    }
    ended = {name: tuned(folder, name, args, **more).end() for name, (args, more) in plan.items()}
    words = ranks("epochs=2")
    ended["ranks"] = tuned(folder, "ranks", [], TO_THE_END, words=words, apply=True).end()
    for name, args in {**PLAIN, "plain_slow": SLOW}.items():
        ended[name] = Start(command_of(SCRIPT, args), folder, name, {}).end()
    return ended


def test_the_batches_of_each_setting_are_counted_and_then_the_program_is_ended(runs):
    ended = runs["ended"]
    truth = truth_of(ended)
    assert (ended.code, ended.out) == (0, b""), ended.err.decode()
    assert (truth["problem"], truth["ended_by_us"]) == ("", True)
    # Passed: what was in flight, 2 x 3 of the workers, the first one, what is discarded.
    assert truth["counts"] == [
        [6, 6, 6, 24, 7, False],
        [5, 5, 5, 20, 12, False],
        [6, 6, 6, 24, 9, False],
        [3, 3, 3, 12, 10, False],
    ]
    assert all(startup > 0 for startup in truth["startups"])
    assert b"random augmentations" not in ended.err  # nothing is applied yet
    assert not processes_of(ended)


@pytest.mark.parametrize(
    ("name", "plain", "workers"),
    [
        ("applied", "plain", 2),
        ("from_workers", "plain_persistent", 0),
        ("forkserver", "plain_workers", 2),
    ],
)
def test_it_trains_on_the_same_samples_in_the_same_order(runs, name, plain, workers):
    ended = runs[name]
    assert ended.code == 0, ended.err.decode()
    assert len(truth_of(ended)["counts"]) == (2 if name == "forkserver" else 4)
    assert same_as(ended.out, runs[plain], 402)
    assert trained(ended.out)[1]["0"].startswith(f"{workers} workers")


def test_the_end_of_the_epoch_ends_it(runs):
    truth = truth_of(runs["to_the_end"])
    assert truth["counts"] == [[3, 3, 3, 12, 4, True]]
    assert runs["to_the_end"].code == 0


def test_an_epoch_begins_again_in_a_program_that_is_ended_afterwards(runs):
    (again,) = truth_of(runs["again"])["counts"]
    assert (again[0], again[-1]) == (50, False)  # of an epoch of 16
    assert (runs["again"].code, runs["again"].out) == (0, b"")


def test_an_epoch_that_the_program_leaves_ends_it(runs):
    """It would else train for as long as it likes, and never ask for a batch of this one again."""
    truth = truth_of(runs["left"])
    assert truth["counts"] == [[0, 0, 0, 0, 2, True]]
    assert (runs["left"].code, runs["left"].out) == (0, b""), runs["left"].err.decode()


@pytest.mark.parametrize("name", ["back", "back_new"])
def test_what_did_not_keep_its_promise_is_not_left_on_any_loader(runs, name):
    ended = runs[name]
    assert same_as(ended.out, runs["plain"], 402)
    assert trained(ended.out)[1]["0"].startswith("0 workers")
    assert b"num_workers" not in ended.err


@pytest.mark.parametrize(
    ("name", "plain", "batches"),
    [
        ("left_applied", "plain_left", 262),
        ("peeked", "plain_peeked", 403),
        ("peeked_own", "plain_peeked", 403),
    ],
)
def test_an_epoch_that_is_left_or_not_alone_keeps_its_samples(runs, name, plain, batches):
    ended = runs[name]
    assert ended.code == 0, ended.err.decode()
    assert truth_of(ended)["counts"][-1][-1] is True
    assert same_as(ended.out, runs[plain], batches)


def test_an_epoch_that_is_left_for_one_of_another_loader_ends_it(runs):
    ended = runs["left_new"]
    assert truth_of(ended)["counts"][0][-1] is True
    assert (ended.code, ended.out) == (0, b""), ended.err.decode()


def test_a_forked_child_that_trains_on_too_says_nothing_of_it(runs):
    assert [count[0] for count in truth_of(runs["forked"])["counts"]] == [30, 5]
    assert same_as(runs["forked"].out, runs["plain"], 402)


def test_the_next_setting_has_nothing_of_the_one_before(torch):
    from torch.utils.data import DataLoader

    loader = DataLoader(range(8), num_workers=1)
    applier = Applier({"LOTUS_SETTINGS": "{}"})
    known = applier.loaders.add(loader)
    for index, more in enumerate(({"start_method": "spawn"}, {})):
        setting = {"num_workers": 1, **more}
        applier.entries.append({"loader": {}, "setting": setting, "iterable_safe": False})
        applier.put(loader, known, index, known if known.before else None, quiet=True)
        assert (loader.multiprocessing_context is None) == (not more)


def threads_of(ended):
    """Torch's threads at each batch, and at the end of each epoch."""
    (line,) = (text for text in ended.out.decode().splitlines() if text.startswith("threads "))
    return json.loads(line.removeprefix("threads "))


def test_torchs_threads_are_those_of_each_stretch_and_of_what_is_applied(runs):
    assert same_as(runs["threads"].out, runs["plain"], 402)
    threads = threads_of(runs["threads"])
    stretches = [(count, len(list(group))) for count, group in itertools.groupby(threads)]
    # Watched; each stretch with a batch that is not counted; what two workers had in flight; for
    # good, and at the end of each epoch.
    assert stretches == [(2, 12), (1, 7), (2, 6), (1, 7), (2, 4), (1, 366)]


def test_torchs_threads_are_put_back_where_the_own_setting_stays(runs):
    assert same_as(runs["threads_own"].out, runs["plain"], 402)
    threads = threads_of(runs["threads_own"])
    stretches = [(count, len(list(group))) for count, group in itertools.groupby(threads)]
    assert stretches == [(2, 12), (1, 7), (2, 6), (1, 7), (2, 370)]


def test_torchs_threads_are_put_back_where_an_epoch_is_left(runs):
    threads = threads_of(runs["threads_left"])
    assert threads[59:61] == [1, 2]


def test_threads_of_a_loader_whose_setting_stays_are_compared_over_several_epochs(runs):
    ended, truth = runs["stream"], truth_of(runs["stream"])
    assert trained(ended.out)[0] == trained(runs["plain_stream"].out)[0]
    # The second epoch's first batch is not counted, and neither is what is discarded.
    assert truth["counts"] == [
        [6, 6, 6, 24, 7, False],
        [5, 5, 5, 20, 5, False],
        [6, 6, 6, 24, 7, False],
    ]
    assert truth["refused"] == "the setting of such a loader cannot change in the midst of an epoch"
    threads = threads_of(ended)
    stretches = [(count, len(list(group))) for count, group in itertools.groupby(threads)]
    # Watched; the rest of the first epoch, and its end; the second epoch; from the third epoch on,
    # what is applied.
    assert stretches == [(2, 12), (1, 4), (2, 1), (1, 3), (2, 5), (1, 7), (2, 2), (1, 34)]


def test_what_persistent_workers_of_a_stream_have_in_flight_is_not_counted(runs):
    truth = truth_of(runs["stream_workers"])
    # Passed: two batches in flight, as always, and the first one of the second epoch.
    assert truth["counts"] == [
        [6, 6, 6, 24, 9, False],
        [5, 5, 5, 20, 7, False],
        [6, 6, 6, 24, 10, False],
    ]
    assert runs["stream_workers"].code == 0


@pytest.mark.parametrize("name", ["stream_persistent", "stream_kept"])
def test_torchs_threads_are_put_back_where_the_iterator_of_a_stream_stays(runs, name):
    ended = runs[name]
    assert len(truth_of(ended)["counts"]) == 2, ended.err.decode()
    threads = threads_of(ended)
    assert threads[16] == 2  # at the end of the first epoch
    assert 1 in threads[17:33]
    assert set(threads[34:]) == {2}


def test_a_program_is_ended_that_does_something_else_after_the_training(runs):
    ended = runs["stream_over"]
    assert truth_of(ended)["counts"][0][-1] is True
    assert (ended.code, ended.out) == (0, b""), ended.err.decode()


def test_torchs_threads_are_put_back_where_an_exception_ends_the_epoch(runs):
    ended = runs["threads_raised"]
    assert (ended.code, ended.out) == (9, b"handled 2\nfinally\n"), ended.err.decode()


def test_lotus_killed_ends_a_program_that_trains_for_it(runs):
    assert runs["killed"].code == -9
    assert b"trained on" not in runs["killed"].out + after(runs["killed"])


def test_lotus_killed_lets_a_program_that_goes_on_train_to_its_end(runs):
    assert runs["killed_applying"].code == -9
    assert same_as(after(runs["killed_applying"]), runs["plain_slow"], 201)


def after(ended):
    """What the program of a driver that was killed has printed when it has ended."""
    while processes_of(ended):
        time.sleep(0.05)
    return (ended.truth.parent / "driver.out").read_bytes()


def test_an_interrupt_is_the_programs(runs):
    """It was training: it ends as it does by itself, and what was found is kept."""
    ended = runs["interrupted"]
    truth = truth_of(ended)
    assert ended.code == 256 - 2  # the driver says by which signal
    assert ended.out == b"finally\n"
    assert ended.err.count(b"KeyboardInterrupt") == 1
    assert "the program ended" in truth["problem"]
    assert not truth["ended_by_us"]
    assert (ended.truth.parent / "tuned.json").exists()


def test_a_signal_that_the_program_handles_is_the_programs(runs):
    ended = runs["handled"]
    assert (ended.code, ended.out) == (9, b"handled\nfinally\n"), ended.err.decode()
    assert "the program ended" in truth_of(ended)["problem"]
    assert not truth_of(ended)["ended_by_us"]


def test_of_several_ranks_none_trains_with_another_setting(runs):
    ended = runs["ranks"]
    assert "the job has several ranks" in truth_of(ended)["refused"]
    assert trained(ended.out)[1] == dict.fromkeys("01", "1 workers, cores changed by 0")
