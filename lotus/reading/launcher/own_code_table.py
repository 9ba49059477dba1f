"""The Python functions in which time passed in the data set's own code, collate, the sampler, the
training step, between two loops, in a thread beside the main thread, or in a process that stands
still (blocking.json).
"""

import re

import pandas as pd

from lotus.common.text import redaction
from lotus.format import stack_frames
from lotus.inside.common.guard import HOOK_FILE
from lotus.reading.launcher.launcher_record import LauncherRecord

_MOST_FRAMES = 200
_MOST_CHARACTERS = 2000  # of a frame
_MOST_TEXT = 200  # characters of a line of source
FETCH, COLLATE, SAMPLER, STEP = "fetch", "collate", "sampler", "step"
PAUSE, BESIDE, STANDING = "pause", "beside", "standing"
# torch's method that draws the indices of a batch from the sampler.
_DRAWS, _LOADER = "_next_index", "torch/utils/data/dataloader.py"
_LENGTH = "__len__"
# The outermost functions of a main thread.
_MAIN = ("<module>", "_run_module_as_main")
# The outermost functions of any other thread.
_THREAD = ("_bootstrap", "_bootstrap_inner")
_OURS = re.compile(r"/lotus/inside/(?:\w+/)*\w+\.py$")
_COLUMNS = {
    "part": "object", "stack": "int64", "depth": "int64",
    "function": "object", "file": "object", "line": "int64", "text": "object",
    "samples": "int64",
}  # fmt: skip
_TIMES = ["stack", "pid", "time_ns", "bound_ns"]


def table(record: LauncherRecord) -> pd.DataFrame:
    """Return the table `Run.own_code`, empty if it was not recorded."""
    known = record.values.get("own_code_texts")
    texts = known if isinstance(known, dict) else {}
    lines = [
        (name, line)
        for name in ("own_code", "pause_code", "standing_code")
        for line in _lines(record.values.get(name))
    ]
    rows = []
    for place, (name, line) in enumerate(lines):
        part, frames, samples = _parsed(line, texts)
        if name == "pause_code":
            part = PAUSE if part == STEP else ""
        elif name == "standing_code":
            part = STANDING if part not in ("", BESIDE) else ""
        rows += [(part, place, depth, *frame, samples) for depth, frame in enumerate(frames)]
    return pd.DataFrame(rows, columns=list(_COLUMNS)).astype(_COLUMNS)


def times(record: LauncherRecord) -> pd.DataFrame:
    """Return the table `Run.stack_times`, empty if they were not recorded."""
    bound = record.values.get("stack_times_bound_ns")
    known = _is_time(bound)
    rows = [
        (row[0], row[1], time, bound)
        for row in (_lines(record.values.get("stack_times")) if known else ())
        if isinstance(row, list) and all(map(_is_time, row))
        for time in row[2:]
    ]
    return pd.DataFrame(rows, columns=_TIMES).astype("int64")


def _is_time(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def outside_operations(own_code: pd.DataFrame, operations: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without the stacks of the part "fetch" that are inside an operation.

    They pass through its function. Hooks in C have no frames that would tell.
    """
    places: dict[str, list[tuple[int, int]]] = {}
    for file, first, last in operations[["file", "first", "last"]].itertuples(index=False):
        if file:
            places.setdefault(file, []).append((first, last))
    inside = [
        part == FETCH and any(first <= line <= last for first, last in places.get(file, ()))
        for part, file, line in own_code[["part", "file", "line"]].itertuples(index=False)
    ]
    return own_code[~own_code["stack"].isin(own_code["stack"][inside])].reset_index(drop=True)


def _lines(found: object) -> list[object]:
    return found if isinstance(found, list) else []


def _parsed(
    line: object, texts: dict[object, object]
) -> tuple[str, list[tuple[str, str, int, str]], int]:
    """Return the part that a stack belongs to and its frames there; "" if it is in none.

    `texts`: of lines, by `file:line`.
    """
    if not isinstance(line, str):
        return "", [], 0
    text, _, count = _encodable(line).rpartition(" ")
    if not (count.isascii() and count.isdecimal() and len(count) < 10):
        return "", [], 0
    words = [part for part in text.split(";")[:_MOST_FRAMES] if len(part) <= _MOST_CHARACTERS]
    frames = [frame for word in words if (frame := stack_frames.parsed(word))]
    hooks = [
        place
        for place, (_, file, _) in enumerate(frames)
        if file == HOOK_FILE or _OURS.search(file)
    ]
    fetching = any(stack_frames.bare_name(frames[place][0]) == "fetch" for place in hooks)
    draws = [
        place
        for place, (name, file, _) in enumerate(frames)
        if stack_frames.bare_name(name) == _DRAWS and file.endswith(_LOADER)
    ]
    part, first = "", len(frames)
    if fetching:
        collates = stack_frames.bare_name(frames[hooks[-1]][0]) == "collate"
        part, first = COLLATE if collates else FETCH, hooks[-1] + 1
        while first < len(frames) and frames[first][1].endswith(stack_frames.FETCHER):
            first += 1  # below hooks in C, which have no frames
    elif draws:
        part, first = SAMPLER, draws[-1] + 1
    elif not hooks and frames and frames[0][0] in _MAIN and not _in_loader(frames):
        part, first = STEP, 0
    elif not hooks and _is_busy_thread(frames):
        part, first = BESIDE, len(_THREAD)
    own = frames[first:]
    shown = [
        (redaction.text(name), redaction.text(file), row, _text(texts.get(f"{file}:{row}")))
        for name, file, row in own
    ]
    return part, shown, int(count)


def _text(found: object) -> str:
    """Return the text on one line, without secrets."""
    if not isinstance(found, str):
        return ""
    return redaction.text(" ".join(_encodable(found[:_MOST_TEXT]).split()))


def _encodable(text: str) -> str:
    """Return the text without halves of surrogate pairs: a column of pandas holds none."""
    return text.encode("utf-8", "replace").decode()


def _is_busy_thread(frames: list[tuple[str, str, int]]) -> bool:
    """Return True if it is not the main thread, and not in a library's function that waits."""
    outermost = tuple(stack_frames.bare_name(name) for name, _, _ in frames[: len(_THREAD)])
    return outermost == _THREAD and not stack_frames.waits(*frames[-1][:2])


def _in_loader(frames: list[tuple[str, str, int]]) -> bool:
    """Return True if the loader makes or takes a batch; a step may ask for its length."""
    return any(
        file.endswith(_LOADER) and stack_frames.bare_name(name) != _LENGTH
        for name, file, _ in frames
    )
