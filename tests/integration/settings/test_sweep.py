"""`lotus sweep`: every setting reaches the loaders, and a sweep stops and goes on."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess

import pytest

from lotus.reporters.sweep import sweep_report as reporter
from lotus.sweep import sweep_record
from lotus.sweep.sweep_summary import summarise
from tests.integration.conftest import LOTUS, PYTHON, WARM, Start, environment
from tests.waiting import wait_until

PROGRAM = """
import os, sys, time

with open(os.environ["TRUTH"], "a") as file:
    file.write("started\\n")
if sys.argv[1] == "none":
    raise SystemExit

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

class Compose:
    def __init__(self, transforms):
        self.transforms = transforms
    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value

class Slow:
    def __call__(self, value):
        burn(0.002)
        return value

class Train(Dataset):
    def __init__(self):
        self.transform = Compose([Slow()])
    def __len__(self):
        return 60
    def __getitem__(self, index):
        return self.transform(torch.full((10,), float(index)))

class Check(Train):
    def __len__(self):
        return 20

class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(90))

if __name__ == "__main__":
    mode = sys.argv[1]
    own = {"pin_memory": True, "num_workers": 1, "prefetch_factor": 3, "persistent_workers": True}
    train = DataLoader(Stream() if mode == "stream" else Train(), batch_size=5, **own)
    check = DataLoader(Check(), batch_size=5)
    if mode == "odd" and train.num_workers == 1 and not os.path.exists("repaired"):
        print("out of luck\\x1b[31m", file=sys.stderr)
        raise SystemExit(7)
    try:
        for batch in train:
            pass
        for batch in check:
            pass
        if mode == "slow":
            print("iterated", flush=True)
            with open(os.environ["TRUTH"]) as file:
                number = file.read().count("started")
            time.sleep(1000 if str(number) == os.environ.get("HOLDS") else 0.5)
        if mode == "held":
            while not os.path.exists("go"):
                time.sleep(0.05)
    except KeyboardInterrupt:
        print("saved a checkpoint")
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory, torch):
    path = tmp_path_factory.mktemp("program") / "train.py"
    path.write_text(PROGRAM)
    return path


def begin(folder, program, *options, mode="plain", name="sweep", extra=(), holds="", python=WARM):
    """`holds`: the number of the run that lasts until it is interrupted."""
    words = [*LOTUS, "sweep", *options, "--", python, str(program), mode, *extra]
    return Start(words, folder, name, {"HOLDS": holds})


def started(process):
    return process.truth.read_text().count("started") if process.truth.exists() else 0


def states(path):
    return sweep_record.load(path).runs["state"].tolist()


@pytest.fixture(scope="module")
def resumed(program, tmp_path_factory, no_signal_is_ignored):
    """A sweep that was broken by SIGINT in its third run, and went on."""
    folder = tmp_path_factory.mktemp("resumed")
    options = ("--workers", "0,2", "--repeat", "2", "--seed", "5", "-o", "S")
    # A real Python: of its processor time and of signals the sweep hears as their parent.
    first = begin(folder, program, *options, mode="slow", holds="3", python=PYTHON)
    wait_until(lambda: started(first) == 3, first.process)
    wait_until(lambda: any("iterated" in text for text in logs(folder)[2:]), first.process)
    first.process.send_signal(signal.SIGINT)
    broken = first.end()
    between = sweep_record.load(folder / "S")
    second = begin(folder, program, *options, mode="slow", name="again", python=PYTHON).end()
    return folder, broken, between, second


def logs(folder):
    """What each run that has begun printed, in their order."""
    runs = sweep_record.load(folder / "S").runs["directory"]
    paths = [folder / "S" / f"{name}.log" for name in runs]
    return [path.read_text().strip() for path in paths if path.exists()]


def test_an_interrupted_sweep_stops_with_the_run_that_was_going_on(resumed):
    _, broken, between, _ = resumed
    assert broken.code == 130
    assert b"lotus sweep --resume S" in broken.err
    # The program saved a checkpoint and ended well: its run does not count all the same.
    assert between.runs["state"].tolist() == ["done"] * 2 + ["pending"] * 2
    assert between.manifest["state"] == "stopped"


def test_the_same_command_makes_the_runs_that_are_left_and_no_other(resumed):
    folder, broken, between, second = resumed
    assert second.code == 0
    assert broken.truth.read_text().count("started") == 3
    assert second.truth.read_text().count("started") == 2
    after = sweep_record.load(folder / "S")
    assert after.runs["state"].tolist() == ["done"] * 4
    assert after.manifest["state"] == "ended"
    first_two = after.runs["elapsed_ns"].tolist()[:2]
    assert first_two == between.runs["elapsed_ns"].tolist()[:2]


def test_every_round_has_each_setting_once_and_every_run_its_setting(resumed):
    folder, *_ = resumed
    sweep = sweep_record.load(folder / "S")
    for _, mine in sweep.runs.groupby("repeat"):
        assert sorted(mine["num_workers"]) == [0, 2]
    for setting in sweep.settings():
        loaded = sweep.loaded(setting)
        assert len(loaded) == 2
        for run in loaded:
            assert set(run.loaders["num_workers"]) == {setting.num_workers}
            assert run.manifest["level"] == "op+cpu"


def test_what_the_sweep_does_not_set_stays_as_the_program_has_it(resumed):
    folder, *_ = resumed
    sweep = sweep_record.load(folder / "S")
    for setting in sweep.settings():
        loaders = sweep.loaded(setting)[0].loaders.set_index("dataset")
        train, check = loaders.loc["Train"], loaders.loc["Check"]
        assert train["pin_memory"] == 1
        assert check["pin_memory"] == 0
        if setting.num_workers:
            assert train["prefetch_factor"] == 3
            assert train["persistent_workers"] == 1
            assert check["prefetch_factor"] == 2
            assert check["persistent_workers"] == 0


def test_a_sweep_of_real_runs_says_what_operations_cost(resumed):
    folder, *_ = resumed
    summary = summarise(sweep_record.load(folder / "S"))
    assert summary.loaders[0].startswith("train (")
    assert (summary.done, summary.pending, summary.failed) == (4, 0, [])
    document = json.loads(json.dumps(reporter.document(summary), allow_nan=False))
    costs = []
    for setting in document["settings"]:
        assert setting["measures"]["samples"] == {"mean": 60, "low": 60, "high": 60, "repeats": 2}
        assert setting["measures"]["elapsed_s"]["mean"] > 0.5
        assert setting["measures"]["cpu_s"]["mean"] > setting["measures"]["fetch_cpu_s"]["mean"]
        slow = next(row for row in setting["operations"] if row["operation"] == "Slow")
        costs.append(slow["measures"]["cpu_s"]["mean"])
    # A virtual machine that stands still counts that for CPU time; what is counted twice is twice
    # as much in all runs.
    assert 0.99 * 60 * 0.002 < min(costs) < 1.8 * 60 * 0.002
    (note,) = (note for note in summary.notes if "also iterates" in note)
    assert re.search(r"1 check \(train.py:\d+, .* covers the loader with the most samples", note)


def test_another_command_or_plan_is_refused_and_nothing_is_run(resumed, program):
    folder, *_ = resumed
    before = (folder / "S" / sweep_record.NAME).read_bytes()
    plan = ("--workers", "0,2", "--repeat", "2", "-o", "S")
    other = begin(folder, program, *plan, mode="plain", name="other").end()
    assert (other.code, started_in(other)) == (2, 0)
    assert b"another command" in other.err
    own = {"mode": "slow", "name": "more", "python": PYTHON}
    more = begin(folder, program, "--workers", "0,4", *plan[2:], **own).end()
    assert (more.code, started_in(more)) == (2, 0)
    assert b"settings are not the same" in more.err
    assert (folder / "S" / sweep_record.NAME).read_bytes() == before


def started_in(ended):
    return ended.truth.read_text().count("started") if ended.truth.exists() else 0


def test_a_setting_that_fails_is_told_and_the_sweep_goes_on(program, tmp_path):
    options = ("--workers", "1,2", "--repeat", "1", "-o", "S", "--counters", "none")
    ended = begin(tmp_path, program, *options, mode="odd").end()
    assert ended.code == 1
    assert b"failed: exit code 7" in ended.err
    assert b"out of luck\\x1b[31m" in ended.err  # nothing that steers a terminal
    runs = sweep_record.load(tmp_path / "S").runs.set_index("num_workers")
    assert runs["state"].to_dict() == {1: "failed", 2: "done"}
    assert runs["exit_code"].to_dict() == {1: 7, 2: 0}
    summary = summarise(sweep_record.load(tmp_path / "S"))
    assert [failure["problem"] for failure in summary.failed] == ["exit code 7"]

    (tmp_path / "repaired").touch()
    again = Start([*LOTUS, "sweep", "--resume", "S"], tmp_path, "again", {}).end()
    assert again.code == 0
    assert started_in(again) == 1
    assert states(tmp_path / "S") == ["done", "done"]


def test_a_setting_that_did_not_take_effect_does_not_count(program, tmp_path):
    options = ("--workers", "1,2", "--repeat", "2", "-o", "S", "--counters", "none")
    ended = begin(tmp_path, program, *options, mode="stream").end()
    assert ended.code == 1
    runs = sweep_record.load(tmp_path / "S").runs
    assert runs.groupby("num_workers")["state"].agg(set).to_dict() == {1: {"done"}, 2: {"failed"}}
    failed = next(line for line in ended.err.splitlines() if b"failed: the setting" in line)
    assert b"num_workers was 1 instead of 2" in failed
    assert b"its data set is iterable" in failed
    assert b"--iterable-safe" in failed
    # What cannot succeed is not tried again, and not said to.
    assert started_in(ended) == 3
    assert b"its other round is not made" in ended.err
    assert b"2 of 4 runs cannot succeed" in ended.err
    assert b"--resume" not in ended.err
    summary = summarise(sweep_record.load(tmp_path / "S"))
    assert all("--iterable-safe" in failure["problem"] for failure in summary.failed)
    assert len(summary.failed) == 2


def test_runs_that_are_gone_are_made_again(resumed):
    folder = resumed[0]  # a sweep goes on where it began
    path = folder / "copy"
    shutil.copytree(folder / "S", path)
    names = sweep_record.load(path).runs["directory"].tolist()
    kept = (path / names[3] / "run.json").stat().st_mtime_ns
    shutil.rmtree(path / names[0])
    shutil.rmtree(path / names[1] / "events")
    (path / names[2] / "run.json").write_text("{")
    again = Start([*LOTUS, "sweep", "--resume", "copy"], folder, "gone", {}).end()
    assert again.code == 0
    assert started_in(again) == 3
    assert b"3 runs can no longer be read and will be made again: runs/" in again.err
    assert (path / f"{names[2]}.unreadable" / "events").is_dir()
    assert states(path) == ["done"] * 4
    assert len(summarise(sweep_record.load(path)).runs) == 4
    assert (path / names[3] / "run.json").stat().st_mtime_ns == kept


def test_a_program_without_a_loader_is_told(program, tmp_path):
    options = ("--workers", "2", "--repeat", "1", "-o", "S", "--counters", "none")
    ended = begin(tmp_path, program, *options, mode="none").end()
    assert ended.code == 1
    assert b"no DataLoader was iterated" in ended.err


@pytest.fixture(scope="module")
def one_loader(program, tmp_path_factory):
    """The folder of a sweep of one of two loaders, and how it ended."""
    folder = tmp_path_factory.mktemp("one_loader")
    options = ("--workers", "2", "--prefetch", "4", "--pin-memory", "off", "--persistent", "off")
    options += ("--loader", "Check", "--repeat", "1", "-o", "S", "--counters", "none", "-q")
    return folder, begin(folder, program, *options, extra=("--token", "hunter22hunter22")).end()


def test_one_loader_alone_can_be_set(one_loader):
    folder, ended = one_loader
    assert (ended.code, ended.err) == (0, b"")
    sweep = sweep_record.load(folder / "S")
    loaders = sweep.loaded(sweep.settings()[0])[0].loaders.set_index("dataset")
    assert loaders.loc["Check", ["num_workers", "prefetch_factor"]].tolist() == [2, 4]
    assert loaders.loc["Train", ["num_workers", "prefetch_factor"]].tolist() == [1, 3]
    summary = summarise(sweep)
    assert summary.loaders[0].startswith("check (")
    (note,) = (note for note in summary.notes if "also iterates" in note)
    assert re.search(
        r"also iterates 0 train \(train.py:\d+, iterated at train.py:\d+\); this sweep covers",
        note,
    )
    assert "that --loader names" in note


def test_a_secret_of_the_command_is_not_kept(one_loader):
    folder, _ = one_loader
    kept = list(folder.rglob("*.json"))
    assert len(kept) >= 2  # of the sweep and its run
    for path in kept:
        assert b"hunter22" not in path.read_bytes()
    again = Start([*LOTUS, "sweep", "--resume", "S"], folder, "again", {}).end()
    assert again.code == 2
    assert b"holds a secret" in again.err


def test_a_command_that_is_not_there_leaves_nothing(tmp_path):
    words = [*LOTUS, "sweep", "--workers", "1", "-o", "S", "--", "no-such-program"]
    ended = Start(words, tmp_path, "sweep", {}).end()
    assert ended.code == 127
    assert not (tmp_path / "S").exists()


def test_an_interrupt_of_the_terminal_reaches_the_program_once(tmp_path, no_signal_is_ignored):
    """It goes to all processes of the terminal at once."""
    script = tmp_path / "count.py"
    script.write_text(
        "import signal, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "open('ready', 'w').close()\n"
        "while not seen:\n    time.sleep(0.01)\n"
        "time.sleep(1)\n"
        "open('seen', 'w').write(str(len(seen)))\n"
    )
    words = [*LOTUS, "sweep", "--workers", "1,2", "--repeat", "1", "-o", "S", "--counters", "none"]
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.chdir(tmp_path)
            os.execvpe(words[0], [*words, "--", PYTHON, "count.py"], environment({}))
        finally:
            os._exit(1)
    output = b""
    wait_until((tmp_path / "ready").exists, pid)
    os.write(terminal, b"\x03")
    try:
        while part := os.read(terminal, 4096):
            output += part
    except OSError:  # how Linux tells that nobody holds the other end
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert (tmp_path / "seen").read_text() == "1"
    assert b"lotus sweep --resume S" in output
    assert b"\r\nlotus: stopped" in output  # below ^C
    assert states(tmp_path / "S") == ["pending", "pending"]


@pytest.fixture(scope="module")
def hung_up(program, tmp_path_factory):
    """A sweep as under nohup while another is begun and the terminal hangs up, and that other."""
    folder = tmp_path_factory.mktemp("hung_up")
    options = ("--workers", "0,1", "--repeat", "1", "-o", "S", "--counters", "none")
    nohup = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *LOTUS, "sweep", *options, "--"]
    first = Start([*nohup, PYTHON, str(program), "held"], folder, "sweep", {})
    wait_until(lambda: started(first) == 1, first.process)
    second = begin(folder, program, *options, mode="held", name="second", python=PYTHON).end()
    first.process.send_signal(signal.SIGHUP)
    (folder / "go").touch()
    return folder, first.end(), second


def test_a_signal_that_was_ignored_from_the_start_stops_nothing(hung_up):
    folder, first, _ = hung_up
    assert first.code == 0
    assert states(folder / "S") == ["done", "done"]


def test_two_sweeps_do_not_write_into_one_directory(hung_up):
    _, first, second = hung_up
    assert (second.code, started_in(second)) == (2, 0)
    assert b"another lotus sweep is at work in S" in second.err
    assert started_in(first) == 2


def test_help_has_an_example():
    words = [*LOTUS, "sweep", "--help"]
    ended = subprocess.run(words, env=environment({}), capture_output=True, text=True, check=True)
    assert "lotus sweep --workers 1,2,4,8 -o S -- python train.py" in ended.stdout
