"""Finds the function, loop and text of a line in the source of a watched program.

It also finds which classes are derived from which.

The source is parsed, never run. It is read as the program sees it (/proc/PID/root), so that a
container's files are found from the host.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lotus.common.storage import files
from lotus.format.stack_frames import bare_name

_MOST_BYTES, _MOST_FILES = 2 << 20, 400
GENERATOR = "<genexpr>"
_FRAMES: Mapping[type[ast.expr], str] = {
    ast.ListComp: "<listcomp>",
    ast.SetComp: "<setcomp>",
    ast.DictComp: "<dictcomp>",
    ast.GeneratorExp: GENERATOR,
}
# Functions that take all of a generator before they return: its loop is theirs.
_TAKE_ALL = frozenset(
    "sum list tuple set dict max min any all sorted mean fmean median join extend update".split()
)
_BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)


@dataclass(frozen=True)
class SourceLoop:
    """Lines of a loop: its body and its head. `hands_on`: it only passes batches on."""

    head: int
    first: int
    last: int
    hands_on: bool = False


@dataclass(frozen=True)
class _Comprehension:
    """A comprehension in the source.

    frame: the name of its own frame, which that of a list has before Python 3.12 only
    makes_iterators: whether its body calls `iter`
    """

    loop: SourceLoop
    frame: str
    makes_iterators: bool


@dataclass
class _SourcePlaces:
    loops: list[SourceLoop] = field(default_factory=list)
    comprehensions: list[_Comprehension] = field(default_factory=list)
    functions: list[tuple[int, int, str]] = field(default_factory=list)
    bases: dict[str, list[str]] = field(default_factory=dict)  # by name of the class


class Sources(Protocol):
    """The interface to the source of a program; `SourceLines` implements it."""

    def text(self, file: str, line: int) -> str:
        """Return the text of a line; "" if it is not known."""

    def qualified_name(self, file: str, line: int) -> str:
        """Return the qualified name of the function around a line; "" if it is not known."""

    def are_kin(self, one: str, other: str, files: Iterable[str]) -> bool:
        """Return whether one object may be an instance of both classes, according to `files`."""

    def loop(self, file: str, line: int) -> SourceLoop | None:
        """Return the innermost loop around a line; None if there is none."""

    def comprehension(
        self, file: str, line: int, function: str, *, begins: bool = False
    ) -> SourceLoop | None:
        """Return the innermost comprehension that a frame of this function may run at a line.

        With `begins`, also one whose iterator the frame makes, unless the comprehension itself
        calls `iter`: then it makes iterators for a loop elsewhere.
        """


class SourceLines:
    """Reads and caches the source of one program; a file that cannot be read counts as empty."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._texts: dict[str, list[str]] = {}
        self._places: dict[str, _SourcePlaces] = {}

    def text(self, file: str, line: int) -> str:
        """Return the text of a line; "" if it is not known."""
        lines = self._lines(file)
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def qualified_name(self, file: str, line: int) -> str:
        """Return the qualified name of the function around a line; "" if it is not known."""
        inside = [each for each in self._parsed(file).functions if each[0] <= line <= each[1]]
        return max(inside)[2] if inside else ""

    def loop(self, file: str, line: int) -> SourceLoop | None:
        """Return the innermost loop with this line in its head or body; None if there is none."""
        inside = [each for each in self._parsed(file).loops if each.head <= line <= each.last]
        return max(inside, key=lambda each: (each.head, -each.last)) if inside else None

    def comprehension(
        self, file: str, line: int, function: str, *, begins: bool = False
    ) -> SourceLoop | None:
        """Return the same as `Sources.comprehension`, for a function that makes its iterator."""
        frame = bare_name(function)
        own = frame in _FRAMES.values()
        inside = [
            each.loop
            for each in self._parsed(file).comprehensions
            if each.loop.head <= line <= each.loop.last
            and (each.frame == frame if own else begins or each.frame != GENERATOR)
            and not (begins and each.makes_iterators)
        ]
        around = self.loop(file, line)
        if around is not None and around.head == around.first == line:
            return None  # all of a loop is on this line: the comprehension may be in its body
        return max(inside, key=lambda each: (each.head, -each.last)) if inside else None

    def are_kin(self, one: str, other: str, files: Iterable[str]) -> bool:
        """Return whether one object may be an instance of both classes, according to `files`."""
        bases: dict[str, list[str]] = {}
        for file in files:
            bases |= self._parsed(file).bases
        return one == other or any({one, other} <= _ancestry(name, bases) for name in bases)

    def _lines(self, file: str) -> list[str]:
        lines = self._texts.get(file)
        if lines is None:
            if len(self._texts) >= _MOST_FILES:
                return []
            lines = self._texts[file] = self._read(file)
        return lines

    def _read(self, file: str) -> list[str]:
        if not file.startswith("/") or not file.endswith(".py"):
            return []
        try:
            content = files.read(Path(f"{self._root}/{file}"), _MOST_BYTES + 1, follow=True)
        except OSError:
            return []
        return content.decode("utf-8", "replace").split("\n") if len(content) <= _MOST_BYTES else []

    def _parsed(self, file: str) -> _SourcePlaces:
        places = self._places.get(file)
        if places is None:
            places = self._places[file] = _parsed("\n".join(self._lines(file)))
        return places


def _parsed(text: str) -> _SourcePlaces:
    places = _SourcePlaces()
    try:
        tree = ast.parse(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return places
    for node, name in _named(tree):
        last = node.end_lineno or node.lineno
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            places.functions.append((node.lineno, last, name))
        elif isinstance(node, ast.ClassDef):
            places.bases[node.name] = list(_class_names(node.bases))
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            end = node.body[-1].end_lineno or last
            places.loops.append(SourceLoop(node.lineno, node.body[0].lineno, end, _hands_on(node)))
        places.comprehensions += _comprehensions(node)
    return places


def _comprehensions(statement: ast.stmt) -> Iterator[_Comprehension]:
    """Yield the comprehensions of a statement, without those of statements inside it."""
    waiting = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, _BLOCKS)]
    taken: set[ast.AST] = set()
    while waiting:
        node = waiting.pop()
        waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, _BLOCKS)]
        if isinstance(node, ast.Call) and len(node.args) == 1 and _name_of(node.func) in _TAKE_ALL:
            taken.add(node.args[0])
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            frame = _FRAMES[type(node)]
            hands_on = _calls(node, "next") or (frame == GENERATOR and node not in taken)
            last = node.end_lineno or node.lineno
            loop = SourceLoop(node.lineno, node.lineno, last, hands_on)
            if not _calls(node.generators[0].iter, "next"):  # what takes one batch is a loop's body
                yield _Comprehension(loop, frame, _calls(node, "iter"))


def _name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _calls(tree: ast.AST, name: str) -> bool:
    calls = (each.func for each in ast.walk(tree) if isinstance(each, ast.Call))
    return any(isinstance(function, ast.Name) and function.id == name for function in calls)


def _class_names(bases: Sequence[ast.expr]) -> Iterator[str]:
    for base in bases:
        named = base.value if isinstance(base, ast.Subscript) else base  # Dataset[int]
        if isinstance(named, ast.Name):
            yield named.id
        elif isinstance(named, ast.Attribute):
            yield named.attr


def _ancestry(name: str, bases: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the names of a class and of all its base classes."""
    result: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name not in result:
            result.add(name)
            waiting += bases.get(name, ())
    return result


def _hands_on(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Return whether a loop yields, or only calls `next`: its batches are used elsewhere."""
    if any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(loop)):
        return True
    body = loop.body
    if len(body) == 1 and isinstance(body[0], ast.Try):
        body = body[0].body
    return len(body) == 1 and _calls(body[0], "next")


def _named(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Yield statements with the qualified name of the function or class that each is or is in."""
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]  # expressions hold no statements
    while waiting:
        node, around = waiting.pop()
        for child in ast.iter_child_nodes(node):
            name = around
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{around}.{child.name}" if around else child.name
            if isinstance(child, ast.stmt):
                yield child, name
            if isinstance(child, _BLOCKS):
                waiting.append((child, name))
