"""The paper's mapping from operations to their functions, learnt from isolated runs.

`build` makes it from isolated runs, `to_json` and `from_json` store it with the evidence for every
pair, `native_map.paper.attribution.apply` applies it to a profile without times and threads.
"""

import json
from collections.abc import Mapping as Table
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from msgspec import Struct
from msgspec.structs import astuple

from native_map.errors import UnusableError
from native_map.paper import mapping_document
from native_map.paper.function_counts import Profile
from native_map.paper.mapping_document import FORMAT, VERSION, FunctionRow, OperationRow
from native_map.plain_file import opened

MAX_BYTES = 16 << 20
MINIMUM_RUNS = 2

KEYS = ["operation", "module", "function"]


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

    Raises UnusableError if the profile has no numbers.
    """
    functions = profile.functions
    rows = functions[["module", "function"]].copy()
    rows.insert(0, "run", str(run))
    rows.insert(0, "operation", operation)
    absent = pd.Series(np.nan, index=functions.index)
    rows["samples"] = functions.get("samples", absent)
    rows["cpu_ns"] = functions.get("cpu_ns", absent)
    if rows[["samples", "cpu_ns"]].isna().all(axis=None):
        raise UnusableError(
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
    without a function's name; both are listed with their reason. Raises UnusableError if no pair is
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
        raise UnusableError(
            "the isolated runs caught no function; repeat them, longer or more often"
        )
    timed = runs["cpu_ns"].notna().all() and runs.groupby("operation")["cpu_ns"].sum().min() > 0
    measure = "cpu_ns" if timed else "samples"
    if runs[measure].isna().any() or not runs.groupby("operation")[measure].sum().min() > 0:
        raise UnusableError(
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
        raise UnusableError(
            f"no function was seen in {minimum_runs} runs of its operation; "
            "make more runs, or keep single sightings with a minimum of 1"
        )
    functions["weight"] = weights(functions, measure)
    functions = functions[list(FunctionRow.__struct_fields__)]
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
        "operations": _records(mapping.operations, OperationRow),
        "functions": _records(mapping.functions, FunctionRow),
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def write(mapping: Mapping, path: str | Path) -> None:
    """Write the mapping as JSON. Raises UnusableError if that fails."""
    try:
        Path(path).write_text(to_json(mapping), encoding="utf-8")
    except OSError as error:
        raise UnusableError(
            f"{path}: cannot be written ({error.strerror}); name another file"
        ) from None


def read(path: str | Path) -> Mapping:
    """Read a mapping. Raises UnusableError, with one line, if the file is not a mapping."""
    try:
        with opened(path) as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise UnusableError(
            f"{path}: cannot be read ({reason}); type: lotus map build --help"
        ) from None
    return from_json(data, str(path))


def from_json(data: bytes | str, source: str = "the mapping") -> Mapping:
    """Return the mapping of a JSON text. Checks every field; raises UnusableError."""
    if len(data) > MAX_BYTES:
        _refuse(source, f"larger than {MAX_BYTES >> 20} MiB")
    try:
        document = mapping_document.parse(data)
    except ValueError as error:
        _refuse(source, str(error))
    operations = _frame(document.operations, OperationRow)
    functions = _frame(document.functions, FunctionRow)
    minimum, measure = document.minimum_runs, document.measure
    _consistent(source, functions, operations, minimum, measure)
    return Mapping(functions, operations, minimum, measure, document.facts)


def _consistent(
    source: str, functions: pd.DataFrame, operations: pd.DataFrame, minimum: int, measure: str
) -> None:
    """Raise an error for contents that `build` cannot have written."""
    of = functions["operation"].map(operations.set_index("name")["runs"].groupby(level=0).first())
    off = ~np.isclose(functions["weight"], weights(functions, measure), atol=1e-9)
    few = functions["kept"] & (functions["runs"] < minimum)
    for table, wrong, what in (
        ("operations", operations["name"].duplicated(), "its name stands there twice"),
        ("functions", functions.duplicated(KEYS), "the pair stands there twice"),
        ("functions", functions["of"] != of, "operations tell a different number of runs"),
        (
            "functions",
            functions["runs"] > functions["of"],
            "it was seen in more runs than there were",
        ),
        ("functions", functions[measure].isna(), f"{measure} is missing"),
        ("functions", few, "it is kept with fewer runs than minimum_runs"),
        ("functions", off, "its weight does not follow from the measured times"),
    ):
        if wrong.any():
            _refuse(source, f"{table}[{np.argmax(wrong)}]: {what}")


def _frame(rows: Sequence[Struct], kind: type[Struct]) -> pd.DataFrame:
    columns = list(kind.__struct_fields__)
    frame = pd.DataFrame([astuple(row) for row in rows], columns=columns)
    return frame.astype({name: "float64" for name in columns if name in ("samples", "cpu_ns")})


def _records(frame: pd.DataFrame, kind: type[Struct]) -> list[dict[str, Any]]:
    names = list(kind.__struct_fields__)
    return [
        {name: None if value != value else value for name, value in zip(names, row, strict=True)}
        for row in frame[names].itertuples(index=False, name=None)
    ]


def _refuse(source: str, what: str) -> NoReturn:
    what = "".join(char if char.isprintable() else "?" for char in what)
    raise UnusableError(
        f"{source} is no mapping that this lotus can use ({what}); build it again: lotus map build"
    )
