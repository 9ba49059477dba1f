"""`lotus run`: which files it takes, and what it tells the program of a balance.json."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lotus import cli
from lotus.common.errors import LotusError
from lotus.settings import settings_run, tuned_file
from lotus.settings import share_plan as plans
from lotus.settings.settings_run import Shares
from lotus.settings.share_plan import ModelSignature, SharePlan
from lotus.settings.space import Setting
from lotus.settings.tuned_file import Entry, Target, Tuned

ECHO = "import os; print(os.environ['LOTUS_SETTINGS'])"
TARGET = Target(0, "train.py:12", "ImageFolder", 1000, "DistributedSampler")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with balance.json and tuned.json, which is the current one."""
    monkeypatch.chdir(tmp_path)
    plans.write(
        tmp_path / "balance.json", SharePlan((24, 8), "lotus", TARGET, ModelSignature(7, "ab"))
    )
    tuned_file.write(tmp_path / "tuned.json", Tuned((Entry(TARGET, Setting(3)),)))
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lotus", "run", *arguments]
    return subprocess.run(
        [*command, "--", sys.executable, "-c", ECHO], capture_output=True, text=True
    )


def test_the_program_is_told_of_shares_and_settings(files: Path) -> None:
    both = ("--settings", "tuned.json", "--settings", "balance.json")
    ended = run(*both, "--loss", "sum", "--rebalance-every", "50")
    assert ended.returncode == 0, ended.stderr
    received = json.loads(ended.stdout)
    assert received["loaders"][0]["setting"]["num_workers"] == 3
    assert received["balance"] == {
        "batch_sizes": [24, 8],
        "loader": received["loaders"][0]["loader"],
        "model": {"parameters": 7, "shapes": "ab"},
        "loss": "sum",
        "wait_s": settings_run.WAIT_S,
        "rebalance_every": 50,
    }
    # AND it is said that neither met its loader
    lines = [line for line in ended.stderr.splitlines() if "ImageFolder" in line]
    assert len(lines) == 2
    assert "so its setting was not applied; no other was made" in lines[0]
    assert "was not read from, so no shares were applied; no other was made" in lines[1]


def test_a_plan_alone_puts_no_settings_on(files: Path) -> None:
    (files / "tuned.json").unlink()
    plans.write(files / "balance.json", SharePlan((3, 1), "equal"))
    ended = run("--settings", "balance.json")
    received = json.loads(ended.stdout)
    assert (received["loaders"], received["balance"]["loss"]) == ([], "mean")
    assert (received["balance"]["loader"], received["balance"]["model"]) == (None, None)
    assert ended.stderr == (
        "lotus: a loader with a DistributedSampler that shuffles was not read from, so no shares "
        "were applied; no other was made\n"
    )


def test_what_was_applied_is_not_missed(tmp_path: Path) -> None:
    facts = tmp_path / "said"
    shares = Shares(SharePlan((3, 1), "lotus", TARGET))
    facts.write_text('{"made": "the loader of Other (5 samples, Own)"}\n')
    missing = settings_run.not_found(Tuned(()), settings_run.recorded_facts(facts), shares)
    assert len(missing) == 1
    assert missing[0].endswith("no shares were applied; made were Other (5 samples, Own)")
    for word in ("applied", "refused"):
        facts.write_text(json.dumps({"balance": word}) + "\n")
        assert settings_run.not_found(Tuned(()), settings_run.recorded_facts(facts), shares) == []


def broken(files: Path, **changes: object) -> None:
    document = {**plans.document(SharePlan((24, 8), "lotus")), **changes}
    (files / "balance.json").write_text(json.dumps(document))


def test_a_rank_without_samples_stops_before_the_program_starts(
    files: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken(files, batch_sizes=[32, 0])
    code = cli.main(["run", "--settings", "balance.json", "--", "sh", "-c", "echo started"])
    out, err = capfd.readouterr()
    assert code != 0
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "rank 1 would have no samples" in err


@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_what_is_no_file_is_refused_without_waiting(files: Path, kind: str) -> None:
    place = Path("/dev/zero")
    if kind != "device":
        place = files / kind
        os.mkfifo(place) if kind == "pipe" else place.mkdir()
    why = "Is a directory" if kind == "directory" else "not a plain file"
    for words in (["run", "--settings"], ["whatif", "RUN", "--ranks", "2", "--plan"]):
        command = [sys.executable, "-m", "lotus", *words, str(place)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 2
        assert ended.stderr.startswith(f"lotus: cannot read {place}: {why}; ")
        assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("plan", [False, True])
def test_a_file_that_is_too_large_is_refused(
    files: Path, plan: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    large = files / "large.json"
    with large.open("wb") as file:
        file.write(b'{"format": "lotus-balance"}' if plan else b"")
        file.truncate(1 << 34)
    words = ["whatif", "RUN", "--ranks", "2", "--plan"] if plan else ["run", "--settings"]
    assert cli.main([*words, str(large)]) == 2
    message = capfd.readouterr().err
    assert "it is larger than 16 MB" in message
    assert message.count("\n") == 1


def test_a_link_to_a_file_is_followed(files: Path) -> None:
    (files / "other.json").symlink_to("tuned.json")
    assert tuned_file.read(files / "other.json") == tuned_file.read(files / "tuned.json")


def test_two_plans_are_one_too_many(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plans.write(files / "other.json", SharePlan((1, 1), "equal"))
    command = ["run", "--settings", "balance.json", "--settings", "other.json", "--", "true"]
    assert cli.main(command) != 0
    assert "balance.json and other.json both have shares" in capfd.readouterr().err


def test_a_name_in_a_file_steers_no_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loaders = [
        Entry(Target(number, "a\x1b[2J", "\x9b", 9, "\u202e"), Setting(3)) for number in (0, 1)
    ]
    tuned_file.write(tmp_path / "odd.json", Tuned(tuple(loaders)))
    assert cli.main(["run", "--settings", str(tmp_path / "odd.json"), "--print"]) == 0
    out = capfd.readouterr().out
    assert r"\x1b[2J" in out
    assert out.replace("\n", "").isprintable()


def test_the_change_of_code_is_printed(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--settings", "balance.json", "--print"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "batch_size = [24, 8][rank]"
    assert lines[2].startswith("(loss * 2 * batch_size / 32).backward()")


def test_shares_that_no_environment_can_hold_are_refused() -> None:
    with pytest.raises(LotusError, match="shares of 50000 ranks are too many"):
        settings_run.request(Tuned(()), None, Shares(SharePlan((100,) * 50_000, "equal")))


def test_a_mode_is_told_without_any_file(files: Path) -> None:
    (files / "tuned.json").unlink()
    ended = run("--mode", "hybrid", "--groups", "0,2/1", "--every", "4")
    assert ended.returncode == 0, ended.stderr
    received = json.loads(ended.stdout)
    assert received["mode"] == {
        "name": "hybrid",
        "every": 4,
        "after": 0,
        "groups": [[0, 2], [1]],
        "staleness": 4,
        "wait_s": settings_run.WAIT_S,
    }
    assert "so --mode hybrid changed nothing" in ended.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--every", "4"], "--every is for --mode local and --mode hybrid"),
        (["--mode", "sync", "--staleness", "1"], "--staleness is for --mode async"),
        (["--mode", "local", "--groups", "0/1"], "--groups is for --mode hybrid"),
        (["--mode", "hybrid", "--groups", "0,2"], "groups with each rank once, such as 0,1/2,3"),
        (["--mode", "async", "--settings", "balance.json"], "--mode async cannot use shares"),
        (["--rebalance-every", "5", "--settings", "tuned.json"], "needs a plan"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_the_start(
    files: Path, words: list[str], message: str
) -> None:
    plans.write(files / "balance.json", SharePlan((3, 1), "equal"))
    ended = run(*words)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert ended.stdout == ""
