"""`lotus attach` on running programs: planted causes, what it leaves behind, what it refuses."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lotus.attach import observation
from lotus.attach.files import attached_run
from lotus.attach.processes import process_discovery
from lotus.attach.stacks import stack_recorder
from lotus.attach.threads.thread_readings import children_of
from tests.integration.attach.attaching import (
    OWN,
    PROGRAMS,
    attach,
    children,
    is_py_spy,
    running,
    sleeping,
)
from tests.integration.called import called
from tests.integration.launched import LOTUS
from tests.waiting import wait_until

UV = shutil.which("uv", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}") or ""
pytestmark = pytest.mark.skipif(bool(stack_recorder.find()[1]), reason="py-spy is needed")


@pytest.fixture(scope="module")
def program() -> Iterator[subprocess.Popen[bytes]]:
    """A program whose samples sleep, which runs beside all tests that need no other one."""
    with running(*sleeping(1_000_000)) as started:
        wait_until(lambda: len(children(started.pid)) == 2, started)
        yield started


@pytest.fixture(scope="module")
def run(program: subprocess.Popen[bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What was seen of that program."""
    directory = tmp_path_factory.mktemp("attach") / "run"
    # A worker stands for its main process.
    done = attach(children(program.pid)[1], "--seconds", "5", "-o", str(directory))
    assert program.poll() is None
    assert done.returncode == 0, done.stderr
    assert "INPUT-BOUND (sampled)" in done.stdout
    assert "Ask (sleeps, not computing)" in done.stdout
    return directory


def test_the_planted_cause_is_first(run: Path) -> None:
    document = json.loads(called("report", "--json", run).stdout)
    judged = document["verdict"]
    assert judged["kind"] == "input-bound"
    assert judged["input_low"] < judged["input_share"] < judged["input_high"]
    assert judged["causes"][0]["title"] == "Ask (sleeps, not computing)"
    assert "num_workers" in judged["causes"][0]["advice"]
    assert document["loops"][0]["workers"] == 2
    assert document["loops"][0]["title"].startswith("the loop at planted.py:")
    settings = document["loops"][0]["settings"]
    assert (settings["workers"], settings["batch_sizes"]) == (2, [16, 16])
    assert (settings["dataset"], settings["in_sequence"]) == ("Pictures", True)
    assert settings["persistent_workers"] is False


def test_the_directory_holds_nothing_else(run: Path) -> None:
    assert {path.name for path in run.iterdir()} <= {".made", "attach.json", "run.json"}
    again = attach("1", "-o", str(run))
    assert again.returncode == 2


def test_other_commands_say_in_one_line_what_they_need(run: Path, tmp_path: Path) -> None:
    export = ["export", run, "--format", "folded", "-o", tmp_path / "x"]
    for words in (["map", run], ["whatif", run], export):
        done = called(*words)
        assert done.returncode == 2
        assert "lotus attach" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_it_can_be_compared(run: Path) -> None:
    done = called("compare", run, run, "--json")
    assert done.returncode == 0
    compared = json.loads(done.stdout)["comparisons"][0]
    assert compared["verdict"]["kind"] == "same run"
    lines = {line["id"]: line for line in compared["loaders"][0]["lines"]}
    assert {"wait_share", "step_share", "operation:Ask"} <= set(lines)
    assert lines["wait_share"]["difference"] == 0


def test_its_page_stands_alone(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert called("report", run, "--html", page).returncode == 0
    text = page.read_text()
    assert "Ask (sleeps, not computing)" in text
    assert "sampled" in text


def test_the_program_does_not_notice_and_its_end_is_seen(tmp_path: Path) -> None:
    with running(*sleeping(3000)) as program:
        wait_until(lambda: len(children(program.pid)) == 2, program)
        done = attach(str(program.pid), "--seconds", "600", "-o", str(tmp_path / "run"))
        assert program.wait() == 0
        assert program.stdout is not None
        assert program.stdout.read().startswith(b"seconds ")
    assert done.returncode == 0, done.stderr
    assert "The program ended after " in done.stdout


def test_the_time_in_which_a_program_is_stopped_is_left_out(
    program: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    words = [*LOTUS, "attach", str(program.pid), "--seconds", "15", "-o", str(tmp_path / "r")]
    watcher = subprocess.Popen(words, stdout=subprocess.PIPE)
    wait_until(lambda: any(is_py_spy(pid) for pid in children(watcher.pid)), watcher)
    time.sleep(3.0)
    program.send_signal(signal.SIGSTOP)
    begun = time.monotonic_ns()
    time.sleep(5.0)
    ended = time.monotonic_ns()
    program.send_signal(signal.SIGCONT)
    said = " ".join(watcher.communicate()[0].decode().split())
    assert f"process {program.pid} was stopped (SIGSTOP) for " in said
    assert said.count("that time is left out") == 1
    seen = attached_run.load(tmp_path / "r")
    whole = seen.facts["end_ns"] - seen.facts["start_ns"]
    met = min(ended, seen.facts["end_ns"]) - max(begun, seen.facts["start_ns"])
    assert met > 1e9
    for pid in seen.processes["pid"]:
        own = seen.samples[(seen.samples["pid"] == pid) & (seen.samples["tid"] == pid)]
        assert own["weight_ns"].sum() < whole - 0.8 * met
        looks = seen.looks[seen.looks["pid"] == pid]
        within = (looks["time_ns"] < ended) & (looks["time_ns"] - looks["wall_ns"] > begun)
        assert not within.any()


def test_a_killed_attach_leaves_nothing_behind(
    program: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    before = set(os.listdir(tmp_path))
    words = [*LOTUS, "attach", str(program.pid), "--seconds", "600", "-o", str(tmp_path / "r")]
    watcher = subprocess.Popen(words, env={**os.environ, "TMPDIR": str(tmp_path)})
    wait_until(lambda: any(is_py_spy(pid) for pid in children(watcher.pid)), watcher)
    beside = [pid for pid in children(watcher.pid) if is_py_spy(pid)]
    watcher.kill()
    watcher.wait()
    wait_until(lambda: not any(map(is_py_spy, beside)))
    assert program.poll() is None
    assert set(os.listdir(tmp_path)) - before <= {"r"}


def test_what_cannot_be_watched_is_refused(tmp_path: Path) -> None:
    stopped = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"]
    with running("sleep", "1000") as other, running(*stopped) as still:
        wait_until(lambda: b") T " in Path(f"/proc/{still.pid}/stat").read_bytes())
        for pid, words in (
            (1 << 22, "there is no process"),
            (other.pid, "not a Python program"),
            (still.pid, f"kill -CONT {still.pid}"),
        ):
            done = attach(str(pid), "-o", str(tmp_path / "refused"))
            assert done.returncode == 2
            assert words in done.stderr
            assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "refused").exists()


def test_without_py_spy_it_says_what_to_install(
    program: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = ("", "py-spy is not installed; pip install")
    monkeypatch.setattr(observation.stack_recorder, "find", lambda: missing)
    done = called("attach", program.pid, "-o", tmp_path / "refused")
    assert done.returncode == 2
    assert "py-spy is not installed" in done.stderr


def test_a_program_without_a_loop_is_said_to_have_none(tmp_path: Path) -> None:
    torch = [sys.executable, "-c", "import torch, time; print(flush=True); time.sleep(1000)"]
    with running(*torch) as program:
        assert program.stdout is not None
        program.stdout.readline()
        for seconds in ("2", "10", "40"):  # py-spy may be late on a busy machine
            none = attach(str(program.pid), "--seconds", seconds, "-o", str(tmp_path / "none"))
            assert none.returncode == 2
            if "too little could be read" not in none.stderr:
                break
    assert "in no loop over a DataLoader" in none.stderr


@pytest.mark.skipif(not UV, reason="uv is needed")
def test_a_program_that_uv_runs_is_found(tmp_path: Path) -> None:
    words = [UV, "run", "--no-project", "--no-config", "--offline", "--python", sys.executable]
    cache = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache")}
    with running(*words, "python", *sleeping(1_000_000)[1:], env=cache) as uv:
        # It starts the program in a thread of its own.
        wait_until(lambda: any(len(children_of(pid)) == 2 for pid in children_of(uv.pid)), uv)
        (program,) = children_of(uv.pid)
        run = ["--seconds", "5", "--json", "-o", str(tmp_path / "run")]
        done = attach(str(uv.pid), *run)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["run"]["pid"] == program
    assert document["loops"][0]["title"].startswith("the loop at planted.py:")
    assert any(row["name"] == "Ask" for row in document["loops"][0]["operations"])


@pytest.mark.parametrize("form", ["losses", "total"])
def test_a_comprehension_is_the_loop(tmp_path: Path, form: str) -> None:
    program = PROGRAMS / "comprehension.py"
    with running(sys.executable, program, form) as process:
        wait_until(lambda: len(children(process.pid)) == 2, process)
        run = ["--seconds", "6", "--json", "-o", str(tmp_path / "run")]
        done = attach(str(process.pid), *run)
    assert done.returncode == 0, done.stderr
    loop = json.loads(done.stdout)["loops"][0]
    (line,) = (
        number
        for number, text in enumerate(program.read_text().splitlines(), 1)
        if text.strip().startswith(f"{form} = ")
    )
    assert loop["title"] == f"the loop at comprehension.py:{line}"
    assert loop["workers"] == 2
    assert loop["step_ns"] > 0
    assert loop["wait_ns"] > 0


def _ranks_with_workers(agent: int) -> list[str]:
    found = []
    for rank in children(agent):
        with contextlib.suppress(OSError):  # it has ended
            found += [rank] * bool(children(int(rank)))
    return found


def _loop_of_ranks(pid: int, folder: Path) -> dict[str, Any]:
    """The loop of a job that was looked at until it was seen which rank the others wait for.

    On a busy machine, ranks do little in five seconds.
    """
    loop: dict[str, Any] = {}
    for seconds in (5, 10, 20, 40):
        path = str(folder / f"run-{seconds}")
        done = attach(str(pid), "--seconds", str(seconds), "--json", "-o", path)
        assert done.returncode == 0, done.stderr
        loop = json.loads(done.stdout)["loops"][0]
        if loop["held_up_by"]:
            break
    return loop


def test_the_agent_of_a_job_stands_for_all_ranks(tmp_path: Path) -> None:
    job = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with running(*job, PROGRAMS / "ranks/uneven_ranks.py") as agent:
        wait_until(lambda: len(_ranks_with_workers(agent.pid)) == 2, agent)
        loop = _loop_of_ranks(agent.pid, tmp_path)
        agent.terminate()  # its ranks are in sessions of their own: it ends them
        agent.wait()
    pids = {row["rank"]: row["pid"] for row in loop["ranks"]}
    assert set(pids) == {0, 1}
    assert loop["held_up_by"] == pids[1]
    assert loop["verdict"]["kind"] == "input-bound"


def test_a_program_that_spawns_ranks_stands_for_all_of_them(tmp_path: Path) -> None:
    with running(sys.executable, PROGRAMS / "ranks/spawned_ranks.py") as program:
        # They have no workers: that both iterate is seen by the threads of their process group.
        wait_until(lambda: sum(_joined(int(each)) for each in children(program.pid)) == 2, program)
        loop = _loop_of_ranks(program.pid, tmp_path)
        ranks = sorted(int(each) for each in children(program.pid) if _joined(int(each)))
    pids = {row["rank"]: row["pid"] for row in loop["ranks"]}
    assert pids == dict(enumerate(ranks))
    assert loop["verdict"]["kind"] == "input-bound"
    assert loop["held_up_by"] == pids[1]


def _joined(pid: int) -> bool:
    facts = process_discovery.read_process(pid)
    return facts is not None and facts.joined


_IN_A_NAMESPACE = """
import json, pathlib, subprocess, sys, time

def start():
    program = subprocess.Popen([sys.executable, sys.argv[1], "--samples", "1000000"])
    children = pathlib.Path(f"/proc/{program.pid}/task/{program.pid}/children")
    while len(children.read_text().split()) < 2:
        assert program.poll() is None
        time.sleep(0.05)

def attach(number):
    words = [sys.executable, "-m", "lotus", "attach", "--seconds", "5", "-o", f"inside-{number}"]
    done = subprocess.run(words, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)

start()
attach(1)
start()
attach(2)
time.sleep(1000)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")
def test_in_a_container_the_only_program_and_from_the_host(tmp_path: Path) -> None:
    space = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", _IN_A_NAMESPACE]
    with running(*space, OWN / "sleeping.py", cwd=tmp_path) as outer:
        assert outer.stdout is not None
        only, several = (json.loads(outer.stdout.readline()) for _ in range(2))
        programs = children(int(children(outer.pid)[0]))
        done = attach(programs[0], "--seconds", "5", "--json", "-o", str(tmp_path / "outside"))
    assert only[0] == 0, only[2]
    assert "(sampled)" in only[1]
    assert several[0] == 2
    assert "several processes have torch; name one: " in several[2]
    assert several[2].count("\n") == 1
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["loops"][0]["workers"] == 2
    assert document["verdict"]["causes"][0]["title"] == "Ask (sleeps, not computing)"


def test_top_shows_a_process_that_was_not_traced(program: subprocess.Popen[bytes]) -> None:
    done = subprocess.run(
        [*LOTUS, "top", "--json", str(program.pid)], capture_output=True, text=True
    )
    stacks = called("top", "--json", program.pid, "--stacks")
    assert program.poll() is None
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"]["causes"][0]["kind"] in ("operation", "dataset")
    assert (stacks.returncode, stacks.stderr.count("\n")) == (2, 1)
    assert "py-spy dump" in stacks.stderr
    with running("true") as other:
        other.wait()
    gone = called("top", "--json", other.pid)
    assert (gone.returncode, gone.stderr.count("\n")) == (2, 1)
