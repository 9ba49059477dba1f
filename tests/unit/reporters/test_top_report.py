"""What `lotus top` prints of a view: the most important first, in the room there is."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lotus.live import stack_dump
from lotus.live.hang_detection import Doing, HangVerdict, Loop, judge
from lotus.live.view import LoopView, Rates, View
from lotus.reporters.live import top_report
from tests.unit.live.test_view import IDLE, WAIT, S, at_sample, doing

LOADER = {"call_site": "train.py:31", "dataset": "ImageFolder", "num_workers": 2, "length": 1000}
RATES = Rates(10 * S, 12.5, 800.0, 0.25)


def group(workers: Sequence[Doing] = (), main: Doing = WAIT, **fields: Any) -> LoopView:
    moving = HangVerdict("moving", "moving")
    known: dict[str, Any] = {
        "rank": 0, "host": "host", "others": 0, "loader": LOADER, "loader_number": 0, "epoch": 1,
        "epoch_batch": 5, "recent": RATES, "overall": RATES, "taken": 5, "ready": 3, "capacity": 4,
        "operations": [("Decode", 0.7), ("collate", 0.3)], "verdict": moving, "in_loop": True,
    }  # fmt: skip
    return LoopView(main=main, workers=workers, **(known | fields))


def running(*groups: LoopView, **fields: Any) -> View:
    known: dict[str, Any] = {"command": "python train.py", "elapsed_ns": 60 * S}
    return View("running", groups=groups, **(known | fields))


def hung(workers: Sequence[Doing], **fields: Any) -> LoopView:
    return group(workers, verdict=judge(Loop(WAIT, workers, awaited=5)), **fields)


def shown(view: View, width: int = 100, height: int | None = None, **more: Any) -> str:
    return top_report.text(top_report.lines(view, "R", width, height, **more))


def test_everything_that_is_known_is_there() -> None:
    text = shown(running(group([IDLE, at_sample(rss=3 << 30, pss=2 << 30)])))
    for part in (
        "R: running for 60.0 s", "python train.py", "epoch 1, batch 5 of 1,000",
        "800 samples/s", "25% of the last 10.0 s", "3 batches of at most 4",
        "Decode 70%, collate 30%", "worker 1", "sample 17", "; awaited",
    ):  # fmt: skip
        assert part in text, part


def test_two_hundred_workers_on_a_small_screen_show_the_culprit_first() -> None:
    workers = [doing(number, "idle", 70) for number in range(200)]
    workers[150] = at_sample(150)
    view = running(hung(workers))
    lines = top_report.lines(view, "R", 60, 24)
    assert len(lines) <= 24
    text = [line.text for line in lines]
    assert all(len(line) <= 60 for line in text)
    assert text[2].startswith("HUNG: nothing has moved for 60.0 s; worker 150 is at")
    assert any("next: py-spy dump --pid 251" in line for line in text)
    table = next(k for k, line in enumerate(text) if line.startswith("main "))
    assert text[table + 1].startswith("worker 150 ")
    assert any(line.startswith("and 19") and line.endswith("more: idle") for line in text)


def test_commands_are_never_cut() -> None:
    path = "/a/long/" + "path/" * 20 + "R"
    text = top_report.text(top_report.lines(running(hung([IDLE, at_sample()])), path, 40, 60))
    assert f"next: lotus top --stacks {path}" in text


def test_names_from_the_trace_cannot_steer_the_terminal() -> None:
    evil = "\x1b[2J<script>\n\u202e"
    worker = at_sample(operation=evil, operation_ns=S, asleep="x\x1b]0;")
    view = running(
        hung([IDLE, worker], operations=[(evil, 1.0)], loader=LOADER | {"dataset": evil}),
        command=evil,
        notes=[evil],
    )
    text = shown(view) + top_report.status(view)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[2J<script>\\n" in text


def test_ranks_stand_in_a_line_each_and_the_worst_in_full() -> None:
    groups = [group([IDLE], rank=rank) for rank in range(4)]
    groups[2] = hung([IDLE, at_sample()], rank=2)
    text = shown(running(*groups), 100, 30).splitlines()
    assert text[2].startswith("rank 2: HUNG")
    assert [line[:7] for line in text if line.startswith("rank ") and "waits 25%" in line] == [
        f"rank {rank} " for rank in range(4)
    ]
    assert any(line.startswith("rank 2 on host: ImageFolder at train.py:31") for line in text)
    assert not any(line.startswith("rank 1 on host") for line in text)


@pytest.mark.parametrize(("code", "told"), [(0, True), (None, False)])
def test_a_program_that_was_only_observed_has_no_exit_code(code: int | None, told: bool) -> None:
    view = replace(running(group([IDLE])), state="ended", exit_code=code)
    assert ("(code " in shown(view)) == told


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"state": "absent"}, "no run here yet"),
        ({"state": "begun"}, "no DataLoader has been iterated yet"),
        ({"state": "ended", "exit_code": 0}, "next: lotus report 'a run'"),
        ({"state": "ended", "signal": 9}, "by signal 9"),
        ({"state": "killed"}, "none of its processes is alive"),
        ({"state": "elsewhere"}, "run lotus top on host"),
    ],
)
def test_states(fields: dict[str, Any], message: str) -> None:
    view = replace(running(group([IDLE])), **fields)
    assert message in top_report.text(top_report.lines(view, "a run", 100))


def test_a_killed_run_says_what_each_process_was_doing() -> None:
    gone = at_sample(alive=False, status="", operation="Decode", operation_ns=S)
    text = shown(View("killed", groups=[group([doing(0, "ended", alive=False), gone])]))
    assert "worker 1 (pid 102) was at: fetch batch 5, sample 17 (60.0 s), Decode" in text
    assert "worker 0 (pid" not in text


def test_the_document_is_json_without_nan() -> None:
    view = running(hung([IDLE, at_sample()]), shm=5)
    document = json.loads(
        json.dumps(top_report.document(view, run="R", stacks={102: ["f (x.py:1)"]})),
        parse_constant=lambda name: 1 / 0,
    )
    assert document["schema"] == 1
    assert document["run"] == "R"
    assert document["verdict"]["kind"] == "hung"
    assert document["verdict"]["sample"] == 17
    assert document["groups"][0]["operations"][0] == {"name": "Decode", "share": 0.7}
    assert document["groups"][0]["workers"][1]["rss"] is None
    assert document["stacks"] == {"102": ["f (x.py:1)"]}


def test_the_line_of_live() -> None:
    line = top_report.status(running(group([IDLE])))
    state = "800 samples/s, waits 25% of the time, epoch 1 batch 5/1,000, 3 ready"
    assert line == f"lotus: {state}"
    assert top_report.status(running(hung([IDLE, at_sample()]))).startswith("lotus: HUNG: nothing")
    assert top_report.status(running(group([IDLE], recent=Rates()))) == ""
    assert top_report.status(View("begun")) == ""
    assert len(top_report.status(running(group([IDLE])), 50)) == 50


def test_a_stack_is_that_of_the_main_thread_without_our_hooks() -> None:
    def frame(name: str, path: str) -> dict[str, Any]:
        return {"name": name, "filename": path, "short_filename": path[-8:], "line": 3}

    ours = frame("call_unary", "<lotus hook, as importlib._bootstrap>")
    threads = [
        {"os_thread_id": 8, "thread_name": "Thread-1", "frames": [frame("serve", "/lib/s.py")]},
        {"os_thread_id": 7, "frames": [frame("decode", "/u/train.py"), ours]},
    ]
    assert stack_dump.frames(threads, 7) == ["decode (train.py:3)"]
    assert stack_dump.frames([], 7) == []


def test_stacks_stand_under_their_process() -> None:
    view = running(group([IDLE, at_sample()]))
    frames = [f"f{number} (x.py:{number})" for number in range(9)]
    lines = shown(view, stacks={102: frames}).splitlines()
    place = next(k for k, line in enumerate(lines) if line.startswith("worker 1 "))
    assert lines[place + 1].strip() == "f0 (x.py:0)"
    assert lines[place + 7].strip() == "and 3 outer frames"
