"""Writes the JSON Schemas of lotus's own files from the classes that their readers declare.

python tools/document_schemas.py    # after a change of a class in DOCUMENTS

Descriptions are the texts in `Annotated` and the first lines of docstrings.
"""

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Union

import msgspec

from lotus.sweep.sweep_document import SweepDocument
from native_map.paper.mapping_document import MappingDocument

FOLDER = Path(__file__).parents[1] / "lotus" / "schemas"
DOCUMENTS: dict[str, type] = {"mapping": MappingDocument, "sweep": SweepDocument}
_WIDTH = 110  # of a line; what fits is not broken


def text(name: str) -> str:
    """The text of a schema's file."""
    made: dict[type, type] = {}
    (_, parts) = msgspec.json.schema_components(
        [_described(DOCUMENTS[name], made)], ref_template="#/$defs/{name}"
    )
    parts = {part: _plain(schema) for part, schema in parts.items()}
    whole = parts.pop(DOCUMENTS[name].__name__)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:lotus:{name}:1",
        "title": f"{name}.json",
        "description": whole.pop("description"),
    }
    return _laid_out({**head, **whole, **({"$defs": parts} if parts else {})}) + "\n"


def _described(kind: Any, made: dict[type, type]) -> Any:
    """The same type for msgspec, which takes descriptions only as its own; `made`: its classes."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        notes = (msgspec.Meta(description=note) if isinstance(note, str) else note
                 for note in kind.__metadata__)  # fmt: skip
        return Annotated[(_described(kind.__origin__, made), *notes)]
    if origin in (Union, types.UnionType):
        return Union[tuple(_described(choice, made) for choice in inner)]  # noqa: UP007
    if inner and origin is not typing.Literal:
        return origin[tuple(_described(item, made) for item in inner)]
    if dataclasses.is_dataclass(kind) or isinstance(kind, msgspec.StructMeta):
        if kind not in made:
            made[kind] = _struct(kind, made)
        return made[kind]
    return kind


def _struct(model: Any, made: dict[type, type]) -> type:
    hints = typing.get_type_hints(model, include_extras=True)
    return msgspec.defstruct(
        model.__name__,
        [
            (name, _described(hints[name], made), *((None,) if optional else ()))
            for name, optional in _fields(model)
        ],
        namespace={"__doc__": (model.__doc__ or "").partition("\n")[0]},
        forbid_unknown_fields=True,
        kw_only=True,
    )


def _fields(model: Any) -> list[tuple[str, bool]]:
    """The fields of a class, and whether a document may lack them."""
    if dataclasses.is_dataclass(model):
        missing = dataclasses.MISSING
        return [
            (field.name, (field.default, field.default_factory) != (missing, missing))
            for field in dataclasses.fields(model)
        ]
    return [(field.name, not field.required) for field in msgspec.structs.fields(model)]


def _plain(schema: Any) -> Any:
    """The same schema, shorter: without its default, titles, and choices where a type has null."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {}
    if "description" in schema:
        plain["description"] = schema["description"]
    for key, value in schema.items():
        if key == "properties":
            plain[key] = {name: _plain(field) for name, field in value.items()}
        elif key not in ("default", "title", "description") and value != []:
            plain[key] = _plain(value)
    choices = plain.get("anyOf", [])
    if len(choices) == 2 and choices[1] == {"type": "null"} and "type" in choices[0]:
        del plain["anyOf"]
        plain |= choices[0]
        plain["type"] = [choices[0]["type"], "null"]
        if "enum" in plain:
            plain["enum"] = [*plain["enum"], None]
    return plain


def _laid_out(value: Any, indent: int = 0, before: int = 0) -> str:
    """JSON with each value on one line where that has room; `before`: characters on its line."""
    line = json.dumps(value, ensure_ascii=False)
    if indent + before + len(line) < _WIDTH and (indent or not isinstance(value, dict)):
        return line
    if not value or not isinstance(value, (dict, list)):
        return line
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        names = {json.dumps(key, ensure_ascii=False) + ": ": item for key, item in value.items()}
        items = [name + _laid_out(item, indent + 2, len(name)) for name, item in names.items()]
        opening, closing = "{}"
    else:
        items = [_laid_out(item, indent + 2) for item in value]
        opening, closing = "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(items) + f"\n{' ' * indent}{closing}"


if __name__ == "__main__":
    for document in DOCUMENTS:
        (FOLDER / f"{document}.json").write_text(text(document), encoding="utf-8")
