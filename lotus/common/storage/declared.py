"""Reads documents into dataclasses, whose annotations declare what each field may be.

msgspec checks types and required fields. `check`, which `__post_init__` of a class calls, checks
values by the `ValueLimit`s in its annotations, also of what is made in Python. From the same
annotations tools/schemas.py writes the JSON schemas.
"""

import dataclasses
import math
import re
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union

Head = TypeVar("Head")
Model = TypeVar("Model")

_PLACE = re.compile(r"(?P<problem>.*) - at `\$\.?(?P<place>[^`]*)`", re.DOTALL)
_TYPE = re.compile(r"Expected `(?P<wanted>.*)`, got `(?P<found>.*)`")
_LIMIT = re.compile(r"Expected `(?P<wanted>\w+)` (?P<limit>(of length )?[<>]=? .*)")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_KINDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "an object",
    "str": "a text",
}


_LEAVES = {
    bool: ("true or false", (bool,)),
    float: ("a number", (int, float)),
    int: ("a whole number", (int,)),
    str: ("a text", (str,)),
}
_HINTS: dict[type, dict[str, Any]] = {}  # annotations of classes that were checked


class ValueLimit(ABC):
    """A note in an annotation that limits the values of its type."""

    @abstractmethod
    def problem(self, value: Any, place: str) -> str:
        """Return what is wrong with a value; "" if it is allowed."""


@dataclass(frozen=True)
class Range(ValueLimit):
    """The numbers from `least` to `most`, both included; without `most` all finite ones."""

    least: int
    most: int | None = None

    def problem(self, value: Any, place: str) -> str:
        """Return what is wrong with a number."""
        if self.least <= value < math.inf and (self.most is None or value <= self.most):
            return ""
        kind = "a whole number" if isinstance(value, int) else "a number"
        end = "on" if self.most is None else f"to {self.most}"
        return f"{place} is {value!r:.50}: it must be {kind} from {self.least} {end}"


@dataclass(frozen=True)
class Length(ValueLimit):
    """Texts and lists of `least` to `most` characters or items; None: any number of them."""

    least: int
    most: int | None = None

    def problem(self, value: Sequence[Any], place: str) -> str:
        """Return what is wrong with a text or a list."""
        if self.least <= len(value) and (self.most is None or len(value) <= self.most):
            return ""
        unit = "characters" if isinstance(value, str) else "items"
        wanted = f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"
        return f"{place} has {len(value)} {unit}: it must have {wanted}"


@dataclass(frozen=True)
class OneOf(ValueLimit):
    """One of these texts."""

    choices: tuple[str, ...]

    def problem(self, value: str, place: str) -> str:
        """Return what is wrong with a text."""
        if value in self.choices:
            return ""
        wanted = ", ".join(self.choices)
        if len(self.choices) > 1:
            wanted = f"one of {wanted}"
        return f"{place} is {value!r:.50}: it must be {wanted}"


@dataclass(frozen=True)
class Pattern(ValueLimit):
    """Texts that a regular expression describes from begin to end; `words` say the same."""

    regex: str
    words: str

    def problem(self, value: str, place: str) -> str:
        """Return what is wrong with a text."""
        if re.fullmatch(self.regex, value):
            return ""
        return f"{place} is {value!r:.50}: it must be {self.words}"


def check(made: object) -> None:
    """Raise ValueError for the first field of a dataclass with a value that is not allowed."""
    model = type(made)
    if model not in _HINTS:
        _HINTS[model] = typing.get_type_hints(model, include_extras=True)
    for name, kind in _HINTS[model].items():
        if problem := _problem(kind, getattr(made, name), name):
            raise ValueError(problem)


def _problem(kind: Any, value: Any, place: str) -> str:
    """Return what a type and its limits find wrong with a value."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        problem = _problem(inner[0], value, place)
        for limit in inner[1:]:
            if not problem and isinstance(limit, ValueLimit):
                problem = limit.problem(value, place)
        return problem
    if origin in (Union, types.UnionType):
        return "" if value is None else _problem(inner[0], value, place)
    if origin is tuple:
        problems = (_problem(inner[0], each, f"{place}[{n}]") for n, each in enumerate(value))
        return next(filter(None, problems), "")
    words, allowed = _LEAVES.get(kind, ("", ()))
    if words and (isinstance(value, bool) != (kind is bool) or not isinstance(value, allowed)):
        return f"{place} is {value!r:.50}: it must be {words}"
    return ""


def read_head(head: type[Head], content: object, name: str = "the document") -> tuple[Head, Any]:
    """Return the fields of a document that stand beside its content, as `head`, and all others.

    Raises ValueError as `read_as` does.
    """
    if not isinstance(content, dict):
        return read_as(head, content, name), {}
    own = {field.name for field in dataclasses.fields(head)}  # type: ignore[arg-type]
    made = read_as(head, {key: content[key] for key in content.keys() & own}, name)
    return made, {key: value for key, value in content.items() if key not in own}


def read_as(model: type[Model], content: object, name: str = "the document") -> Model:
    """Return the content of a JSON document as an instance of a dataclass.

    Fields that the class has defaults for may be absent. `name` is what messages call the whole.
    Raises ValueError, with the place, for what is missing, unknown, or of another type or value.
    """
    import msgspec  # `lotus --help` and `lotus trace` need no document

    try:
        made = msgspec.convert(content, model)
    except msgspec.ValidationError as error:
        raise ValueError(_message(str(error), name, content)) from None
    except UnicodeEncodeError:  # JSON can name half of a surrogate pair
        raise ValueError(f"{name} has a text that is not Unicode") from None
    _refuse_unknown(content, made, "", name)
    return made


def _message(error: str, name: str, content: object) -> str:
    """Return what msgspec says in words for who edits the document: "$" is its whole."""
    located = _PLACE.fullmatch(error)
    place, problem = (located["place"], located["problem"]) if located else ("", error)
    if wrong := _TYPE.fullmatch(problem):
        kinds = wrong["wanted"].split(" | ")
        wanted = " or ".join(_KINDS.get(kind, kind) for kind in kinds)
        found = _KINDS.get(wrong["found"], "null")
        if wrong["found"] == "float" and "int" in kinds:
            found = "a decimal one"
        return f"{place or name} must be {wanted}, not {found}"
    if missing := _MISSING.fullmatch(problem):
        return f"{place or name} has no {missing['name']}"
    if limit := _LIMIT.fullmatch(problem):
        wanted = _KINDS.get(limit["wanted"], limit["wanted"])
        return f"{place} must be {wanted} {limit['limit']}, not {_at(place, content)!r:.50}"
    problem = problem[:1].lower() + problem[1:]
    return f"in {place}, {problem}" if place else problem


def _at(place: str, content: Any) -> object:
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", place):
        content = content[name] if name else content[int(index)]
    return content


def _refuse_unknown(content: Any, made: Any, place: str, name: str) -> None:
    """Raise ValueError for a field of an object that its dataclass does not have.

    A `msgspec.Struct` ignores such fields: a newer lotus may have added them.
    """
    if isinstance(made, (tuple, list)):
        for index, (item, of_item) in enumerate(zip(content, made, strict=True)):
            _refuse_unknown(item, of_item, f"{place}[{index}]", name)
    elif dataclasses.is_dataclass(made):
        known = [field.name for field in dataclasses.fields(made)]
        if unknown := sorted(set(content) - set(known)):
            raise ValueError(
                f"{place or name} has unknown fields: {', '.join(unknown)[:200]}; "
                f"it may have {', '.join(known)}"
            )
        for key, item in content.items():
            _refuse_unknown(item, getattr(made, key), f"{place}.{key}".lstrip("."), name)
    elif fields := getattr(made, "__struct_fields__", ()):
        for key in content.keys() & set(fields):
            _refuse_unknown(content[key], getattr(made, key), f"{place}.{key}".lstrip("."), name)
