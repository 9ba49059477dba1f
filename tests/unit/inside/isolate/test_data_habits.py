"""What a data set is seen to do, and the advice that rests on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from lotus.advise.alternatives.known_advice import known_advice
from lotus.inside.isolate import data_habits
from lotus.inside.isolate.input_capture import Catcher


class Records(Dataset[int]):
    """Opens one file for each sample anew, and one of the sample's own."""

    def __init__(self, folder: Path, names: int = 6) -> None:
        self.folder = folder
        self.records: Any = [str(number) for number in range(names)]
        (folder / "all.bin").write_bytes(bytes(5000))
        for number in range(6):
            (folder / f"{number}.txt").write_bytes(bytes(300))

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        with (self.folder / "all.bin").open("rb") as file:
            file.seek(index)
            one = file.read(1)[0]
        return one + len((self.folder / f"{index}.txt").read_bytes())


def seen(dataset: Any) -> dict[str, Any]:
    catcher = Catcher(6, lambda event: None)
    catcher.take(DataLoader(dataset, batch_size=2))
    return data_habits.event(dataset, catcher.opened)


def test_files_that_are_opened_for_each_sample_are_told_from_its_own(tmp_path: Path) -> None:
    habits = seen(Records(tmp_path))
    assert habits["again"] == [[str(tmp_path / "all.bin"), 5000]]
    assert (habits["samples"], habits["own_files"], habits["own_bytes"]) == (6, 6, 300)
    again, own = known_advice(habits, workers=2)
    assert again.startswith("all.bin (4.88 KiB) was opened again for each of 6 samples: ")
    assert "a file of its own, of 300 B in the median" in own
    assert "was not measured" in again
    assert "was not measured" in own
    assert known_advice(habits, workers=2, storage=False) == [again]


def test_many_python_objects_are_told_where_there_are_workers(tmp_path: Path) -> None:
    records = Records(tmp_path, 200_000)
    whole = torch.utils.data.Subset(records, [0, 1, 2])
    habits = data_habits.event(whole, [])
    ((name, count, kind, known),) = habits["objects"]
    assert (name, count, kind) == ("records", 200_000, "str")
    assert 200_000 * 50 < known < 200_000 * 70
    (advice,) = known_advice(habits, workers=2)
    assert advice.startswith("the data set's records holds 200,000 Python objects (str), some 10")
    assert known_advice(habits, workers=0) == []
    # AND what is shared is not told.
    records.records = torch.zeros(200_000)
    assert known_advice(data_habits.event(whole, []), workers=2) == []


def test_threads_of_libraries_are_told_where_workers_have_them(tmp_path: Path) -> None:
    habits = {**data_habits.event(Records(tmp_path), []), "used_ns": (6_000, 4_000)}
    (advice,) = known_advice(habits, workers=2)
    assert "had 40% of the CPU time of the samples" in advice
    assert advice.endswith("lotus tune -- COMMAND tries one thread a worker")
    # AND not without workers, nor where they had next to nothing, nor where nobody knows.
    assert known_advice(habits, workers=0) == []
    assert known_advice({**habits, "used_ns": (6_000, 60)}, workers=2) == []
    assert known_advice({**habits, "used_ns": None}, workers=2) == []
