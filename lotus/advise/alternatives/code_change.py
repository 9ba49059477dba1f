"""The place at which a program's code makes its operations, and the diff that changes it.

The program's files are parsed, never run. An alternative (lotus/inside/alternatives/) gives its
edits as lists:

["import", LINE]             a line among the imports
["define", CODE]             a function behind them; {NAME} stands for the call that makes NAME
["replace", NAME, CODE]      the call that makes NAME; {args} stands for its arguments
["before", NAME, CODE]       an item of the list before it
["remove", NAME]             its item of the list
["argument", NAME, CODE]     an argument for the call of NAME: the only one in the file, the one
                             that holds the list, or the one at the loader's line

Where it is not certain which call is meant, there is no diff.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lotus.common.storage import files

_MOST_BYTES = 1 << 20  # of a file of code
Edits = Sequence[Sequence[str]]


class UnclearEditError(Exception):
    """It is not certain where an edit belongs."""


@dataclass(frozen=True)
class CodePlaces:
    """The list of operations in a program's code: its file, and a node for each of them."""

    path: Path
    source: str
    tree: ast.Module
    items: tuple[ast.expr, ...]  # of the list; a name where the operation has one
    calls: tuple[ast.Call | None, ...]  # that make them
    kinds: tuple[str, ...]
    line: int | None = None  # of the call that makes the loader

    def at(self, kind: str) -> str | None:
        """Return FILE:LINE where an operation is made; None if it is not known."""
        if self.kinds.count(kind) != 1:
            return None
        place = self.kinds.index(kind)
        node = self.calls[place] or self.items[place]
        return f"{self.path.name}:{node.lineno}"

    def diff(self, edits: Edits) -> str:
        """Return the change as a unified diff; "" where it is not certain."""
        try:
            changed = _Editing(self).changed(edits)
            ast.parse(changed)
        except (UnclearEditError, SyntaxError, ValueError):
            return ""
        lines = difflib.unified_diff(
            self.source.splitlines(keepends=True),
            changed.splitlines(keepends=True),
            self.path.name,
            self.path.name,
            n=1,
        )
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def find(paths: Sequence[str], kinds: Sequence[str], site: str | None = None) -> CodePlaces | None:
    """Return the only list of these operations, in this order, in files of code; None if unknown.

    `site` is the FILE:LINE that makes the loader.
    """
    if not kinds:
        return None
    found = []
    site_file, _, line = (site or "").rpartition(":")
    for path, source, tree in _parsed(paths):
        here = int(line) if site_file == path.name and line.isdecimal() else None
        found += [
            CodePlaces(path, source, tree, *each, tuple(kinds), here)
            for each in _lists(tree, kinds)
        ]
    return found[0] if len(found) == 1 else None


def only_calls(paths: Sequence[str], kinds: Sequence[str]) -> dict[str, str]:
    """Return FILE:LINE of each kind of operation that is made at one place of all files."""
    lines: dict[str, list[str]] = {}
    for path, _, tree in _parsed(paths):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) in kinds:
                lines.setdefault(_name(node.func), []).append(f"{path.name}:{node.lineno}")
    return {kind: places[0] for kind, places in lines.items() if len(places) == 1}


def _parsed(paths: Sequence[str]) -> Iterator[tuple[Path, str, ast.Module]]:
    """Yield (path, source, tree) of the files that can be read and parsed."""
    for name in paths:
        path = Path(name)
        try:
            source = files.read(path, _MOST_BYTES, follow=True).decode()
            yield path, source, ast.parse(source)
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            continue  # it has changed, or another Python reads it


def _lists(
    tree: ast.Module, kinds: Sequence[str]
) -> Iterator[tuple[tuple[ast.expr, ...], tuple[ast.Call | None, ...]]]:
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    assigned.setdefault(target.id, []).append(node.value)
    for node in ast.walk(tree):
        if isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) == len(kinds):
            calls = [_call_of(item, assigned) for item in node.elts]
            names = [
                _name(call.func if call is not None else item)
                for item, call in zip(node.elts, calls, strict=True)
            ]
            if names == list(kinds):
                yield tuple(node.elts), tuple(calls)


def _call_of(item: ast.expr, assigned: dict[str, list[ast.expr]]) -> ast.Call | None:
    """Return the call that makes an item of a list, also where a name stands for it."""
    if isinstance(item, ast.Name) and len(assigned.get(item.id, ())) == 1:
        item = assigned[item.id][0]
    return item if isinstance(item, ast.Call) else None


def _name(function: ast.expr) -> str:
    """Return the last part of a name such as `transforms.Resize`."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


class _Editing:
    """Collects the replacements of edits: (start, end, text) in bytes of the source."""

    def __init__(self, places: CodePlaces) -> None:
        self._places = places
        self._bytes = places.source.encode()
        lines = self._bytes.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._changes: list[tuple[int, int, str]] = []

    def changed(self, edits: Edits) -> str:
        """Return the source with all edits. Raises UnclearEditError."""
        imports: list[str] = []
        definitions: list[str] = []
        for edit in edits:
            kind, *words = edit
            if kind == "import":
                known = self._places.source.splitlines()
                imports += [words[0]] if words[0] not in known else []
            elif kind == "define":
                definitions.append(re.sub(r"\{(\w+)\}", self._made, words[0]))
            elif kind == "argument":
                self._add_argument(*words)
            else:
                self._edit_item(kind, *words)
        if imports or definitions:
            at = self._after_imports()
            text = "".join(f"{line}\n" for line in imports)
            text += "".join(f"\n\n{code.rstrip()}\n" for code in definitions)
            self._changes.append((at, at, text))
        result = self._bytes
        for start, end, text in sorted(self._changes, reverse=True):
            result = result[:start] + text.encode() + result[end:]
        return result.decode()

    def _made(self, match: re.Match[str]) -> str:
        call = self._call(match.group(1))
        if any(isinstance(each, ast.Name) for part in _arguments(call) for each in ast.walk(part)):
            raise UnclearEditError  # its values are not known above
        return self._text(call)

    def _place(self, kind: str) -> int:
        if self._places.kinds.count(kind) != 1:
            raise UnclearEditError
        return self._places.kinds.index(kind)

    def _call(self, kind: str) -> ast.Call:
        call = self._places.calls[self._place(kind)]
        if call is None:
            raise UnclearEditError
        return call

    def _edit_item(self, how: str, kind: str, code: str = "") -> None:
        place, items = self._place(kind), self._places.items
        start, end = self._span(items[place])
        if how == "before":
            self._changes.append((start, start, f"{code}, "))
        elif how == "remove" and place + 1 < len(items):
            self._changes.append((start, self._span(items[place + 1])[0], ""))
        elif how == "remove" and place:
            self._changes.append((self._span(items[place - 1])[1], end, ""))
        elif how == "replace":
            call = self._call(kind)
            if call is not items[place]:  # others may use the name, too
                raise UnclearEditError
            arguments = ", ".join(map(self._text, _arguments(call)))
            self._changes.append((start, end, code.replace("{args}", arguments)))
        else:
            raise UnclearEditError

    def _add_argument(self, kind: str, code: str) -> None:
        calls = [
            node
            for node in ast.walk(self._places.tree)
            if isinstance(node, ast.Call) and _name(node.func) == kind
        ]
        if len(calls) > 1:
            calls = [call for call in calls if self._holds(call)] or [
                call
                for call in calls
                if call.lineno <= (self._places.line or 0) <= (call.end_lineno or 0)
            ]
        name = code.partition("=")[0]
        if len(calls) != 1 or any(word.arg in (name, None) for word in calls[0].keywords):
            raise UnclearEditError
        arguments = _arguments(calls[0])
        at = max(self._span(each)[1] for each in arguments) if arguments else None
        if at is None:
            end = self._span(calls[0])[1] - 1
            self._changes.append((end, end, code))
        else:
            self._changes.append((at, at, f", {code}"))

    def _holds(self, call: ast.Call) -> bool:
        return any(node is self._places.items[0] for node in ast.walk(call))

    def _after_imports(self) -> int:
        lines = [
            node.end_lineno or node.lineno
            for node in self._places.tree.body
            if isinstance(node, (ast.Import, ast.ImportFrom))
        ]
        if not lines:
            raise UnclearEditError
        return self._starts[max(lines)]

    def _span(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        if node.end_lineno is None or node.end_col_offset is None:
            raise UnclearEditError
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr | ast.keyword) -> str:
        start, end = self._span(node)
        return self._bytes[start:end].decode()


def _arguments(call: ast.Call) -> list[ast.expr | ast.keyword]:
    return [*call.args, *call.keywords]
