"""The source of the lines that stacks were at, read while the program runs."""

import contextlib
import itertools
import os
from collections.abc import Iterable

from lotus.common.text import redaction
from lotus.format import stack_frames

# So many lines, so many characters of each, of files of so many bytes at most.
_MOST_TEXTS, _MOST_CHARACTERS, _MOST_SOURCE = 64, 120, 4 << 20


def texts_of(stacks: Iterable[str]) -> dict[str, str]:
    """Return the source of each stack's innermost line of the program, by `file:line`.

    Read now: by the time of a report the file may be another one, or be gone.
    """
    texts: dict[str, str] = {}
    for stack in stacks:
        frames = map(stack_frames.parsed, stack.rpartition(" ")[0].split(";"))
        own = [found for found in frames if found and not stack_frames.LIBRARY.search(found[1])]
        if own and os.path.isabs(own[-1][1]) and len(texts) < _MOST_TEXTS:
            _, file, line = own[-1]
            texts.setdefault(f"{file}:{line}", _line(file, line))
    return {place: text for place, text in texts.items() if text}


def _line(file: str, number: int) -> str:
    """Return a line of a source file, without secrets; "" where there is none."""
    with contextlib.suppress(OSError):
        if not os.path.isfile(file) or os.path.getsize(file) > _MOST_SOURCE:
            return ""
        with open(file, encoding="utf-8", errors="replace") as lines:
            text = next(itertools.islice(lines, max(number - 1, 0), None), "").strip()
        text = redaction.text(text)
        return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
    return ""
