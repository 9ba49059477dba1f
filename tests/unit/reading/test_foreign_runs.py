"""A directory of a run may be anybody's: nothing in it is run, no link out of it is followed, no
pipe in it waited for, and no value in it makes a traceback.
"""

import ast
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import lotus
from lotus import cli
from lotus.common.errors import LotusError
from lotus.format import job_ranks, run_claim, run_directory
from lotus.format.manifest import TraceSettings, begin, sound
from lotus.inside.trace.log import state_page as pages
from lotus.live.snapshots import SnapshotTaker
from lotus.live.tailing import Tail, manifest_of
from lotus.reading.logs import process_states
from lotus.reading.run import load
from lotus.sweep import sweep_plan, sweep_record
from tests.simulation import simulate
from tests.unit.perf_files import sample, write
from tests.unit.sweep.test_sweep_plan import PLAN, begun

ROOT = Path(lotus.__file__).resolve().parents[1]
SECRET = "somewhere-else"
PID = "787987789"  # of a process there

# Each takes what it loads for a program. What pickle and marshal are used for is said beside.
RUNS_WHAT_IT_READS = {"eval", "exec", "compile", "pickle", "marshal", "shelve", "yaml", "dill",
                      "joblib", "cloudpickle", "runpy", "read_pickle", "literal_eval"}  # fmt: skip
BETWEEN_OUR_PROCESSES = {
    "inside/tune/candidates/loading/batch_contents.py": "pickle",  # dumps for a digest
    "inside/tune/candidates/trials/open_candidates.py": "pickle",  # a batch of our own child
    "inside/tune/candidates/processes/forked_child.py": "pickle",  # questions, answers
    "inside/apply/settings_hooks.py": "pickle",  # the class of an error
    "inside/cache/fingerprints.py": "marshal",  # dumps for a digest
    "analysis/common/reduction_backends.py": "joblib",  # results of processes that it starts
}


def test_no_code_can_run_what_a_directory_holds() -> None:
    for package in ("lotus", "native_map"):
        for path in (ROOT / package).rglob("*.py"):
            name = str(path.relative_to(ROOT / package))
            if name.startswith("workloads/"):  # scripts as users have them
                continue
            used: set[str] = set()
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    used.add(node.func.id)
                elif isinstance(node, ast.Attribute) and node.attr == "read_pickle":
                    used.add(node.attr)
                elif isinstance(node, ast.Import):
                    used |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    used.add((node.module or "").partition(".")[0])
                elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                    used.add("pickle")
            assert used & RUNS_WHAT_IT_READS <= {BETWEEN_OUR_PROCESSES.get(name)}, path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run beside which lies another one, of which nothing may be seen."""
    simulate(tmp_path / SECRET, ops=((SECRET, 1000),), first_pid=int(PID))
    other = tmp_path / SECRET
    (other / "state").mkdir(exist_ok=True)
    page = memoryview(bytearray(pages.SIZE)).cast("q")
    page[pages.W_MAGIC], page[pages.W_PID], page[pages.W_PHASE] = pages.MAGIC, int(PID), pages.FETCH
    (other / "state" / "other.state").write_bytes(page)
    write(other / "perf.data", sample(10, pid=int(PID)))
    (other / "py-spy").mkdir()
    (other / "py-spy" / "0.json").write_text("[]")
    return simulate(tmp_path / "run", workers=1, batches=2)


def linked(run: Path, name: str) -> None:
    """Put a link to the other run's thing in the place of this one's."""
    mine, other = run / name, run.parent / SECRET / name
    assert other.exists()
    if mine.is_dir():
        shutil.rmtree(mine)
    elif mine.exists():
        mine.unlink()
    mine.parent.mkdir(exist_ok=True)
    mine.symlink_to(other)


def seen(run: Path) -> str:
    """All that any reader sees of a run."""
    texts: list[str] = []
    try:
        loaded = load(run)
        texts += [loaded.ops.to_csv(), loaded.processes.to_csv(), str(loaded.manifest)]
        texts += [loaded.samples["pid"].to_csv(), loaded.workers.to_csv()]
        texts += [str(loaded.lost)]
        try:
            texts.append(loaded.functions.to_csv())
            texts.append(loaded.python_functions.to_csv())
        except LotusError as error:
            texts.append(f"refused: {error}")
    except LotusError as error:
        texts.append(f"refused: {error}")
    texts.append(str(process_states.read(run)))
    texts.append(str(job_ranks.recorded(run)))
    texts.append(str([process.header for process in Tail(run).read()]))
    texts.append(str(SnapshotTaker(run).take({})))
    try:
        texts.append(str(manifest_of(run)))
    except LotusError as error:
        texts.append(f"refused: {error}")
    return "\n".join(texts).replace(str(run.parent / SECRET), "")


def test_what_is_told_of_a_whole_run_is_seen(run: Path) -> None:
    assert SECRET in seen(run.parent / SECRET).replace(str(run), "")
    assert PID in seen(run.parent / SECRET)


@pytest.mark.parametrize(
    "name", ["events", "run.json", "processes.jsonl", "state", "state/other.state", "perf.data"]
)
def test_no_link_out_of_a_run_is_followed(run: Path, name: str) -> None:
    linked(run, name)
    text = seen(run)
    assert SECRET not in text
    assert PID not in text
    if not name.startswith("state"):  # which nobody counts on
        assert "refused" in text or "link" in text or "cannot be read" in text


def test_no_link_to_a_log_is_followed(run: Path) -> None:
    for log in (run.parent / SECRET / "events").iterdir():
        (run / "events" / f"a{log.name}").symlink_to(log)
    text = seen(run)
    assert SECRET not in text
    assert PID not in text
    assert "cannot be read" in text


@pytest.mark.parametrize("name", ["py-spy", "py-spy/0.json"])
def test_no_link_to_stacks_is_followed(run: Path, name: str) -> None:
    linked(run, name)
    manifest = json.loads((run / "run.json").read_text())
    piece = {"file": "0.json", "start_ns": 1, "seen_ns": 2, "end_ns": 3}
    manifest["recorders"] = {"py_spy": {"rate": 100, "slices": [piece]}}
    (run / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(LotusError, match="is a link"):
        len(load(run).python_functions)


@pytest.mark.parametrize("target", ["/etc/passwd", "/dev/shm/lotus-other", "../somewhere"])
def test_settling_pages_touches_nothing_but_our_own(run: Path, target: str) -> None:
    (run / "state").mkdir(exist_ok=True)
    (run / "state" / "mine.state").symlink_to(target)
    process_states.settle(run)
    assert os.readlink(run / "state" / "mine.state") == target


def test_overwriting_a_run_removes_links_and_nothing_behind_them(run: Path) -> None:
    other = run.parent / SECRET
    before = sorted(path.name for path in other.rglob("*"))
    for name in ("events", "state", "perf.data", "py-spy", "processes.jsonl"):
        linked(run, name)
    run_directory.make(run, force=True)
    assert sorted(path.name for path in other.rglob("*")) == before
    assert os.listdir(run) == [run_claim.NAME]


def test_no_link_out_of_a_sweep_is_followed(tmp_path: Path) -> None:
    sweep = begun(tmp_path / "sweep", PLAN)
    whole = json.loads((sweep.path / sweep_record.NAME).read_text())
    (tmp_path / "elsewhere").mkdir()
    first = sweep.path / whole["runs"][0]["directory"]
    first.parent.mkdir(exist_ok=True)
    first.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LotusError, match="is a link"):
        sweep_record.load(sweep.path)
    first.unlink()
    first.parent.rmdir()
    first.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LotusError, match="is a link"):
        sweep_record.load(sweep.path)
    first.parent.unlink()
    sweep_record.load(sweep.path)
    (sweep.path / sweep_record.NAME).rename(tmp_path / "other.json")
    (sweep.path / sweep_record.NAME).symlink_to(tmp_path / "other.json")
    with pytest.raises(LotusError, match="cannot read"):
        sweep_record.load(sweep.path)


@pytest.mark.parametrize(
    "name", ["run.json", "processes.jsonl", "events/one.ltr", "state/one.state", "perf.data"]
)
def test_no_pipe_is_waited_for(run: Path, name: str) -> None:
    place = run / name
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    reasons = {"state/one.state": "", "events/one.ltr": "file in events/ that cannot be read"}
    reason = reasons.get(name, "not a plain file")
    assert reason in seen(run) or "was not read" in seen(run)
    run_directory.is_run(run)
    assert cli.main(["report", str(run)]) in (0, 2)


def test_a_sweep_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / sweep_record.NAME)
    with pytest.raises(LotusError, match="cannot read"):
        sweep_record.load(tmp_path)


def test_a_recorded_command_that_others_could_write_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = begun(tmp_path / "sweep", PLAN)
    place = sweep.path / sweep_record.NAME
    assert sweep_plan.command_of(sweep, []) == ["true"]
    for mode in (0o660, 0o602):
        place.chmod(mode)
        with pytest.raises(LotusError, match="may be written by other users"):
            sweep_plan.command_of(sweep, [])
        assert sweep_plan.command_of(sweep, ["true"]) == ["true"]
    place.chmod(0o600)
    elsewhere = sweep_record.load(sweep.path)
    elsewhere.manifest["host"] = "another"
    with pytest.raises(LotusError, match="another machine"):
        sweep_plan.command_of(elsewhere, [])
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(LotusError, match="another user"):
        sweep_plan.command_of(sweep, [])


ODD: list[Any] = [None, True, -1, 2**80, 0.5, float("inf"), "x\x1b[2J", [], [1], ["a", {}], {}]
ODD += [{"a": []}, {"model": 3, "affinity": "2", "quota": -1, "logical": [0]}, "\u202e\ud800"]


def test_whatever_stands_in_a_manifest_is_left_out_and_told(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads((run / "run.json").read_text())
    fields = [*begin(["x"], TraceSettings(), {}), "recorders", "ranks"]
    for number, value in enumerate(ODD):
        wrong = {name: value for name in fields[number % 4 :: 4] if name != "schema"}
        for name in wrong:
            whole_of_it = {**whole, name: value}
            left, bad = sound(whole_of_it)
            assert value is None or name not in bad or name not in left
        (run / "run.json").write_text(json.dumps({**whole, **wrong}))
        for options in ([], ["--json"]):
            assert cli.main(["report", *options, str(run)]) == 0, wrong
            out = capsys.readouterr().out
            assert all(char.isprintable() or char == "\n" for char in out)
        noted = (
            load(run)
            .lost["what"]
            .str.contains("run.json has fields or values that lotus does not write")
            .any()
        )
        assert noted == bool(sound({**whole, **wrong})[1])


def test_what_begins_a_run_is_sound() -> None:
    whole = begin(["python", "train.py"], TraceSettings(max_log=5, ops=("a",)), dict(os.environ))
    assert sound(whole) == (whole, [])
