"""Documents as dataclasses: what is wrong has a place, and their schemas say what is declared."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotus.common import declared
from lotus.schemas import documents
from lotus.settings.share_plan import SharePlan
from lotus.settings.tuned_file import Tuned


@dataclass(frozen=True)
class Part:
    size: int
    name: str | None = None

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"size is {self.size}")


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    weight: float = 1.0
    facts: dict[str, Any] | None = None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "the plan must be an object, not null"),
        ([], "the plan must be an object, not a list"),
        ({}, "the plan has no parts"),
        ({"parts": {}}, "parts must be a list, not an object"),
        ({"parts": [{"size": 1}, {}]}, "parts[1] has no size"),
        ({"parts": [{"size": 1.5}]}, "parts[0].size must be a whole number, not a decimal one"),
        ({"parts": [{"size": 1, "name": 1.5}]}, "name must be a text or null, not a number"),
        ({"parts": [{"size": True}]}, "parts[0].size must be a whole number, not true or false"),
        ({"parts": [{"size": -1}]}, "in parts[0], size is -1"),
        ({"parts": [], "weight": 10**400}, "in weight, number out of range"),
        (
            {"parts": [], "wieght": 2},
            "the plan has unknown fields: wieght; it may have parts, weig",
        ),
        ({"parts": [{"size": 1, "at`": 2}]}, "parts[0] has unknown fields: at`; it may have size,"),
    ],
)
def test_what_is_wrong_has_its_place(content: object, message: str) -> None:
    with pytest.raises(ValueError, match=r"^(in |parts|the plan)") as caught:
        declared.read_as(Whole, content, "the plan")
    assert message in str(caught.value)


@pytest.mark.parametrize("content", [{"parts": [{"size": 1, "\ud800": 2}]}, {"\ud800": 1}])
def test_half_of_a_surrogate_pair_is_no_text(content: object) -> None:
    with pytest.raises(ValueError, match=r"^the plan has a text that is not Unicode$"):
        declared.read_as(Whole, content, "the plan")


def test_what_is_free_is_kept_as_it_is() -> None:
    facts: dict[str, Any] = {"deep": None, "weight": float("nan"), "large": 10**400}
    innermost = facts
    for _ in range(100_000):
        innermost["deep"] = innermost = {}
    whole = declared.read_as(Whole, {"parts": [{"size": 10**400}], "facts": facts})
    assert whole == Whole((Part(10**400),), 1.0, facts)
    while facts:  # taken apart by hand: Python itself would do it recursively
        facts = facts.pop("deep", None) or {}


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["parts", "weight", "size", "name", "x"]), inner),
    max_leaves=10,
))  # fmt: skip
def test_anything_is_read_or_refused(content: object) -> None:
    try:
        whole = declared.read_as(Whole, content)
    except ValueError:
        return
    assert all(part.size >= 0 for part in whole.parts)


def differences(schema: Any, wanted: Any, defs: Any, wanted_defs: Any, at: str) -> Iterator[str]:
    """What a schema of a file says otherwise than the one of its class, `wanted`."""
    schema, nullable = one_of(schema, defs)
    wanted, may_be_null = one_of(wanted, wanted_defs)
    kinds = {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])
    if (kinds - {"null"}, nullable or "null" in kinds) != ({wanted["type"]}, may_be_null):
        yield f"{at} is {kinds}, declared {wanted['type']}"
    if "items" in wanted:
        yield from differences(schema["items"], wanted["items"], defs, wanted_defs, f"{at}[]")
    if "properties" in wanted:
        names, declared_names = set(schema["properties"]), set(wanted["properties"])
        if names != declared_names or schema["additionalProperties"] is not False:
            yield f"{at} has {names}, declared {declared_names}"
        if set(schema.get("required", ())) != set(wanted["required"]):
            yield f"{at} requires {schema.get('required')}, declared {wanted['required']}"
        for name in names & declared_names:
            fields = schema["properties"][name], wanted["properties"][name]
            yield from differences(*fields, defs, wanted_defs, f"{at}.{name}")


def one_of(schema: Any, defs: Any) -> tuple[Any, bool]:
    """The schema that is not that of null, its reference followed; whether null is allowed."""
    choices = schema.get("anyOf", [schema])
    others = [choice for choice in choices if choice.get("type") != "null"]
    (schema,) = others
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    return defs[name] if name else schema, len(others) < len(choices)


@pytest.mark.parametrize(
    ("name", "model", "beside"),
    [
        ("tuned", Tuned, {"schema"}),
        ("balance", SharePlan, {"format", "version", "world_size", "global_batch"}),
    ],
)
def test_schemas_say_what_is_declared(name: str, model: type, beside: set[str]) -> None:
    """`beside`: what only the file has."""
    (reference,), defs = msgspec.json.schema_components([model], ref_template="#/$defs/{name}")
    schema = documents.schema(name)
    schema["properties"] = {
        field: value for field, value in schema["properties"].items() if field not in beside
    }
    assert beside <= set(schema["required"])
    schema["required"] = [field for field in schema["required"] if field not in beside]
    own = schema.get("$defs", {})
    assert list(differences(schema, reference, own, defs, name)) == []
    schema["properties"]["evidence" if name == "tuned" else "predicted"]["type"] = "array"
    assert len(list(differences(schema, reference, own, defs, name))) == 1
