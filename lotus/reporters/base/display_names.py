"""Names of operations in a table: as a tree, and shortened so that they remain distinct."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lotus.common.text.formatting import operation_name, plain, shorten

_INDENT, _ELSEWHERE = 2, "(inside others)"


@dataclass(frozen=True)
class TableLine:
    """A line of a table: its row, None for a heading; its name, indented."""

    row: int | None
    name: str


def tree(names: Sequence[str], nested: Sequence[bool]) -> list[TableLine]:
    """Return lines of operations, each below the one around it, named without that one's name.

    names: "Outer/Inner" lies inside "Outer". Rows of one parent keep their order. If a name has a
    parent without a row, a heading is added when there are several such children. Nested operations
    whose name has no parent (functions that others call) come last.
    """
    rows: dict[str, int] = {}
    for row, name in enumerate(names):
        rows.setdefault(name, row)
    above = [_above(name, rows) for name in names]
    alone = [name.rpartition("/")[0] for name in names]
    headings = {
        prefix
        for prefix in alone
        if prefix and prefix not in rows and _members(prefix, names, above) > 1
    }
    below: dict[str, list[int | str]] = {}
    elsewhere = []
    for row, parent in enumerate(above):
        if not parent and alone[row] in headings:
            heading = alone[row]
            parent = heading
            if heading not in below:
                below.setdefault("", []).append(heading)
        if parent or not nested[row]:
            below.setdefault(parent, []).append(row)
        else:
            elsewhere.append(row)
    lines: list[TableLine] = []

    def add(parent: str, depth: int) -> None:
        for child in below.get(parent, []):
            name = child if isinstance(child, str) else names[child]
            own = name[len(parent) + 1 :] if parent else name
            row = child if isinstance(child, int) else None
            lines.append(TableLine(row, " " * _INDENT * depth + plain(operation_name(own))))
            if rows.get(name, row) == row:  # of two rows of one name the first has the children
                add(name, depth + 1)

    add("", 0)
    if elsewhere:
        lines.append(TableLine(None, _ELSEWHERE))
        lines += [
            TableLine(row, " " * _INDENT + plain(operation_name(names[row]))) for row in elsewhere
        ]
    return lines


def _above(name: str, rows: Iterable[str]) -> str:
    """Return the nearest operation around this one that has a row, "" if none has."""
    parent = name.rpartition("/")[0]
    while parent and parent not in rows:
        parent = parent.rpartition("/")[0]
    return parent


def _members(prefix: str, names: Sequence[str], above: Sequence[str]) -> int:
    return sum(
        not parent and name.rpartition("/")[0] == prefix
        for name, parent in zip(names, above, strict=True)
    )


def shorten_apart(texts: Sequence[str], width: int) -> list[str]:
    """Shorten the texts to `width` characters; texts that differ still differ.

    The middle is left out, unless texts differ there; then a part before or after it is. Leading
    spaces are kept.
    """
    shortened = {text: _shortened(text, width) for text in texts}
    for text in shortened:
        same = [other for other, short in shortened.items() if short == shortened[text]]
        if len(same) > 1:
            used = {short for other, short in shortened.items() if other not in same}
            shortened |= dict(zip(same, _apart(same, width, used), strict=True))
    return [shortened[text] for text in texts]


def _shortened(text: str, width: int) -> str:
    bare = text.lstrip(" ")
    indent = _indent(text, width)
    return " " * indent + shorten(bare, width - indent)


def _indent(text: str, width: int) -> int:
    """Limit the indentation: deep in the tree, the name matters more than its depth."""
    return min(len(text) - len(text.lstrip(" ")), max(width - 12, 0))


def _apart(texts: Sequence[str], width: int, used: set[str]) -> list[str]:
    """Shorten texts that are equal when their middles are left out."""
    indent = _indent(texts[0], width)
    bare = [text.lstrip(" ") for text in texts]
    room = width - indent - 1  # for the ellipsis
    usual = room // 3
    for head in sorted(range(room + 1), key=lambda length: abs(length - usual)):
        candidates = [_cut(text, head, room) for text in bare]
        if _are_apart(candidates, indent, used):
            return [" " * indent + text for text in candidates]
    # They differ only in the middle: show it, and the beginning of each.
    prefix = next((k for k in range(min(map(len, bare))) if len({text[k] for text in bare}) > 1), 0)
    for head in range(max(room - 1, 0) // 2, -1, -1):
        candidates = [
            text[:head] + "…" + text[prefix : prefix + room - head - 1] + "…" for text in bare
        ]
        if _are_apart(candidates, indent, used):
            return [" " * indent + text for text in candidates]
    numbered = []
    for place, text in enumerate(bare):
        mark = f"~{place + 1}"
        numbered.append(" " * indent + shorten(text, width - indent - len(mark)) + mark)
    return numbered


def _cut(text: str, head: int, room: int) -> str:
    if len(text) <= room + 1:
        return text
    return text[:head] + "…" + text[len(text) - (room - head) :]


def _are_apart(candidates: Sequence[str], indent: int, used: set[str]) -> bool:
    displayed = {" " * indent + text for text in candidates}
    return len(displayed) == len(candidates) and not displayed & used
