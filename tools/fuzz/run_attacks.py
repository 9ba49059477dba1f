"""Makes files of a run, from valid ones, that cost a reader as much as possible.

See attacks.py.
"""

import json
from typing import Any

from tools.fuzz.attacks import Maker, json_nested, with_hole


def json_of(data: bytes) -> dict[str, Maker]:
    """Attacks on what reads a JSON document, of which `data` is a valid one."""
    holds = json.loads(data)

    def wrapped(text: bytes) -> Maker:
        """Return the valid document with a field more, whose value repeats `text`."""
        opening = b'{"x":' + text.partition(b"|")[0]
        unit, closing = text.split(b"|")[1], text.split(b"|")[2] + b","
        rest = json.dumps(holds).encode()[1:]
        return lambda size: opening + unit * (size // len(unit)) + closing + rest

    made_of: dict[str, Maker] = {
        "nested": json_nested,
        "blanks": lambda size: b" " * size + data,
        "hole": lambda size: with_hole(data, len(data), size << 16),
    }
    if isinstance(holds, dict):
        made_of |= {
            "text": wrapped(b'"|x|"'),
            "number": wrapped(b"|9|"),
            "list": wrapped(b"[|1,|1]"),
            "lists": wrapped(b"[|[],|1]"),
            "objects": wrapped(b"[|{},|1]"),
            "keys": lambda size: (
                b'{"x":{'
                + b",".join(b'"%d":1' % n for n in range(size // 10))
                + b"},"
                + json.dumps(holds).encode()[1:]
            ),
            "repeated": lambda size: json.dumps(_multiplied(holds, size, len(data))).encode(),
        }
    return made_of


def _multiplied(holds: dict[str, Any], size: int, length: int) -> dict[str, Any]:
    """Each list of the document so often that the whole has the size."""
    times = max(size // max(length, 1), 1)
    return {k: v * times if isinstance(v, list) else v for k, v in holds.items()}


def lines_of(data: bytes) -> dict[str, Maker]:
    """Attacks on what reads a line a record, of which `data` has some."""
    line = data.splitlines()[0] + b"\n"
    return {
        "x": lambda size: b"x\n" * (size // 2),
        "nothing": lambda size: b"{}\n" * (size // 3),
        "faults": lambda size: b'{"event":"fault","pid":1,"error":"x"}\n' * (size // 38),
        "repeated": lambda size: line * (size // len(line)),
        "one line": lambda size: b'{"event":"' + b"x" * size + b'"}\n' + data,
        "hole": lambda size: with_hole(data, len(data), size << 16),
        "nested": json_nested,
    }


def logs_of(data: bytes) -> dict[str, Maker]:
    """Attacks on what reads event logs, of which `data` is one."""
    from lotus.inside.trace.log import log_format
    from tools.fuzz.runs import parted

    header, frames = parted(data)
    head = log_format.file_header(header)
    body = [log_format.frame(kind, payload, 0) for kind, payload in frames]

    def huge(size: int) -> bytes:
        """Return a frame of zeros with the right checksum."""
        kind, payload = frames[0]
        return head + log_format.frame(kind, payload + bytes(size), 0) + b"".join(body)

    def texts(size: int) -> bytes:
        fixed = log_format.FIXED[log_format.EVENT]
        text = b'{"event": "note", "text": "x"}'
        frame = log_format.frame(log_format.EVENT, fixed.pack(0, len(text)) + text, 0)
        return head + frame * (size // len(frame))

    def announced(size: int) -> bytes:
        """Headers of frames that say to be as long as the file is."""
        bare = bytearray(body[0][: log_format.FRAME_HEADER.size])
        values = list(log_format.FRAME_HEADER.unpack(bare))
        values[3] = size // 2
        header = log_format.FRAME_HEADER.pack(*values)
        return head + header * (size // len(header))

    made_of: dict[str, Maker] = {
        "huge frame": huge,
        "texts": texts,
        "announced": announced,
        "magic": lambda size: head + body[0][:4] * (size // 4),
        "hole": lambda size: with_hole(head + b"".join(body), len(head), size << 16),
        "hole behind": lambda size: with_hole(
            head + b"".join(body), len(head + body[0]), size << 16
        ),
        "header": lambda size: log_format.file_header({**header, "x": "y" * size}) + b"".join(body),
    }
    for number, frame in enumerate(body[:6]):
        made_of[f"frame {number}"] = lambda size, frame=frame: head + frame * (size // len(frame))  # type: ignore[misc]
    return made_of


def pages_of(data: bytes) -> dict[str, Maker]:
    """Attacks on what reads state pages."""
    return {
        "long": lambda size: data + bytes(size),
        "repeated": lambda size: data * (size // len(data)),
        "hole": lambda size: with_hole(data, len(data), size << 16),
    }
