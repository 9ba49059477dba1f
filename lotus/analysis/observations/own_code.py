"""The Python functions of the data set, collate, the sampler, the step and threads beside it.

They are those in which the program's own code spends its time, by stack samples.
"""

import math
import os
import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

import pandas as pd

from lotus.analysis.common.columns import int_column
from lotus.format.stack_frames import LIBRARY

_MOST = 0.5  # of the samples: if no callee has more, the caller is named
_ALL = 0.95
_NEARLY_ALL = 0.9  # of a function's samples at one line: the others need no mention
_LEAST_SAMPLES = 10
_LEAST_ALIKE = 5  # samples that all are in one function
_LEAST_LINE, _MOST_LINES = 0.1, 3  # of the samples; lines that are named
_LEAST_MOVING = 0.2  # of the samples of a step, with threads beside that run Python code
# A line at which a thread may wait for long, or that begins a loop over what another one makes.
_MAY_WAIT = re.compile(
    r"\b(?:sleep|wait\w*|get|put|recv\w*|accept|poll|select|join|acquire|with|read\w*|next|input|"
    r"execute\w*|communicate|commit|fsync|flush|synchronize|system|fetch\w*|pause|result|barrier|"
    r"serve\w*|send\w*)\b|:\s*(?:#.*)?$"
)


@dataclass(frozen=True)
class HotFunction:
    """`share` of the samples of its part, 0 to 1, were in this function or in what it called.

    `line_share`: of the samples, were at `line` or in what it called; NaN: `share`.
    """

    function: str
    file: str
    line: int  # the one with most samples
    share: float
    text: str = ""  # of the line; "": not known, or most of the function's samples are at others
    line_share: float = math.nan

    def __str__(self) -> str:
        return f"{self.function} ({os.path.basename(self.file)}:{self.line})"

    @property
    def quoted(self) -> str:
        """The same as `at_line`, with the line's share where other lines have samples as well."""
        if not (self.text and self.line_share < _NEARLY_ALL * self.share):
            return self.at_line
        place = f"{os.path.basename(self.file)}:{self.line}"
        return f"{self.function} ({self.line_share:.0%} at {place}: `{self.text}`)"

    @property
    def at_line(self) -> str:
        """The function and its line, with the text of the line if that is known."""
        return f"{str(self)[:-1]}: `{self.text}`)" if self.text else str(self)


def of_program(chain: list[HotFunction]) -> HotFunction:
    """Return the innermost function that is not of a library; else the innermost."""
    in_files = [hot for hot in chain if is_of_program(hot)]
    # Generated code of a library has no file either, as the methods of a manager's proxies.
    own = in_files or [hot for hot in chain if not LIBRARY.search(hot.file)]
    return (own or chain)[-1]


def is_of_program(hot: HotFunction) -> bool:
    """Return True if it is a function in a file of the program, and not of a library."""
    return not LIBRARY.search(hot.file) and not hot.file.startswith("<")


def hot_functions(own_code: pd.DataFrame, part: str) -> list[HotFunction]:
    """Return the chain of calls with more than half of the samples of a part of `Run.own_code`.

    From `__getitem__`, or the sampler's `__next__`, downwards. Of few samples, those that have all
    of them. Empty where there are too few.
    """
    rows, everything = _of_part(own_code, part)
    if everything < _LEAST_ALIKE:
        return []
    most = _MOST if everything >= _LEAST_SAMPLES else 1.0
    levels: list[pd.DataFrame] = []
    while True:
        here = rows[int_column(rows, "depth") == len(levels)]
        counts = here.groupby(["function", "file"])["samples"].sum()
        if not len(counts) or counts.max() < most * everything:
            break
        function, file = counts.idxmax()
        levels.append(here[(here["function"] == function) & (here["file"] == file)])
        rows = rows[rows["stack"].isin(levels[-1]["stack"])]
    # A function that calls the next one of the chain is named with the line that does so.
    calling = [level[level["stack"].isin(inner["stack"])] for level, inner in pairwise(levels)]
    return [
        _hot(*rows_of_level, everything)
        for rows_of_level in zip(levels, [*calling, *levels[-1:]], strict=True)
    ]


def _hot(mine: pd.DataFrame, at_lines: pd.DataFrame, everything: int) -> HotFunction:
    """Return the function of these rows; `at_lines`: those of them that its line is chosen from.

    `everything`: the number of all samples.
    """
    function, file = mine["function"].iloc[0], mine["file"].iloc[0]
    count = float(mine["samples"].sum())
    lines = at_lines.groupby("line")["samples"].sum()
    line, at_line = int(str(lines.idxmax())), float(lines.max())
    here = int_column(at_lines, "line") == line
    text = str(_texts(at_lines)[here].max()) if at_line >= _MOST * lines.sum() else ""
    return HotFunction(
        str(function), str(file), line, count / everything, text, at_line / everything
    )


def hot_lines(own_code: pd.DataFrame, part: str) -> list[HotFunction]:
    """Return the program's own lines with most of the samples of a part, the first one most.

    A sample is at the innermost line that is not of a library. Empty where there are too few
    samples.
    """
    rows, everything = _of_part(own_code, part)
    if everything < _LEAST_SAMPLES:
        return []
    own = rows[~rows["file"].astype(str).str.contains(LIBRARY)]
    own = own.assign(text=_texts(own))
    names = ["function", "file", "line", "text", "samples"]
    at = own.loc[own.groupby("stack")["depth"].idxmax(), names]
    lines: Counter[tuple[str, str, int, str]] = Counter()
    for function, file, line, text, samples in at.itertuples(index=False):
        lines[str(function), str(file), int(line), str(text)] += int(samples)
    return [
        HotFunction(function, file, line, samples / everything, text)
        for (function, file, line, text), samples in lines.most_common(_MOST_LINES)
        if samples >= _LEAST_LINE * everything
    ]


def hot_callee(own_code: pd.DataFrame, part: str) -> HotFunction | None:
    """Return the program's innermost function with more than half of the samples of a part.

    None if that contains the part itself: nearly all of its samples are in it then.
    """
    own = [hot for hot in hot_functions(own_code, part) if is_of_program(hot)]
    return own[-1] if own and own[-1].share < _ALL else None


def running_beside(own_code: pd.DataFrame) -> HotFunction | None:
    """Return the program's own function that other threads of the main process ran in the steps.

    None if they hardly ran, or there are too few samples. A thread that sleeps is always seen at
    the same line: samples at the line with most of them do not count, unless its source is known
    and calls nothing that waits.
    """
    _, of_step = _of_part(own_code, "step")
    rows, beside = _of_part(own_code, "beside")
    if of_step < _LEAST_SAMPLES or not beside:
        return None
    innermost = rows.loc[rows.groupby("stack")["depth"].idxmax()]
    at = innermost.assign(text=_texts(innermost)).groupby(["file", "line", "text"])["samples"].sum()
    text = str(at.index.get_level_values("text")[int(at.to_numpy().argmax())])
    still = int(at.max()) if not text or _MAY_WAIT.search(text) else 0
    lines = hot_lines(own_code, "beside")
    if not lines or beside - still < _LEAST_MOVING * of_step:
        return None
    return replace(lines[0], function=lines[0].function.partition(".<locals>.<")[0])


def _texts(rows: pd.DataFrame) -> pd.Series:
    """Return the source of each row's line; "" of all for a program that was attached to."""
    return rows["text"] if "text" in rows else pd.Series("", index=rows.index)


def _of_part(own_code: pd.DataFrame, part: str) -> tuple[pd.DataFrame, int]:
    """Return the rows of a part, and its number of samples."""
    rows = own_code[(own_code["part"] == part).to_numpy()] if len(own_code) else own_code
    return rows, int(int_column(rows, "samples", 0)[int_column(rows, "depth") == 0].sum())
