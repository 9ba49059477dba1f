"""`lotus top`: real programs, looked at from beside."""

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lotus.live.view import LoopView, View
from tests.integration.called import called
from tests.integration.conftest import LOTUS, PYTHON, environment
from tests.integration.top.watched import Start, Started, Terminal, taken, training, until

pytestmark = pytest.mark.usefixtures("torch")

Stuck = Callable[[str], tuple[Path, View]]


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stuck]:
    """stuck(how): where a program runs that has come to a stop so, and the view of it."""
    started = Started()
    ways = {"sleep": (2, 17), "spin": (0, 17), "lost": (2, -1), "lock": (2, -1)}
    folders = {how: tmp_path_factory.mktemp(how) for how in ways}
    processes = {how: started(folders[how], *way, how) for how, way in ways.items()}

    # A machine that stands still while workers start may be taken for a stop before that.
    stops = {
        "sleep": lambda view: verdict_is("hung")(view) and view.verdict.sample == 17,
        "spin": lambda view: verdict_is("hung", "slow")(view) and view.verdict.sample == 17,
        "lost": lambda view: verdict_is("lost")(view) and view.verdict.batch == 4,
        "lock": lambda view: verdict_is("step")(view) and group_of(view).ready == 4,
    }

    def wait(how: str) -> tuple[Path, View]:
        run = folders[how] / "R"
        return run, until(run, stops[how], processes[how])

    yield wait
    started.end()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "R"


def top(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return called("top", *arguments)


def as_process(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The same as a process of its own."""
    command = [*LOTUS, "top", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment({}), check=False)


def group_of(view: View) -> LoopView:
    (group,) = view.groups
    return group


def group_samples(group: LoopView) -> list[str]:
    return [str(worker.sample) for worker in group.workers if worker.sample is not None]


def samples(view: View) -> list[str]:
    return [sample for group in view.groups for sample in group_samples(group)]


def verdict_is(*kinds: str) -> Callable[[View], bool]:
    return lambda view: view.verdict is not None and view.verdict.kind in kinds


def test_a_running_program(start: Start, run: Path) -> None:
    process = start(pace=0.01, env={})
    until(run, lambda view: taken(view, 20), process)
    shown = as_process("--json", run)
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert document["schema"] == 1
    assert document["state"] == "running"
    assert document["verdict"]["kind"] == "moving"
    (group,) = document["groups"]
    assert group["loader"]["num_workers"] == 2
    assert [worker["worker"] for worker in group["workers"]] == [0, 1]
    for facts in (group["main"], *group["workers"]):
        assert facts["alive"] is True
        assert facts["rss"] > 1 << 20
        assert facts["cpu"] is not None
    # Workers sleep 40 ms a batch, and the consumer does nothing: it waits, for what two can make.
    assert 0 < group["recent"]["batches"] < 51
    assert group["recent"]["samples"] == pytest.approx(4 * group["recent"]["batches"])
    assert group["recent"]["wait_share"] > 0.5
    assert group["operations"][0]["name"] == "Slow"
    assert group["operations"][0]["share"] > 0.5
    assert 0 <= group["ready"] <= group["capacity"] == 4
    text = as_process(run).stdout  # no terminal: one snapshot
    assert "samples/s" in text
    assert re.search(r"worker 1 .* (fetch|idle|send|collate)", text)
    # Nobody's business but the program's: it goes on, and ended well where it is left alone.
    assert process.poll() is None


@pytest.mark.parametrize(("workers", "how", "kind"), [(2, "sleep", "hung"), (0, "spin", "slow")])
def test_a_sample_that_does_not_end_is_named(
    stuck: Stuck, workers: int, how: str, kind: str
) -> None:
    run, view = stuck(how)
    verdict = view.verdict
    assert verdict is not None
    assert (verdict.sample, verdict.batch) == (17, 4)
    group = group_of(view)
    assert group.taken == 4
    maker = group.workers[0] if workers else group.main  # batch 4 is the third of worker 0
    assert (verdict.pid, verdict.worker) == (maker.pid, 0 if workers else -1)
    shown = top("--once", run).stdout
    assert "nothing has moved for" in shown
    assert "sample 17" in shown
    assert f"py-spy dump --pid {maker.pid}" in shown
    document = json.loads(top("--json", run).stdout)
    assert document["verdict"]["kind"] == kind  # after two looks: what it uses of a core is known
    if how == "sleep":
        assert "sleeps" in shown


def test_a_batch_that_nobody_makes(stuck: Stuck) -> None:
    _, view = stuck("lost")
    assert view.verdict is not None
    assert view.verdict.kind == "lost"
    assert view.verdict.batch == 4  # the first beyond what was asked for before
    assert "all 2 workers are idle" in "\n".join(view.verdict.lines)


def test_a_deadlock_in_the_programs_own_step_is_not_the_loaders(stuck: Stuck) -> None:
    run, view = stuck("lock")
    assert view.verdict is not None
    assert view.verdict.kind == "step"
    assert not view.verdict.bad
    assert group_of(view).ready == 4  # the loader has done all that it may
    shown = top("--once", run).stdout
    assert "own step lasts" in shown
    assert f"py-spy dump --pid {group_of(view).main.pid}" in shown


def test_a_stopped_program(start: Start, run: Path) -> None:
    process = start(2)
    view = until(run, lambda view: taken(view, 5), process)
    main = group_of(view).main.pid
    os.kill(main, signal.SIGSTOP)
    view = until(run, verdict_is("stopped"), process)
    assert view.verdict is not None
    assert view.verdict.pid == main
    assert f"kill -CONT {main}" in top("--once", run).stdout
    os.kill(main, signal.SIGCONT)
    until(run, verdict_is("moving"), process)


def test_a_worker_that_was_killed(start: Start, run: Path) -> None:
    process = start(2, how="pause", env={})
    view = until(run, lambda view: taken(view, 4) and group_of(view).ready == 4, process)
    worker = group_of(view).workers[1].pid
    os.kill(worker, signal.SIGKILL)
    view = until(run, verdict_is("dead"), process)
    assert view.verdict is not None
    assert (view.verdict.pid, view.verdict.worker) == (worker, 1)
    assert f"DEAD: worker 1 (pid {worker}) is gone" in top("--once", run).stdout


def test_a_killed_run_shows_its_last_state(start: Start, run: Path) -> None:
    process = start(2, bad=17, how="sleep")
    until(run, lambda view: "17" in samples(view), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    until(run, lambda view: view.state == "killed")
    shown = " ".join(top("--once", run).stdout.split())
    assert "killed; last sign of life" in shown
    assert re.search(r"worker 0 \(pid \d+\) was at: fetch batch 4, sample 17", shown)
    assert f"lotus report {run}" in shown


def test_a_run_that_has_ended_says_so(start: Start, run: Path) -> None:
    process = start(2, most=5)
    assert process.wait() == 0
    shown = top("--once", run).stdout
    assert re.search(r"R: ended 2\d{3}-.* \(code 0\)", " ".join(shown.split()))
    assert f"lotus report {run}" in shown
    assert "was at" not in shown


def test_two_ranks_are_two_groups(start: Start, run: Path, tmp_path: Path) -> None:
    words = f"{shlex.join([PYTHON, str(training(tmp_path))])} 1 {{bad}} sleep 0.002 1000000"
    script = "; ".join(f"RANK={rank} WORLD_SIZE=2 {words.format(bad=17 if rank else -1)} &"
                       for rank in range(2)).replace("&;", "&") + " wait"  # fmt: skip
    process = start(command=["bash", "-c", script], env={})
    view = until(
        run,
        lambda view: (
            len(view.groups) == 2 and taken(view, 4) and group_samples(view.groups[1]) == ["17"]
        ),
        process,
    )
    assert [group.rank for group in view.groups] == [0, 1]
    assert [len(group.workers) for group in view.groups] == [1, 1]
    shown = top("--once", run).stdout
    assert re.search(r"^rank 0 +[\d.,]+ samples/s", shown, re.MULTILINE)
    assert re.search(r"^rank 1 on .*training.py:\d+.*, 1 worker", shown, re.MULTILINE), shown


def test_stacks_name_the_line(start: Start, run: Path) -> None:
    process = start(2, bad=17, how="sleep")
    until(run, lambda view: "17" in samples(view), process)
    shown = top("--once", "--stacks", run).stdout
    if "py-spy is not installed" in shown or "py-spy:" in shown:
        pytest.skip("no py-spy that may look into other processes")
    assert "Slow.__call__ (training.py:" in shown or "__call__ (training.py:" in shown
    assert "lotus hook" not in shown
    terminal = Terminal([*LOTUS, "top", "--stacks", "--interval", "0.2", str(run)], rows=60)
    terminal.until("__call__ (training.py:")
    os.write(terminal.master, b"q")
    assert terminal.end() == 0


def test_no_run_is_a_line(run: Path, tmp_path: Path) -> None:
    shown = top("--once", run)
    assert shown.returncode == 2
    assert "is not a run (yet)" in shown.stderr
    (tmp_path / "file").touch()
    assert "is a file" in top("--once", tmp_path / "file").stderr
    run.mkdir()
    (run / "run.json").write_text("{}")
    assert "is not a lotus run" in top("--once", run).stderr
    assert top("--interval", "0", run).returncode == 2
