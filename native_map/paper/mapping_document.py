"""mapping.json as its classes declare it: its fields, their types and their values.

tools/schemas.py writes its JSON Schema from them.
"""

import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NoReturn

import msgspec
from msgspec import Meta, Struct

from native_map.paper.function_counts import MAX_NAME, MAX_VALUE

MAX_SUM = MAX_VALUE * 1e6
FORMAT = "lotus-mapping"

VERSION = 1

# No control characters or halves of surrogate pairs, which would harm a terminal or are no UTF-8.
Text = Annotated[str, Meta(pattern=r"^(?!.*[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029])")]
Name = Annotated[Text, Meta(max_length=MAX_NAME)]
_NO_MATCH = re.compile(r"matching regex '.*'", re.DOTALL)
Runs = Annotated[int, Meta(ge=1)]
Sum = Annotated[float, Meta(ge=0, le=MAX_SUM)]
Share = Annotated[float, Meta(ge=0, le=1 + 1e-9)]  # rounded


class OperationRow(Struct, frozen=True, forbid_unknown_fields=True):
    """An operation."""

    name: Annotated[Name, "Its name."]
    runs: Annotated[Runs, "Isolated runs of it."]
    samples: Annotated[Sum | None, "Samples."]
    cpu_ns: Annotated[Sum | None, "CPU time over all runs, nanoseconds."]


class FunctionRow(Struct, frozen=True, forbid_unknown_fields=True):
    """An operation and a function."""

    operation: Annotated[Name, "The operation."]
    module: Annotated[Name, "The function's library."]
    function: Annotated[Name, "The function."]
    runs: Annotated[Runs, "Isolated runs that it was seen in."]
    of: Annotated[Runs, "Isolated runs there were."]
    samples: Annotated[Sum | None, "Samples."]
    cpu_ns: Annotated[Sum | None, "CPU time over all runs, nanoseconds."]
    share: Annotated[Share, "Share of the operation's isolated time, 0 to 1."]
    weight: Annotated[Share, "Part of the function that the operation is given, 0 to 1."]
    kept: Annotated[bool, "Whether it is used."]
    reason: Annotated[Name, "Why not; empty: it is."]


class MappingDocument(Struct, frozen=True, forbid_unknown_fields=True):
    """Functions that each operation runs, written by lotus map build, read by lotus map apply."""

    format: Annotated[Literal["lotus-mapping"], "What it is."]
    version: Annotated[int, "Number of this layout."]
    minimum_runs: Annotated[Runs, "Runs in which a function must have been seen."]
    measure: Annotated[Literal["cpu_ns", "samples"], "What time is measured in."]
    facts: Annotated[dict[Text, Annotated[Text, "A text."]], "Where it was measured."]
    operations: Annotated[list[OperationRow], Meta(min_length=1), "A row an operation."]
    functions: Annotated[list[FunctionRow], Meta(min_length=1), "A row an operation and function."]


def parse(data: bytes | str) -> MappingDocument:
    """Return the content of a mapping.json. Raises ValueError, with the place of what is wrong."""
    try:
        content = json.loads(
            data, parse_int=_integer, parse_constant=_constant, object_pairs_hook=_unique
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {str(error)[:80]}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f'its "format" is not "{FORMAT}"')
    if type(content.get("version")) is not int or content["version"] != VERSION:
        raise ValueError(
            f"its version is {content.get('version')!r:.50}, this lotus reads {VERSION}"
        )
    try:
        return msgspec.convert(content, MappingDocument)
    except msgspec.ValidationError as error:
        raise ValueError(_problem(str(error), content)) from None
    except UnicodeEncodeError:
        raise ValueError("a field's name is not Unicode") from None


def _problem(error: str, content: Any) -> str:
    """Return what msgspec says with its place first and, if it names only a limit, the value."""
    error, _, place = error.rpartition(" - at ") if " - at `" in error else (error, "", "")
    error = _NO_MATCH.sub("without control characters", error)
    place = place.replace("`", "").replace("$.", "")
    if place and ", got " not in error and error.startswith("Expected") and "facts" not in place:
        for name, index in re.findall(r"(\w+)|\[(\d+)\]", place):
            content = content[name] if name else content[int(index)]
        error += f", got {content!r:.50}"
    return f"{place}: {error[:1].lower()}{error[1:]}" if place else error


def _integer(digits: str) -> int:
    if len(digits) > 19:  # does not fit int64, and int() takes quadratic time
        raise ValueError("a number of too many digits")
    value = int(digits)
    if not -(2**63) <= value < 2**63:
        raise ValueError("a number of too many digits")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    pairs = list(pairs)
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("one field stands there twice")
    return members
