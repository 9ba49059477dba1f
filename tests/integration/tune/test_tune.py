"""`lotus tune`: the agent in a program finds its loader, takes over, and leaves all as it was."""

import json
import os
import sys
import time

import pytest

from lotus.settings import tuned_file
from lotus.settings.tuned_file import Target
from tests.integration.conftest import LOTUS, PYTHON, ROOT, Start, command_of
from tests.integration.tune.tuned import (
    SCRIPT,
    TRAIN,
    processes_of,
    ranks,
    same_as,
    trained,
    truth_of,
    tuned,
)


@pytest.fixture(scope="module")
def runs(torch, tmp_path_factory):
    """All programs that do not disturb each other, a few at a time."""
    folder = tmp_path_factory.mktemp("tune")
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    interrupt = (
        "os.kill(program.watched.pid, signal.SIGINT)\nprogram.perform(found.best, Open(3600))"
    )
    starting = (
        "import threading\n"
        "threading.Timer(0.03, os.kill, (program.watched.pid, signal.SIGINT)).start()\n"
        "program.perform(found.best, Open(3600))\n"
        "while True: program.perform(found.best, Measure(0.1, 8, False, 3600))"
    )
    # A handler of the program raises, when the files that it shares with lotus have gone.
    stop = (
        "import shutil; shutil.rmtree(program._pipe._exchange)\n"
        "os.kill(program.watched.pid, signal.SIGUSR1)\nprogram.perform(found.best, Open(3600))"
    )
    nonsense = "program._send({'do': 'nonsense', 'setting': {}})"
    more = {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True}
    single = {"num_workers": 1}
    real = {"python": PYTHON}  # signals are looked at
    plan = {
        "ended": ((["finally"],), {}),
        "applied": (([],), {"best": more, "apply": True}),
        "applied_from_workers": (
            (["workers=2", "persistent"],),
            {"best": {"num_workers": 0}, "apply": True},
        ),
        "short": ((["batches=3"],), {"apply": True}),
        "named": (([],), {"loader": "Check", "watch": 2, "apply": True}),
        "exhausted": ((["batches=1", "epochs=1", "exit=7"],), {}),
        "absent": ((["exit=7"],), {"loader": "Absent"}),
        "killed": ((["finally"],), {"do": kill, **real}),
        "killed_applying": (([],), {"do": kill, "apply": True, **real}),
        "interrupted": ((["finally"],), {"do": interrupt, **real}),
        "starting": ((["finally"],), {"do": starting, "best": {"num_workers": 16}, **real}),
        "stopped": ((["handler", "nested"],), {"do": stop, "apply": True, **real}),
        "faulty_applying": (([],), {"do": nonsense, "apply": True}),
        "ranks": (([],), {"words": ranks("epochs=2"), "best": single, "apply": True}),
    }
    waiting, ended = dict(plan), {}
    while waiting:
        some = [waiting.popitem() for _ in range(min(3, len(waiting)))]
        started = [(name, tuned(folder, name, *args, **options)) for name, (args, options) in some]
        ended.update((name, start.end()) for name, start in started)
    alone = {
        "plain": [],
        "plain_short": ["batches=3"],
        "plain_persistent": ["workers=2", "persistent"],
    }
    for name, args in alone.items():
        ended[name] = Start(command_of(SCRIPT, args), folder, name, {}).end()
    ended["plain_ranks"] = Start(ranks("epochs=2"), folder, "plain_ranks", {}).end()
    return ended


def test_the_program_is_watched_and_ended_without_its_finally(runs):
    ended = runs["ended"]
    truth = truth_of(ended)
    assert (ended.code, ended.out) == (0, b""), ended.err.decode()
    assert truth["problem"] == ""
    assert truth["ended_by_us"]
    assert truth["target"] == ["Far", TRAIN, 1]
    assert truth["own"]["num_workers"] == 0
    assert set(truth["watched"].values()) == {12}
    assert (truth["samples"], truth["batches"]) == (48, 16)
    assert truth["startup_s"] > 0
    assert truth["workers"] == 1
    assert truth["block"][0] >= 8
    assert truth["block"][1] == 4 * truth["block"][0]
    assert truth["closed"]


def test_the_file_is_written_for_the_loader(runs):
    path = runs["ended"].truth.parent / "tuned.json"
    entry = tuned_file.read(path).loaders[0]
    assert entry.loader == Target(1, TRAIN, "Far", 64, "RandomSampler")
    assert entry.setting.num_workers == 1


@pytest.mark.parametrize(
    ("name", "plain", "workers", "batches"),
    [
        ("applied", "plain", "2", 34),
        ("applied_from_workers", "plain_persistent", "0", 34),
        ("short", "plain_short", "1", 8),
    ],
)
def test_training_goes_on_with_the_same_samples(runs, name, plain, workers, batches):
    ended = runs[name]
    assert ended.code == 0, ended.err.decode()
    assert same_as(ended.out, runs[plain], batches)
    # Of steps beside which no worker works: what two workers had made ahead.
    assert truth_of(ended)["alone"] == ([4, 4] if name == "applied_from_workers" else [0, 0])
    assert trained(ended.out)[1]["0"].startswith(f"{workers} workers")


def test_a_loader_can_be_chosen(runs):
    truth = truth_of(runs["named"])
    assert [truth["target"][0], truth["target"][2]] == ["Check", 0]
    assert truth["watched"]["steps_s"] == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("exhausted", "was exhausted after 1 batch"),
        ("absent", "it iterated the loader to tune; --loader can name"),
    ],
)
def test_a_program_that_cannot_be_tuned_keeps_its_exit_code(runs, name, words):
    ended = runs[name]
    truth = truth_of(ended)
    assert ended.code == 7
    assert words in truth["problem"]
    assert not truth["found"]
    assert trained(ended.out)[0]
    assert not (ended.truth.parent / "tuned.json").exists()


def test_lotus_killed_ends_a_program_that_was_only_tuned(runs):
    killed = runs["killed"]
    assert killed.code == -9
    while processes_of(killed):
        time.sleep(0.05)
    assert (killed.truth.parent / "driver.out").read_bytes() == b""


def test_lotus_killed_lets_a_program_that_goes_on_go_on(runs):
    killed = runs["killed_applying"]
    while processes_of(killed):
        time.sleep(0.05)
    out = (killed.truth.parent / "driver.out").read_bytes()
    assert same_as(out, runs["plain"])
    assert trained(out)[1]["0"].startswith("0 workers")


def test_an_interrupt_keeps_what_was_found(runs):
    ended = runs["interrupted"]
    truth = truth_of(ended)
    assert (ended.code, ended.out) == (130, b"")
    assert truth["interrupted"]
    assert truth["ended_by_us"]
    assert tuned_file.read(ended.truth.parent / "tuned.json").loaders[0].setting.num_workers == 1


def test_an_interrupt_while_workers_start_is_not_told_by_any_of_them(runs):
    ended = runs["starting"]
    assert (ended.code, ended.out) == (130, b"")
    assert truth_of(ended)["interrupted"]
    assert b"Traceback" not in ended.err
    assert b"ignored" not in ended.err
    assert not processes_of(ended)


def test_what_a_handler_of_the_program_raises_is_raised_in_it(runs):
    """Its data set iterates loaders as large as the one to tune, too."""
    ended = runs["stopped"]
    truth = truth_of(ended)
    assert (ended.code, ended.out) == (9, b"handled\n"), ended.err.decode()
    assert truth["target"][0] == "Far"
    assert truth["interrupted"]


def test_a_fault_of_ours_lets_the_program_go_on(runs):
    ended = runs["faulty_applying"]
    assert ended.code == 0
    assert same_as(ended.out, runs["plain"])
    assert "lotus failed inside the program: KeyError" in truth_of(ended)["problem"]


def test_all_ranks_get_the_answer_and_their_cores_back(runs):
    ended = runs["ranks"]
    on, shown = trained(ended.out)
    assert ended.code == 0, ended.err.decode()
    assert on == trained(runs["plain_ranks"].out)[0]
    assert shown == dict.fromkeys("01", "1 workers, cores changed by 0")
    assert truth_of(ended)["cores"] == max(len(os.sched_getaffinity(0)) // 2, 1)
    assert set(truth_of(ended)["watched"].values()) == {12}


def lotus_tune(folder, *words):
    return Start([*LOTUS, "tune", *map(str, words)], folder, "tune", {}).end()


def test_the_command_finds_what_a_program_that_waits_needs(torch, tmp_path):
    """Workers wait side by side, so more of them are faster on any machine that has the time."""
    command = command_of(SCRIPT, ["wait=0.01", "batches=300", "epochs=0", "finally"])
    tuned_one = [*command, "epochs=1"]
    few = (
        "a larger budget may help",
        "the budget ended",
        "its start, with the first batch",
        "more time: lotus tune --budget",
    )
    for turn in range(3):  # a machine that stood still for a while may have hidden what is faster
        folder = tmp_path / str(turn)
        folder.mkdir()
        ended = lotus_tune(folder, "--budget", "8s", "--table", "--", *tuned_one)
        message = ended.err.decode()
        assert (ended.code, ended.out) == (0, b""), message
        entry = tuned_file.read(folder / "tuned.json").loaders[0]
        if entry.setting.num_workers or any(words in message for words in few):
            break
    assert entry.before.num_workers == 0
    assert "Trials: " in message
    if entry.setting.num_workers:
        change = f"DataLoader(..., num_workers={entry.setting.num_workers}"
        for words in ("times as fast", "operations  a worker's time goes to", change):
            assert words in message
        assert "lotus run -- " in message
    else:  # starting workers took all the time that there was
        assert any(words in message for words in few), message
    run = Start([*LOTUS, "run", "--", *command], folder, "run", {}).end()
    assert run.code == 0
    assert trained(run.out)[1]["0"].startswith(f"{entry.setting.num_workers} workers")


def test_what_cannot_be_done_is_said_before_the_program_runs(torch, tmp_path):
    (tmp_path / "folder").mkdir()
    script = [sys.executable, "-c", "print('ran')"]
    for words, message in (
        (["-o", "folder", "--", *script], "cannot write folder: it is a directory"),
        (["-o", "none/tuned.json", "--", *script], "No such file or directory"),
        ([], "no command to tune"),
        (["--", "no-such-command"], "command not found"),
        (["--vary", "color", "--", *script], "is not a list of start_method, in_order, threads"),
        (["--budget", "0s", "--", *script], "is not a time above 0"),
    ):
        ended = lotus_tune(tmp_path, *words)
        assert ended.code in (2, 127)
        assert message in ended.err.decode()
        assert ended.out == b""


def test_a_program_without_torch_keeps_its_exit_code(tmp_path):
    program = "import os; print('LOTUS_RUN' in os.environ); raise SystemExit(7)"
    script = [sys.executable, "-c", program]
    ended = lotus_tune(tmp_path, "--", *script)
    assert (ended.code, ended.out) == (7, b"False\n")  # only trials are recorded
    assert "before it imported torch" in ended.err.decode()
    assert not (tmp_path / "tuned.json").exists()


def test_an_epoch_goes_on_with_another_setting(torch, tmp_path):
    """Every sample once, in the order and with the random numbers of a loader left alone."""
    shapes = ["shuffled", "own_generator", "eager_sampler", "batch_sampler", "no_batches", "stream"]
    env = {
        "LOTUS_SETTINGS": '{"loaders": []}',
        "PYTHONPATH": str(ROOT / "lotus" / "inside" / "sitecustomize"),
    }
    ended = Start(command_of("tune/tune_changes.py", shapes), tmp_path, "changes", env).end()
    assert ended.code == 0, ended.err.decode()
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert {row["shape"] for row in rows} == set(shapes)
    for row in rows:
        assert row["done"] == [True, row["shape"] != "stream"], row
        assert (row["same"], row["shown"], row["left"]) == (True, True, 0), row
