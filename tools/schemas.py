"""Writes the JSON Schemas in lotus/schemas/ that follow from the code.

    python tools/schemas.py

balance.json, mapping.json, sweep.json, tuned.json: all of them, from the classes that their readers
declare (`DOCUMENTS`); descriptions are the texts in `Annotated` and the first lines of docstrings.
report.json: the kinds of causes and their evidence, from the table in
lotus/analysis/verdict/causes/. The other schemas are written by hand.

A test fails if one of these files is not as this tool writes it.
"""

import dataclasses
import json
import re
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Union

import msgspec

from lotus.analysis.verdict.causes import CAUSES
from lotus.common.storage.declared import Length, OneOf, Pattern, Range
from lotus.settings.share_plan import PlanHead, SharePlan
from lotus.settings.tuned_file import Tuned, TunedHead
from lotus.sweep.sweep_document import SweepDocument
from native_map.paper.mapping_document import MappingDocument

FOLDER = Path(__file__).parents[1] / "lotus" / "schemas"
# The class of a document last, before it one of the fields that stand beside its content.
DOCUMENTS: dict[str, tuple[type, ...]] = {
    "balance": (PlanHead, SharePlan),
    "mapping": (MappingDocument,),
    "sweep": (SweepDocument,),
    "tuned": (TunedHead, Tuned),
}
_WIDTH = 110  # of a line; what fits is not broken
REPORT = "report"
_CAUSE = '"description": "One cause."'  # what precedes both places
_KINDS = re.compile(r'("enum": \[)(.*?)(\n *\])', re.DOTALL)
_FACTS = re.compile(
    r'("description": "Numbers that it stands on.*?"properties": \{)(.*?)(\n *\},\n *"additional)',
    re.DOTALL,
)


def with_causes(report: str) -> str:
    """Return the text of the report's schema with the kinds and the evidence of the causes."""
    kinds = [json.dumps(kind) for kind in dict.fromkeys(row.kind for row in CAUSES)]
    facts: dict[str, str] = {}
    for row in CAUSES:
        for name, description in row.facts.items():
            if facts.setdefault(name, description) != description:
                raise ValueError(f"evidence {name} has two descriptions")
    fields = [
        f'{json.dumps(name)}: {{"description": {json.dumps(text)}, "type": ["number", "null"]}}'
        for name, text in facts.items()
    ]
    before, separator, cause = report.partition(_CAUSE)
    return before + separator + _replaced(_FACTS, _replaced(_KINDS, cause, kinds), fields)


def _replaced(place: re.Pattern[str], text: str, lines: list[str]) -> str:
    inside = ",".join(f"\n{' ' * 18}{line}" for line in lines)
    return place.sub(lambda match: match[1] + inside + match[3], text, count=1)


def of_classes(name: str) -> str:
    """Return the text of the schema of one of `DOCUMENTS`."""
    made: dict[type, type] = {}
    models = DOCUMENTS[name]
    (_, parts) = msgspec.json.schema_components(
        [_described(model, made) for model in models], ref_template="#/$defs/{name}"
    )
    parts = {part: _plain(schema) for part, schema in parts.items()}
    *heads, whole = (parts.pop(model.__name__) for model in models)
    for head in heads:
        whole["properties"] = head["properties"] | whole["properties"]
        whole["required"] = head["required"] + whole["required"]
    if name == "tuned":
        whole["properties"]["evidence"] |= _of_earlier_versions_too()
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:lotus:{name}:1",
        "title": f"{name}.json",
        "description": whole.pop("description"),
    }
    return _laid_out({**head, **whole, **({"$defs": parts} if parts else {})}) + "\n"


def _described(kind: Any, made: dict[type, type]) -> Any:
    """Return the type as msgspec needs it, with descriptions of its own; `made`: its classes."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        plain = _described(kind.__origin__, made)
        for note in kind.__metadata__:
            plain = _noted(plain, note)
        return plain
    if origin in (Union, types.UnionType):
        return Union[tuple(_described(choice, made) for choice in inner)]  # noqa: UP007
    if inner and origin is not typing.Literal:
        return origin[tuple(_described(item, made) for item in inner)]
    if dataclasses.is_dataclass(kind) or isinstance(kind, msgspec.StructMeta):
        if kind not in made:
            made[kind] = _struct(kind, made)
        return made[kind]
    return kind


def _noted(kind: Any, note: Any) -> Any:
    """Return a type with a note of its annotation as one of msgspec."""
    if isinstance(note, str):
        return Annotated[kind, msgspec.Meta(description=note)]
    if isinstance(note, OneOf):
        return typing.Literal[note.choices]
    if isinstance(note, Range):
        return Annotated[kind, msgspec.Meta(ge=note.least, le=note.most)]
    if isinstance(note, Length):
        return Annotated[kind, msgspec.Meta(min_length=note.least, max_length=note.most)]
    if isinstance(note, Pattern):
        return Annotated[kind, msgspec.Meta(pattern=f"^{note.regex}$")]
    return Annotated[kind, note]


def _of_earlier_versions_too() -> dict[str, Any]:
    """Return the schema of the evidence in tuned.json: that of tune.json, with optional fields.

    Files of earlier versions lack some.
    """

    def optional(schema: Any) -> Any:
        if isinstance(schema, list):
            return [optional(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema:  # tuned.json calls its parts as the classes
            return schema | {"$ref": f"#/$defs/{schema['$ref'].rpartition('/')[2].capitalize()}"}
        return {
            key: optional(item)
            for key, item in schema.items()
            if key != "required" or not isinstance(item, list)
        }

    properties = json.loads((FOLDER / "tune.json").read_text(encoding="utf-8"))["properties"]
    own = {name: value for name, value in properties.items() if name not in ("schema", "settings")}
    return {"properties": optional(own), "additionalProperties": False}


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
    """Return the fields of a class, with True for those that a document may lack."""
    if dataclasses.is_dataclass(model):
        missing = dataclasses.MISSING
        return [
            (field.name, (field.default, field.default_factory) != (missing, missing))
            for field in dataclasses.fields(model)
        ]
    return [(field.name, not field.required) for field in msgspec.structs.fields(model)]


def _plain(schema: Any) -> Any:
    """Return the schema without defaults, titles, and choices between a type and null."""
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
    """Return JSON with values on one line if they fit; `before`: characters on that line."""
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


def main() -> None:
    """Write the schemas, and print the names of those that have changed."""
    report = (FOLDER / f"{REPORT}.json").read_text(encoding="utf-8")
    texts = {name: of_classes(name) for name in DOCUMENTS} | {REPORT: with_causes(report)}
    for name, text in texts.items():
        file = FOLDER / f"{name}.json"
        if file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print(file)


if __name__ == "__main__":
    main()
