"""A profile for pprof: every event of the run is a sample type, every stack a sample.

Source: proto/profile.proto of github.com/google/pprof.
"""

import gzip
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lotus.common.errors import LotusError
from lotus.common.terminal.progress import Advance
from lotus.common.text.formatting import command, plain
from lotus.export.export_request import ExportRequest
from lotus.export.profiles.profile_stacks import EventStacks, StackRow
from lotus.export.protobuf import message, number, packed
from lotus.reading.logs.process_tree import is_a

if TYPE_CHECKING:
    from lotus.reading.run import Run


def pieces(
    run: "Run", request: ExportRequest, notes: list[str], progress: Advance
) -> Iterator[bytes | memoryview]:
    """Yield the compressed profile in one piece. Raises LotusError if it would be empty."""
    weights = list(EventStacks(run, notes).all(progress))
    if not any(weight.rows for weight in weights):
        raise LotusError(
            "there is nothing to make a profile of: no loader was iterated in this run; "
            "see: lotus report RUN"
        )
    table = _Table()
    used: set[str] = set()
    types = b""
    names = []
    for weight in weights:
        name = weight.event
        while name in used:  # counted exactly and sampled
            name += " (sampled)" if weight.sampled else " (exact)"
        used.add(name)
        names.append(name)
        types += message(1, _value_type(table, plain(name), weight.unit))
    samples = []
    for at, weight in enumerate(weights):
        for row in weight.rows:
            values = [0] * len(weights)
            values[at] = round(row.value)
            samples.append(message(2, _sample(table, row, values)))
    start, end = run.manifest.get("start_ns"), run.manifest.get("end_ns")
    wall = run.manifest.get("start_wall_ns")
    times = number(9, int(wall or 0)) if is_a(wall, range(1 << 62)) else b""
    if is_a(start, int) and is_a(end, int):
        times += number(10, max(int(end or 0) - int(start or 0), 0))
    words = run.manifest.get("command")
    if isinstance(words, list):
        times += number(13, table.text(command(words)))
    first = number(14, table.text(plain(names[0])))
    # The table comes last, as everything else adds to it.
    yield gzip.compress(types + b"".join(samples) + times + first + table.content(), mtime=0)


def _value_type(table: "_Table", kind: str, unit: str) -> bytes:
    return number(1, table.text(kind)) + number(2, table.text(unit))


def _sample(table: "_Table", row: StackRow, values: list[int]) -> bytes:
    pairs = zip(row.frames, row.libraries, strict=True)
    places = [table.location(plain(frame), plain(library)) for frame, library in pairs]
    labels = b""
    if row.process:
        labels += message(3, number(1, table.text("rank")) + number(3, row.rank))
        labels += _label(table, "process", row.process)
    if row.worker >= 0:
        labels += message(3, number(1, table.text("worker")) + number(3, row.worker))
    if row.operation:
        labels += _label(table, "operation", plain(row.operation))
    # The innermost frame comes first.
    return packed(1, reversed(places)) + packed(2, values) + labels


def _label(table: "_Table", key: str, value: str) -> bytes:
    return message(3, number(1, table.text(key)) + number(2, table.text(value)))


class _Table:
    """Numbers strings, functions and locations; each is stored once."""

    def __init__(self) -> None:
        self._texts = {"": 0}
        self._locations: dict[tuple[int, int], int] = {}

    def text(self, value: str) -> int:
        return self._texts.setdefault(value, len(self._texts))

    def location(self, frame: str, library: str) -> int:
        key = (self.text(frame), self.text(library))
        return self._locations.setdefault(key, len(self._locations) + 1)

    def content(self) -> bytes:
        encoded = []
        for (frame, library), number_ in self._locations.items():
            line = message(4, number(1, number_))
            encoded.append(message(4, number(1, number_) + line))
            named = number(1, number_) + number(2, frame) + number(4, library)
            encoded.append(message(5, named))
        texts = (message(6, text.encode("utf-8", "backslashreplace")) for text in self._texts)
        return b"".join([*encoded, *texts])
