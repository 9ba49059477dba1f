"""attach.json: what was written is read again, and what is hostile is refused with one line."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lotus.analysis.attached.evidence import phases
from lotus.attach.files import attached_run
from lotus.attach.stacks.frame_locals import FrameLocals
from lotus.attach.stacks.stack_phases import Label, Site
from lotus.common.errors import LotusError
from native_map.recording.python_frame import Frame
from tests.unit import bounded

FACTS = {
    "lotus": "0.1.0", "state": "watched", "host": "h", "command": ["python", "train.py"], "pid": 7,
    "start_ns": 10**9, "end_ns": 3 * 10**9, "stacks": 4, "errors": 0, "torn": 0, "bound_ns": 1000,
    "cost_ns": 1, "cores": 2.0, "machine_cores": 2, "memory_bytes": 1 << 30,
}  # fmt: skip


def write(directory: Path) -> Path:
    samples = pd.DataFrame(
        {"time_ns": [10**9, 2 * 10**9], "weight_ns": [5, 6], "pid": 7, "tid": 7, "label": [0, 1]}
    )
    process = dict.fromkeys(attached_run.PROCESS, -1) | {"pid": 7, "main": 7}
    step = Label(phases.STEP, "", 0, (Frame("step", "/app/m.py", 3),))
    record = attached_run.AttachRecord(
        facts=FACTS,
        processes=[process],
        sites=[Site("main", "/app/train.py", 9, 10, 12)],
        labels=[Label(phases.WAIT, "", 0), step],
        samples=samples,
        threads=[(7, 7, "MainThread")],
        looks=[(10**9, 7, "sleep", 20, 1, 2, 3)],
        machine=[[10**9, 1, 2, 3, 0, 5]],
        memory=[],
        missing=["a sentence"],
        settings=[FrameLocals(8, workers=2, batch=16, dataset="Pictures")],
        counters={
            "uarch": "amd_zen5", "metrics": {}, "events": ["task_clock"], "notes": ["a note"],
            "counts": {"pid": [7], "tid": [7], "event": [0], "count": [9], "enabled_ns": [9],
                       "running_ns": [9]},
            "clocks": {"pid": [7], "clock_ns": [-1], "before_ns": [0]},
        },
    )  # fmt: skip
    attached_run.write(directory, record)
    return directory / "attach.json"


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write(tmp_path)
    evidence = attached_run.load(tmp_path)
    assert evidence.labels["phase"].tolist() == [phases.WAIT, phases.STEP]
    assert evidence.looks["reason"].tolist() == ["sleep"]
    assert evidence.chains["function"].tolist() == ["step"]
    assert evidence.samples["weight_ns"].tolist() == [5, 6]
    assert evidence.loops["head"].tolist() == [9]
    assert evidence.missing == ("a sentence",)
    assert evidence.mains == [7]
    assert evidence.settings["batch"].tolist() == [16]
    assert evidence.settings["drop_last"].tolist() == [-1]
    assert evidence.counters is not None
    assert evidence.counters.events == ("task_clock",)
    assert evidence.counters.counts["count"].tolist() == [9]
    assert evidence.counters.clocks["clock_ns"].tolist() == [-1]


def test_a_file_of_an_older_lotus_has_less(tmp_path: Path) -> None:
    path = write(tmp_path)
    content = json.loads(path.read_text())
    del content["settings"], content["counters"], content["processes"][0]["kept_ns"]
    path.write_text(json.dumps(content))
    evidence = attached_run.load(tmp_path)
    assert not len(evidence.settings)
    assert evidence.counters is None
    assert evidence.processes["kept_ns"].tolist() == [-1]


def changed(path: Path, *way: Any, to: Any) -> None:
    content = json.loads(path.read_text())
    inner = content
    for name in way[:-1]:
        inner = inner[name]
    inner[way[-1]] = to
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("way", "to"),
    [
        (("schema",), "1"),
        (("schema",), 2),
        (("samples", "label"), [0, 9]),
        (("samples", "label"), [0, -1]),
        (("samples", "time_ns"), [1]),
        (("samples", "time_ns"), [1, 1 << 70]),
        (("samples", "weight_ns"), [1, 2.5]),
        (("samples",), []),
        (("looks", "reason"), [99]),
        (("looks", "pid"), ["7"]),
        (("labels", 0), ["wait"]),
        (("labels", 0, 0), "os.system"),
        (("labels", 0, 2), 5),
        (("labels", 1, 3), [["f", "g"]]),
        (("labels", 1, 3, 0, 0), "x" * 100_000),
        (("processes", 0, "pid"), -5),
        (("processes", 0), 3),
        (("loops", 0, "file"), None),
        (("threads", 0), ["a"]),
        (("command",), "python"),
        (("command",), [3]),
        (("end_ns",), 0),
        (("cores",), "many"),
        (("cores",), -1),
        (("missing",), [[]]),
        (("settings",), {}),
        (("settings", 0), [1]),
        (("settings", 0, "batch"), -2),
        (("settings", 0, "pid"), -1),
        (("settings", 0, "dataset"), None),
        (("counters",), []),
        (("counters", "metrics"), []),
        (("counters", "metrics"), {"ipc": 3}),
        (("counters", "events"), []),
        (("counters", "events"), ["cycles", "cycles"]),
        (("counters", "events", 0), 3),
        (("counters", "counts", "event"), [1]),
        (("counters", "counts", "count"), [-1]),
        (("counters", "counts", "running_ns"), [1.5]),
        (("counters", "clocks", "pid"), []),
        (("counters", "notes"), "none"),
        (("counters", "uarch"), None),
    ],
)
def test_a_hostile_file_is_refused_with_one_line(
    tmp_path: Path, way: tuple[Any, ...], to: Any
) -> None:
    changed(write(tmp_path), *way, to=to)
    with pytest.raises(LotusError) as refusal:
        attached_run.load(tmp_path)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"schema": 1}', "null"])
def test_what_is_no_such_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "attach.json").write_text(text)
    with pytest.raises(LotusError, match="attach"):
        attached_run.load(tmp_path)


@pytest.mark.parametrize("value", ["{}", "[]", '{"a":1}', "1"])
@pytest.mark.parametrize("name", ["attach.json", "functions.json"])
def test_a_file_of_many_small_values_costs_little_memory(
    tmp_path: Path, value: str, name: str
) -> None:
    # GIVEN 60 MB, of which Python would make more than a gigabyte of objects
    write(tmp_path)
    count = (60 << 20) // (len(value) + 1)
    (tmp_path / name).write_text(f'{{"schema":1,"more":[{",".join([value] * count)}]}}')

    def refused() -> str:
        with pytest.raises(LotusError) as caught:
            attached_run.load(tmp_path)
        return str(caught.value)

    # WHEN it is read THEN it is refused before that
    took = bounded.within(refused, memory=512 << 20)
    assert f"{name} is damaged: it holds more values than lotus writes" in took.result


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "attach.json").symlink_to(write(tmp_path / "real"))
    with pytest.raises(LotusError, match="cannot read"):
        attached_run.load(tmp_path)
