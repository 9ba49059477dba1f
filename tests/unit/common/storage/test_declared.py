"""Documents as dataclasses: what is wrong has a place, and limits hold wherever one is made."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotus.common.storage import declared
from lotus.common.storage.declared import Length, OneOf, Pattern, Range


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


@dataclass(frozen=True)
class Limited:
    count: Annotated[Annotated[int, Range(0, 9)] | None, "How many."] = None
    weight: Annotated[float, Range(0)] = 0.0
    names: Annotated[tuple[Annotated[str, Length(1, 3)], ...], Length(0, 2)] = ()
    kind: Annotated[str, OneOf(("a", "b"))] = "a"
    path: Annotated[str, Pattern(r"/.*", "an absolute path")] = "/"
    sure: bool = False

    def __post_init__(self) -> None:
        declared.check(self)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"count": 10}, "count is 10: it must be a whole number from 0 to 9"),
        ({"count": True}, "count is True: it must be a whole number"),
        ({"weight": -0.5}, "weight is -0.5: it must be a number from 0 on"),
        ({"weight": float("nan")}, "weight is nan: it must be a number from 0 on"),
        ({"weight": float("inf")}, "weight is inf: it must be a number from 0 on"),
        ({"names": ("a", "")}, "names[1] has 0 characters: it must have 1 to 3"),
        ({"names": ("a", "b", "c")}, "names has 3 items: it must have 0 to 2"),
        ({"kind": "c"}, "kind is 'c': it must be one of a, b"),
        ({"path": "x"}, "path is 'x': it must be an absolute path"),
        ({"path": "/x\n"}, "path is '/x\\n': it must be an absolute path"),
        ({"sure": 1}, "sure is 1: it must be true or false"),
    ],
)
def test_limits_hold_for_what_is_made_and_what_is_read(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Limited(**fields)
    if "count is True" not in message and "sure" not in message:  # types, of which msgspec says it
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            declared.read_as(Limited, fields)


def test_what_limits_allow_is_made_and_read() -> None:
    fields: dict[str, Any] = {"count": 9, "weight": 1, "names": ("a", "abc"), "kind": "b"}
    assert declared.read_as(Limited, fields) == Limited(**fields)
    assert Limited().count is None


def test_a_head_is_read_apart_from_its_content() -> None:
    head, others = declared.read_head(Part, {"size": 3, "more": 4})
    assert (head, others) == (Part(3), {"more": 4})
    with pytest.raises(ValueError, match="the plan must be an object, not a list"):
        declared.read_head(Part, [], "the plan")
    with pytest.raises(ValueError, match="the plan has no size"):
        declared.read_head(Part, {"more": 4}, "the plan")
