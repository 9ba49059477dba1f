"""What operations do besides their result is seen, and they are not run again."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from lotus.inside.isolate import side_effects
from lotus.inside.isolate.input_capture import LOADER, Catcher
from lotus.inside.isolate.peak_memory import PeakMemory


def connect(path: str) -> None:
    with socket.socket() as made:
        made.setblocking(False)
        made.connect_ex(("127.0.0.1", 9))


def write(path: str) -> None:
    Path(path).write_text("x")


def remove(path: str) -> None:
    Path(path).write_text("x")
    os.remove(path)


def read(path: str) -> None:
    with open(__file__) as file:
        file.readline()
    with open(os.devnull, "w") as file:
        file.write("x")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (connect, ["it uses the network"]),
        (write, ["it writes to PATH"]),
        (remove, ["it writes to PATH", "it changes PATH"]),
        (read, []),
    ],
)
def test_effects_are_told_apart(function: Any, words: list[str], tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    side_effects.begin()
    side_effects.begin()
    function(path)
    seen = side_effects.end()
    assert [word.replace(path[-100:], "PATH") for word in seen] == words
    side_effects.pass_on(seen)
    assert side_effects.end() == seen


def test_what_writes_a_file_is_not_run_again(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch.utils.data")
    log = tmp_path / "log"

    def note(value: Any) -> Any:
        with log.open("a") as file:
            file.write("x")
        return value

    class Noted(data.Dataset):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.transform = Both()

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return self.transform(torch.ones(2))

    class Both:
        def __init__(self) -> None:
            self.transforms = [note, double]

        def __call__(self, value: Any) -> Any:
            for each in self.transforms:
                value = each(value)
            return value

    def double(value: Any) -> Any:
        return value * 2

    catcher = Catcher(2, lambda event: None)
    catcher.take(data.DataLoader(Noted(), batch_size=2))
    assert not catcher.calls.get("note")
    assert catcher.failed["note"] == f"it writes to {str(log)[-100:]}, so it is not run again"
    assert len(catcher.calls["double"]) == 2
    assert catcher.calls[LOADER]  # its own code does not
    assert log.read_text() == "xx"


def test_memory_is_that_of_the_call() -> None:
    peak = PeakMemory().of(lambda size: bytearray(size)[:1], 64 << 20)
    if peak is None:
        pytest.skip("this kernel or C library does not tell")
    assert 60 << 20 < peak < 200 << 20
