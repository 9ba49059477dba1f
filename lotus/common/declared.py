"""Reads documents into dataclasses, whose annotations declare what each field may be.

msgspec checks types and required fields, and `__post_init__` of each class its values.
"""

import dataclasses
import re
from typing import Any, TypeVar

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
