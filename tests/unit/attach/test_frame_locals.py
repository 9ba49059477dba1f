"""What the local variables of torch's frames, as py-spy dumps them, tell of a loader."""

import json
from typing import Any

import pytest

from lotus.attach.stacks.frame_locals import FrameLocals, names_of, of_dump

UTILS = "/lib/python3.11/site-packages/torch/utils/data/_utils"
LOOP = {
    "dataset_kind": "0", "auto_collation": "True", "drop_last": "False", "num_workers": "4",
    "persistent_workers": "True", "worker_id": "3", "dataset": "<train.Pictures at 0x7f15e2d8a490>",
}  # fmt: skip


def frame(function: str, file: str, **values: str) -> dict[str, Any]:
    rows = [{"name": name, "repr": text} for name, text in values.items()]
    return {"name": function, "filename": file, "line": 1, "locals": rows or None}


def dump(*frames: dict[str, Any]) -> str:
    """Of a process with a feeder thread, innermost frames first."""
    feeder = {"frames": [frame("Queue._feed", "/lib/python3.11/multiprocessing/queues.py")]}
    return json.dumps([feeder, {"frames": list(frames)}])


def fetch(index: str, kind: str = "_MapDatasetFetcher.") -> dict[str, Any]:
    return frame(f"{kind}fetch", f"{UTILS}/fetch.py", possibly_batched_index=index)


def loop(**changed: str) -> dict[str, Any]:
    return frame("_worker_loop", f"{UTILS}/worker.py", **{**LOOP, **changed})


def told_by(text: str) -> FrameLocals | None:
    return of_dump(7, text)[0]


def test_the_arguments_of_a_worker() -> None:
    assert told_by(dump(fetch("[9, 2, 30]"), loop())) == FrameLocals(
        7, workers=4, iterable=0, drop_last=0, persistent=1, spawned=0, batch=3, in_sequence=0,
        dataset="train.Pictures",
    )  # fmt: skip


def test_a_worker_that_was_spawned_and_has_nothing_to_do() -> None:
    spawn = frame("spawn_main", "/lib/python3.13/multiprocessing/spawn.py")
    told = told_by(dump(loop(dataset_kind="1"), spawn))
    assert told is not None
    assert (told.spawned, told.iterable, told.batch, told.in_sequence) == (1, 1, -1, -1)


@pytest.mark.parametrize(
    ("index", "batch", "in_sequence"),
    [
        ("[4, 5, 6, 7]", 4, 1),
        ("[4, 6, 5, 7]", 4, 0),
        ("[4, 5]", 2, -1),  # too few to tell
        ("[None, None, None]", 3, -1),  # of a stream
        ("[4, 5, 6, ...]", -1, -1),  # cut off
        ("[(1, 2), (3, 4)]", -1, -1),
        ('["a", "b"]', -1, -1),
        ("[]", -1, -1),
        ("<list at 0x7f15e2d8a490>", -1, -1),
        ("8", -1, -1),
    ],
)
def test_the_batch_that_is_made(index: str, batch: int, in_sequence: int) -> None:
    told = told_by(dump(fetch(index), loop()))
    assert told is not None
    assert (told.batch, told.in_sequence) == (batch, in_sequence)


def test_batches_that_the_data_set_makes() -> None:
    told = told_by(dump(fetch("8"), loop(auto_collation="False")))
    assert told is not None
    assert told.batch == 0


def test_a_loader_within_the_data_set_is_another_one() -> None:
    within = fetch("[1, 2, 3, 4, 5]")
    told = told_by(dump(within, fetch("[1, 2, 3]"), loop(), fetch("[7]")))
    assert told is not None
    assert told.batch == 3


def test_a_main_process_without_workers() -> None:
    assert told_by(dump(fetch("[1, 2, 3]"))) == FrameLocals(
        7, workers=0, iterable=0, batch=3, in_sequence=1
    )
    stream = told_by(dump(fetch("[None, None]", "_IterableDatasetFetcher.")))
    assert stream == FrameLocals(7, workers=0, iterable=1, batch=2)
    assert told_by(dump(fetch("[1, 2, 3]", ""))) == FrameLocals(  # Python 3.10
        7, workers=0, batch=3, in_sequence=1
    )


@pytest.mark.parametrize(
    "text",
    ["", "Error: Failed to open process 7", "[", "[]", "[3]", '[{"frames": [{"name": "f"}]}]',
     '{"frames": []}', "[" * 5000],
)  # fmt: skip
def test_what_is_no_dump_tells_nothing(text: str) -> None:
    assert told_by(text) is None


def test_what_py_spy_says_before_its_dump_is_passed_over() -> None:
    text = "a warning\n" + dump(fetch("[9, 2, 30]"), loop())
    assert told_by(text) is not None


def test_values_that_torch_does_not_have_tell_nothing() -> None:
    odd = loop(
        num_workers="+bigint", persistent_workers="maybe", dataset="Pictures()", drop_last=""
    )
    told = told_by(dump(odd))
    assert told is not None
    assert (told.workers, told.persistent, told.dataset, told.drop_last) == (-1, -1, "", -1)


def call(function: str, kind: str) -> dict[str, Any]:
    return frame(function, "/home/me/train.py", self=f"<{kind} at 0x7f15e2d8a490>")


def test_the_class_of_an_operation_that_inherits_its_method() -> None:
    inner = call("Compute.__call__", "planted.Flip"), call("Compute.__call__", "planted.Warp")
    outer = call("Compose.__call__", "Compose"), call("Data.__getitem__", "planted.Data")
    _, classes = of_dump(7, dump(*inner, *outer, fetch("[1, 2, 3]"), loop()))
    assert classes == {"Compute": "Warp", "Compose": "Compose"}
    assert of_dump(7, dump(*inner, loop()))[1] == {}


def test_names_say_how_often_an_operation_was_met() -> None:
    met = {"Compute": {"Flip": 1, "Warp": 3}, "Few": {"Own": 2}, "Crop": {"Crop": 5}}
    assert names_of(met) == {"Compute": "Compute (of Warp, 3 of 4 times)"}
