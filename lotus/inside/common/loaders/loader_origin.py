"""Finds the place where a program makes a loader, and the name that it gives it there.

The name, from the bytecode that makes the loader, is a label and does not identify it. No code of
the program runs, and no local variable of a running frame is read: before Python 3.13 that would
keep its values alive.
"""

import os
import re
import sys
from opcode import EXTENDED_ARG, opname

from ..guard import ours
from ..object_attributes import attributes
from .code_origin import is_program, nearest, place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType
    from typing import Any

_LONGEST = 60
_MOST_CALLS = 8  # nested functions that return a loader to their caller
_ROLES = {
    "train": "train", "training": "train", "trn": "train", "val": "val", "valid": "val",
    "validation": "val", "validate": "val", "dev": "val", "eval": "eval", "evaluation": "eval",
    "test": "test", "testing": "test", "tst": "test", "predict": "predict",
    "prediction": "predict", "inference": "inference",
}  # fmt: skip
# Words that make no meaningful name.
_PLAIN = frozenset(
    "data dataset datasets ds loader loaders dataloader dataloaders dl dls batch batches batched "
    "iter iterator iterable it my the a an new obj instance base inner wrapped torch pytorch pt "
    "result ret res out output value self this that made created tmp temp item one make get build "
    "create setup args kwargs".split()
)
_FOLDERS = ("root", "root_dir", "data_dir", "data_root", "image_dir", "img_dir", "image_root",
            "folder", "directory", "path")  # fmt: skip
_PARTS = ("split", "subset", "phase", "mode", "stage", "partition", "image_set", "set_name", "role")
_IS_TRAIN = ("train", "is_train", "training", "is_training")
_OF_FILES = frozenset("images imgs image img jpegs jpeg jpg files samples data".split())
_FOLDER = re.compile(
    r"(?:[a-z0-9]+[-_. ])?([a-z]+)(?:\d{2,4})?"
    r"(?:[-_. ]?(?:set|data|split|images?|imgs?|dir|folder))?",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Built:
    """The place where a loader was built; `by_program`: by a line of the program itself."""

    __slots__ = ("by_program", "name", "site")

    def __init__(self, site: str, name: str, by_program: bool) -> None:
        self.site, self.name, self.by_program = site, name, by_program


def look(loader: "Any", frame: "FrameType | None") -> Built:
    """Determine the origin of a loader from the frames around its `__init__`."""
    own = set(_inits(type(loader)))
    while frame is not None and (ours(frame) or frame.f_code in own):
        frame = frame.f_back
    nearest_frame = nearest(frame)
    by_program = nearest_frame is not None and nearest_frame is frame and is_program(nearest_frame)
    return Built(place(nearest_frame), name_of(loader, frame), by_program)


def _inits(kind: type) -> "Iterator[CodeType]":
    for cls in kind.__mro__:
        function: Any = vars(cls).get("__init__")
        for _ in range(8):
            code = getattr(function, "__code__", None)
            if code is None:
                break
            yield code
            function = vars(function).get("__wrapped__")


def name_of(loader: "Any", maker: "FrameType | None") -> str:
    """Return the name of the loader that the frame `maker` is creating; "" if there is none."""
    name = _from_code(maker) or role_of_data(attributes(loader).get("dataset"))
    return name if name.isprintable() else ""


def _from_code(frame: "FrameType | None") -> str:
    """Return the variable or key that it is assigned to, or the role of the function."""
    role = ""
    for _ in range(_MOST_CALLS):
        if frame is None:
            break
        code = frame.f_code
        name, stays = _stored(code, frame.f_lasti)
        roles = _roles(name)
        if roles or (is_program(frame) and not _is_plain(name)):
            return name[:_LONGEST]
        if stays:
            break
        role = role or _only(_roles(code.co_name)) or _role_of_arguments(frame)
        frame = frame.f_back
    return role


def _is_plain(name: str) -> bool:
    words = _words(name)
    return len(words) == 0 or "@" in name or all(len(word) < 2 or word in _PLAIN for word in words)


def _words(name: str) -> "list[str]":
    return [word.lower() for word in _WORD.findall(name)]


def _roles(name: str) -> "set[str]":
    return {_ROLES[word] for word in _words(name) if word in _ROLES}


def _only(roles: "set[str]") -> str:
    return next(iter(roles)) if len(roles) == 1 else ""


# The code that creates the loader.


def _stored(code: "CodeType", last: int) -> "tuple[str, bool]":
    """Return (name of the result of the call at `last`, whether it stays in this function).

    It does not stay if the function returns it, or a variable that every exit returns.
    """
    steps = _steps(code, last + 2)  # after the call and its inline caches
    kind, argument = next(steps, ("", 0))
    if kind in ("COPY", "DUP_TOP"):  # a = b = ..., (a := ...)
        kind, argument = next(steps, ("", 0))
    if kind.startswith("RETURN_VALUE"):
        return "", False
    if kind.startswith("STORE_FAST"):
        name = str(code.co_varnames[argument if kind == "STORE_FAST" else argument >> 4])
        return name, not _returns(code, name)
    if kind in ("STORE_NAME", "STORE_GLOBAL"):
        return str(code.co_names[argument]), True
    if kind == "STORE_DEREF":
        return _cell(code, argument), True
    key: object = None
    while kind.startswith("LOAD_"):  # self.name = ..., loaders["name"] = ...
        key = code.co_consts[argument] if kind == "LOAD_CONST" else None
        kind, argument = next(steps, ("", 0))
        if kind == "STORE_ATTR":
            return str(code.co_names[argument]), True
        if kind == "STORE_SUBSCR":
            return (key if type(key) is str else ""), True
    return "", True


def _cell(code: "CodeType", argument: int) -> str:
    if sys.version_info >= (3, 11):
        return str(code._varname_from_oparg(argument))  # type: ignore[attr-defined]
    return str((code.co_cellvars + code.co_freevars)[argument])


def _steps(code: "CodeType", start: int) -> "Iterator[tuple[str, int]]":
    """Yield (opcode name, argument) of the instructions from byte `start` on."""
    text, extended = code.co_code, 0
    for offset in range(max(start, 0), len(text) - 1, 2):
        number, argument = text[offset], text[offset + 1] | extended
        if number == EXTENDED_ARG:
            extended = argument << 8
            continue
        extended = 0
        if opname[number] not in ("CACHE", "NOP", "RESUME", "NOT_TAKEN"):
            yield opname[number], argument


def _returns(code: "CodeType", name: str) -> bool:
    """Return whether every exit of a function returns the variable."""
    before: tuple[str, int] = ("", 0)
    returned = False
    for kind, argument in _steps(code, 0):
        if kind in ("YIELD_VALUE", "RETURN_CONST", "RETURN_GENERATOR"):
            return False
        if kind == "RETURN_VALUE":
            loaded, where = before
            both = loaded.count("LOAD_FAST") > 1
            if not loaded.startswith("LOAD_FAST") and not loaded.endswith("LOAD_FAST"):
                return False
            if code.co_varnames[where & 15 if both or "_STORE" in kind else where] != name:
                return False
            returned = True
        before = kind, argument
    return returned


def _role_of_arguments(frame: "FrameType") -> str:
    """Return the role that an argument such as `train=True` or `split="val"` implies."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:count]
    if not {*_PARTS, *_IS_TRAIN}.intersection(names):
        return ""
    return _role_of_values(frame.f_locals, names)


def _role_of_values(values: "Any", names: "Any") -> str:
    for name in _PARTS:
        value = values.get(name) if name in names else None
        if type(value) is str and len(value) < _LONGEST and _only(_roles(value)):
            return value
    for name in _IS_TRAIN:
        value = values.get(name) if name in names else None
        if type(value) is bool:
            return "train" if value else ""
    return ""


# The data set.


def role_of_data(dataset: object) -> str:
    """Return the split that an attribute of a data set or the name of its folder implies.

    Data sets inside it are ignored: both parts of a split data set contain the same one.
    """
    values = attributes(dataset)
    role = _role_of_values(values, values)
    if role:
        return role
    if values.get("train") is False and type(dataset).__module__.startswith("torchvision."):
        return "test"
    for name in _FOLDERS:
        value = values.get(name)
        if isinstance(value, os.PathLike) and type(value).__module__.startswith("pathlib"):
            value = str(value)
        if type(value) is not str or not value or len(value) > 4096:
            continue
        parts = [part for part in re.split(r"[/\\]", value) if part][-2:][::-1]
        if len(parts) == 2 and parts[0].lower() not in _OF_FILES:
            parts = parts[:1]
        for part in parts:
            match = _FOLDER.fullmatch(part)
            if match and match[1].lower() in _ROLES and len(part) < _LONGEST:
                return part
    return ""
