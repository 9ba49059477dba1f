"""The paper's mapping from operations to their functions, learnt from isolated runs.

`build` makes it from isolated runs, `to_json` and `from_json` store it with the evidence for every
pair, `native_map.paper.attribution.apply` applies it to a profile without times and threads.
"""

import json
import math
import re
from collections.abc import Iterable
from collections.abc import Mapping as Table
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from native_map.errors import Unusable
from native_map.paper.function_counts import MAX_NAME, MAX_VALUE, Profile
from native_map.plain_file import opened

FORMAT = "lotus-mapping"
VERSION = 1
MAX_BYTES = 16 << 20
MAX_SUM = MAX_VALUE * 1e6
MINIMUM_RUNS = 2

KEYS = ["operation", "module", "function"]
_COLUMNS = {
    **dict.fromkeys(KEYS, str),
    "runs": int,
    "of": int,
    "samples": float,
    "cpu_ns": float,
    "share": float,
    "weight": float,
    "kept": bool,
    "reason": str,
}
_OPERATION = {"name": str, "runs": int, "samples": float, "cpu_ns": float}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")


@dataclass(frozen=True)
class Mapping:
    """Operations and their functions.

    `functions` has one row per pair: `operation`, `module`, `function`; the evidence: `runs` (how
    many isolated runs had the pair), `of` (how many there were), `samples` (NaN if the profiler
    gives none), `cpu_ns` (over all runs), `share` (of the operation's isolated time); `weight` (the
    operation's part of this function, by the function's measured time per run in each operation
    that keeps it); `kept`, and if not, the `reason`.
    `operations`: `name`, `runs`, `samples`, `cpu_ns`. `measure`: the unit of time, 'cpu_ns' or
    'samples'. `facts`: free text about the machine and program.
    """

    functions: pd.DataFrame
    operations: pd.DataFrame
    minimum_runs: int = MINIMUM_RUNS
    measure: str = "cpu_ns"
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def kept(self) -> pd.DataFrame:
        """The rows of `functions` that were kept."""
        return self.functions[self.functions["kept"]].reset_index(drop=True)


def rows_of(profile: Profile, operation: str, run: int | str) -> pd.DataFrame:
    """Return rows for `build` from the profile of one isolated run.

    Raises Unusable if the profile has no numbers.
    """
    functions = profile.functions
    rows = functions[["module", "function"]].copy()
    rows.insert(0, "run", str(run))
    rows.insert(0, "operation", operation)
    absent = pd.Series(np.nan, index=functions.index)
    rows["samples"] = functions.get("samples", absent)
    rows["cpu_ns"] = functions.get("cpu_ns", absent)
    if rows[["samples", "cpu_ns"]].isna().all(axis=None):
        raise Unusable(
            f"{profile.source} has neither CPU time nor samples of its functions; "
            "record it with -e cpu-clock, or report it with -n"
        )
    return rows


def build(
    runs: pd.DataFrame,
    minimum_runs: int = MINIMUM_RUNS,
    run_counts: Table[str, int] | None = None,
    facts: Table[str, str] | None = None,
) -> Mapping:
    """Build the mapping from isolated runs.

    `runs` has one row per operation, run, module and function with `samples` and `cpu_ns` (either
    may be NaN throughout). `run_counts` gives an operation's number of runs if some caught nothing
    and so have no row. A pair seen in fewer than `minimum_runs` runs is not kept, nor is one
    without a function's name; both are listed with their reason. Raises Unusable if no pair is
    kept.
    """
    needed = ["operation", "run", "module", "function", "samples", "cpu_ns"]
    missing = [name for name in needed if name not in runs.columns]
    if missing:
        raise ValueError(f"runs lacks the columns {', '.join(missing)}")
    if minimum_runs < 1:
        raise ValueError("minimum_runs must be at least 1")
    runs = runs[needed].astype({"samples": "float64", "cpu_ns": "float64"})
    runs = runs[(runs["samples"].fillna(0) > 0) | (runs["cpu_ns"].fillna(0) > 0)]
    if runs.empty:
        raise Unusable("the isolated runs caught no function; repeat them, longer or more often")
    timed = runs["cpu_ns"].notna().all() and runs.groupby("operation")["cpu_ns"].sum().min() > 0
    measure = "cpu_ns" if timed else "samples"
    if runs[measure].isna().any() or not runs.groupby("operation")[measure].sum().min() > 0:
        raise Unusable(
            "some isolated runs have CPU time and others only samples; record all in one way"
        )
    pairs = runs.groupby(KEYS, sort=True)
    functions = pairs["run"].nunique().rename("runs").reset_index()
    for name in ("samples", "cpu_ns"):
        functions[name] = pairs[name].sum(min_count=1).to_numpy()
    by_operation = runs.groupby("operation", sort=True)
    operations = by_operation["run"].nunique().rename("runs").reset_index()
    for name, count in (run_counts or {}).items():
        chosen = operations["operation"] == name
        operations.loc[chosen, "runs"] = operations.loc[chosen, "runs"].clip(lower=count)
    for name in ("samples", "cpu_ns"):
        operations[name] = by_operation[name].sum(min_count=1).to_numpy()
    operations = operations.rename(columns={"operation": "name"})
    of = operations.set_index("name")["runs"]
    operation_total = operations.set_index("name")[measure]
    functions["of"] = functions["operation"].map(of)
    functions["share"] = functions[measure] / functions["operation"].map(operation_total)
    nameless = functions["function"].str.fullmatch(r"\[unknown\]|\s*")
    few = functions["runs"] < minimum_runs
    functions["kept"] = ~(nameless | few)
    functions["reason"] = ""
    functions.loc[few, "reason"] = [
        f"seen in {row.runs} of {row.of} runs, {minimum_runs} wanted"
        for row in functions[few].itertuples()
    ]
    functions.loc[nameless, "reason"] = "the profiler gave no name of the function"
    if not functions["kept"].any():
        raise Unusable(
            f"no function was seen in {minimum_runs} runs of its operation; "
            "make more runs, or keep single sightings with a minimum of 1"
        )
    functions["weight"] = weights(functions, measure)
    functions = functions[list(_COLUMNS)]
    return Mapping(functions, operations, minimum_runs, measure, dict(facts or {}))


def weights(functions: pd.DataFrame, measure: str) -> pd.Series:
    """Return each kept pair's part of its function; 0 for pairs that are not kept.

    Uses the function's measured time per run, so that operations with more runs do not weigh more.
    """
    time = (functions[measure] / functions["of"]).where(functions["kept"], 0.0)
    function_total = time.groupby([functions["module"], functions["function"]]).transform("sum")
    return (time / function_total.where(function_total > 0)).fillna(0.0)


def to_json(mapping: Mapping) -> str:
    """Return the mapping with all its evidence as JSON; NaN becomes null."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "minimum_runs": mapping.minimum_runs,
        "measure": mapping.measure,
        "facts": mapping.facts,
        "operations": _records(mapping.operations, _OPERATION),
        "functions": _records(mapping.functions, _COLUMNS),
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def write(mapping: Mapping, path: str | Path) -> None:
    """Write the mapping as JSON. Raises Unusable if that fails."""
    try:
        Path(path).write_text(to_json(mapping), encoding="utf-8")
    except OSError as error:
        raise Unusable(f"{path}: cannot be written ({error.strerror}); name another file") from None


def read(path: str | Path) -> Mapping:
    """Read a mapping. Raises Unusable, with one line, if the file is not a mapping."""
    try:
        with opened(path) as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise Unusable(f"{path}: cannot be read ({reason}); type: lotus map build --help") from None
    return from_json(data, str(path))


def from_json(data: bytes | str, source: str = "the mapping") -> Mapping:
    """Return the mapping of a JSON text. Checks every field; raises Unusable."""
    if len(data) > MAX_BYTES:
        _damaged(source, f"larger than {MAX_BYTES >> 20} MiB")
    try:
        document = json.loads(
            data, parse_int=_integer, parse_constant=_constant, object_pairs_hook=_unique
        )
    except (ValueError, RecursionError) as error:
        _damaged(source, f"not JSON: {str(error)[:80]}")
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        _damaged(source, f"no {FORMAT}")
    if document.get("version") != VERSION:
        raise Unusable(
            f"{source}: this lotus reads version {VERSION} of mappings; build it again: "
            "lotus map build"
        )
    _fields(source, document, {"format", "version", "minimum_runs", "measure", "facts",
                               "operations", "functions"}, "the mapping")  # fmt: skip
    minimum, measure, facts = document["minimum_runs"], document["measure"], document["facts"]
    if type(minimum) is not int or minimum < 1 or measure not in ("cpu_ns", "samples"):
        _damaged(source, "minimum_runs or measure")
    if not isinstance(facts, dict) or not all(
        isinstance(value, str) and not _CONTROL.search(key + value) for key, value in facts.items()
    ):
        _damaged(source, "facts")
    operations = _frame(source, document["operations"], _OPERATION, "operations")
    functions = _frame(source, document["functions"], _COLUMNS, "functions")
    _consistent(source, functions, operations, minimum, measure)
    return Mapping(functions, operations, minimum, measure, facts)


def _consistent(
    source: str, functions: pd.DataFrame, operations: pd.DataFrame, minimum: int, measure: str
) -> None:
    """Raise an error for contents that `build` cannot have written."""
    if functions.duplicated(KEYS).any() or operations["name"].duplicated().any():
        _damaged(source, "one pair or operation stands there twice")
    of = functions["operation"].map(operations.set_index("name")["runs"])
    if not (functions["of"] == of).all():  # also if the operation is missing
        _damaged(source, "functions and operations tell different numbers of runs")
    if not functions["runs"].between(1, functions["of"]).all() or operations["runs"].min() < 1:
        _damaged(source, "numbers of runs")
    if functions[measure].isna().any() or functions["share"].isna().any():
        _damaged(source, f"{measure} or share is missing")
    if functions["share"].gt(1 + 1e-9).any():
        _damaged(source, "a share above one")
    if functions["kept"].to_numpy() @ (functions["runs"] < minimum).to_numpy():
        _damaged(source, "a pair is kept with fewer runs than minimum_runs")
    if not np.allclose(functions["weight"], weights(functions, measure), atol=1e-9):
        _damaged(source, "weights that do not follow from the measured times")


def _frame(source: str, rows: Any, fields: dict[str, type], what: str) -> pd.DataFrame:
    if not isinstance(rows, list) or not rows:
        _damaged(source, f"{what} is no list or empty")
    for row in rows:
        if not isinstance(row, dict):
            _damaged(source, f"{what} holds something else")
        _fields(source, row, set(fields), what)
        for name, kind in fields.items():
            value = row[name]
            if kind is float:
                good = value is None or (type(value) in (int, float) and 0 <= value <= MAX_SUM)
            elif kind is str:
                good = (
                    isinstance(value, str) and len(value) <= MAX_NAME and not _CONTROL.search(value)
                )
            else:
                good = type(value) is kind
            if not good:
                _damaged(source, f"{name} of {what}")
    columns = {name: [row[name] for row in rows] for name in fields}
    kinds = {float: "float64", int: "int64", bool: "bool"}
    frame = pd.DataFrame(columns)
    return frame.astype({name: kinds[kind] for name, kind in fields.items() if kind in kinds})


def _records(frame: pd.DataFrame, fields: dict[str, type]) -> list[dict[str, Any]]:
    def plain(value: Any, kind: type) -> Any:
        return None if kind is float and math.isnan(value) else kind(value)

    names = list(fields)
    return [
        {name: plain(value, fields[name]) for name, value in zip(names, row, strict=True)}
        for row in frame[names].itertuples(index=False, name=None)
    ]


def _fields(source: str, row: dict[str, Any], required: set[str], what: str) -> None:
    if row.keys() != required:
        _damaged(source, f"{what} has other fields than {', '.join(sorted(required))}")


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


def _damaged(source: str, what: str) -> NoReturn:
    raise Unusable(f"{source} is damaged ({what}); build the mapping again: lotus map build")
