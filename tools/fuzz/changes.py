"""The changes to valid data that fuzz.py feeds to readers, and the description of a reader."""

import copy
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRACES = Path(__file__).resolve().parents[2] / "traces"
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
Passed = Callable[[], None]


@dataclass(frozen=True)
class Reader:
    """`make` gives an input; `read` reads it, and calls what it is given past the header check."""

    name: str
    share: float  # of all inputs
    make: Callable[[random.Random], bytes]
    read: Callable[[Path, bytes, Passed], None]
    attacks: Mapping[str, Callable[[int], bytes]] = field(default_factory=dict)  # by size


NUMBERS = [0, 1, 2, 3, 7, 100, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1]
NUMBERS += [2**62, 2**63 - 1, 2**63, 2**64 - 1]
_ODD: list[Any] = [None, True, False, -1, *NUMBERS, 10**40, 0.5, -1.5, 1e308, float("nan")]
_ODD += [float("inf"), "", "x", "\x00\x1b[2J\x07", "\u202eabc\u2066", "\ud800", "[bold]<b>&", "0"]
_ODD += ["../../etc/passwd", "/etc/passwd", "n" * 3000, [], [[]], [None], {}, {"": None}, [1] * 50]


def flipped(data: bytes, dice: random.Random) -> bytes:
    """Any bytes changed, cut, doubled or put in."""
    content = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(content) + 1)
        how = dice.randrange(6)
        if how == 0:
            del content[at:]
        elif how == 1:
            content[at:at] = dice.randbytes(dice.randrange(1, 40))
        elif how == 2:
            content[at:at] = content[at : at + dice.randrange(1, 200)]
        elif how == 3:
            del content[at : at + dice.randrange(1, 200)]
        elif content and at < len(content):
            content[at] ^= 1 << dice.randrange(8)
    return bytes(content)


def _nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _nodes(value[key])


def changed(value: Any, dice: random.Random, keep: frozenset[str] = frozenset()) -> Any:
    """Return a JSON value with one to four of its parts changed; what `keep` names mostly stays."""
    value = copy.deepcopy(value)
    if not isinstance(value, (dict, list)):  # an earlier change made it one without parts
        return value
    for _ in range(dice.choice([1, 1, 2, 4])):
        places = [node for node in _nodes(value) if node[1] not in keep or dice.random() < 0.02]
        if not places:
            break
        holder, key = dice.choice(places)
        how = dice.randrange(8)
        if how == 0:
            del holder[key]
        elif how == 1:
            other, name = dice.choice(places)
            size = range(len(other)) if isinstance(other, list) else other
            if name not in size:  # it is gone by now
                continue
            holder[key] = copy.deepcopy(other[name])
        elif how == 2 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif how == 3 and isinstance(holder, dict):
            holder[dice.choice(["", "x", "n\n", "\ud800", "schema", str(key) + "s"])] = holder[key]
        elif how == 4 and type(holder[key]) is int:
            holder[key] += dice.choice([-1, 1, -1000, 10**9])
        else:
            holder[key] = copy.deepcopy(dice.choice(_ODD))
    return value


def as_json(value: Any, dice: random.Random) -> bytes:
    text = json.dumps(value, ensure_ascii=dice.random() < 0.5).encode("utf-8", "surrogatepass")
    return text if dice.random() < 0.92 else flipped(text, dice)


def words_changed(payload: bytes, start: int, dice: random.Random) -> bytes:
    """Some of the numbers from `start` on become others."""
    content = bytearray(payload)
    for _ in range(dice.randint(1, 3)):
        size = dice.choice([1, 2, 4, 4, 8, 8])
        if len(content) - start < size:
            break
        at = start + dice.randrange((len(content) - start) // size) * size
        content[at : at + size] = (dice.choice(NUMBERS) & (1 << 8 * size) - 1).to_bytes(
            size, "little"
        )
    return bytes(content)
