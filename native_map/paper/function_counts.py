"""The result of all importers, and the parsing of numbers and names in exports of other tools."""

import csv
import io
import math
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

import numpy as np
import pandas as pd

from native_map.errors import UnusableError
from native_map.plain_file import opened

MAX_BYTES = 32 << 20
MAX_LINE = 1 << 20
MAX_CELLS = 1_000_000  # some 50,000 functions of 20 columns
MAX_COLUMNS = 500
MAX_VALUE = 1e24  # above any count, yet sums and products stay finite
MAX_NAME = 20_000  # demangled C++ templates reach a few thousand characters

TOPDOWN = ("retiring", "frontend_bound", "bad_speculation", "backend_bound")
# Columns that shares refer to, the best first; slots are a constant multiple of cycles.
WEIGHTS = ("slots", "cycles", "cpu_ns", "samples")

# A remainder of other shares may be this far below zero, by rounding and counting errors.
NEAR_ZERO = 0.05
_ROUNDING = 1e-9
_ROUNDED_ROWS = 0.01  # exports round their rows, whose sum may exceed the total by this factor

# Columns that a mapping adds to those of a profile.
_TAKEN = set(
    "module function row key library entry operation weight shared runs of match evidence pairs "
    "ipc weak few_runs no_module covered reason time".split()
)
_NAMELESS = {"", "[unknown]", "unknown", "unknown module", "[outside any known module]", "n/a"}
_KERNEL = {"[kernel.kallsyms]", "[kernel.vmlinux]", "[kernel]", "vmlinux", "kernel"}
_UNITS = {
    "": ("", 1.0),
    "%": ("share", 0.01),
    "ns": ("ns", 1.0),
    "us": ("ns", 1e3),
    "µs": ("ns", 1e3),
    "μs": ("ns", 1e3),
    "microseconds": ("ns", 1e3),
    "ms": ("ns", 1e6),
    "milliseconds": ("ns", 1e6),
    "s": ("ns", 1e9),
    "sec": ("ns", 1e9),
    "seconds": ("ns", 1e9),
    "hz": ("hz", 1.0),
    "khz": ("hz", 1e3),
    "mhz": ("hz", 1e6),
    "ghz": ("hz", 1e9),
}
_NUMBER = re.compile(
    r"([+-]?)([0-9][0-9.,'\u2019 \u00a0\u202f]*|[.,][0-9]+)"
    r"(?:[eE]([+-]?[0-9]{1,3}))?\s*(%|[A-Za-zµμ]*)"
)
_ABSENT = {"", "-", "n/a", "nan", "inf", "-inf"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")


@dataclass(frozen=True)
class Profile:
    """A profile of another tool, as numbers.

    `functions` has one row per (module, function): `module` str ('' if the export has none),
    `function` str, and float64 columns. Those in `additive` (cpu_ns, cycles, instructions,
    samples, counts of other events) may be summed; those in `means` (shares 0..1, frequency_hz)
    may only be averaged, weighted by `weight`, an additive column or '' if there is none. NaN
    means that the export does not say. A share that is the remainder of others may be below zero
    by their errors; `resolved` cuts it for display.
    `totals`: the total of each additive column as stated by the file, else the sum of its rows.
    `notes`: what was damaged, derived or assumed, one line each.
    """

    kind: str
    functions: pd.DataFrame
    additive: tuple[str, ...]
    means: tuple[str, ...]
    totals: dict[str, float]
    notes: tuple[str, ...] = ()
    source: str = ""

    @property
    def weight(self) -> str:
        """Return the column that weights means; "" if there is none."""
        return next((name for name in WEIGHTS if name in self.additive), "")


def read_text(path: str | Path) -> str:
    """Return the file as text, at most MAX_BYTES. Raises UnusableError if it is not text."""
    try:
        with opened(path) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnusableError(
            f"{path}: cannot be read ({reason}); give an exported text file"
        ) from None
    except ValueError:
        raise UnusableError(
            "a path with a zero byte names no file; give an exported text file"
        ) from None
    if data.startswith((b"PERFILE2", b"2ELIFREP")):
        raise UnusableError(
            f"{path} is perf.data, not a report; "
            f"type: perf report --stdio -n -i {path} > report.txt"
        )
    if len(data) > MAX_BYTES:
        raise UnusableError(
            f"{path} is larger than {MAX_BYTES >> 20} MiB, more than a report of functions has; "
            "export it grouped by function"
        )
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    text = data.decode(encoding, errors="replace")
    if "\0" in text:
        raise UnusableError(f"{path} is a binary file; give the text or CSV export of the profile")
    if not text.strip():
        raise UnusableError(f"{path} is empty; export the profile again")
    return text


def lines_of(text: str, source: str) -> Iterator[str]:
    """Return the lines without their ends. Raises UnusableError if a line is too long."""
    for line in io.StringIO(text):
        if len(line) > MAX_LINE:
            raise UnusableError(
                f"{source} has a line of over {MAX_LINE >> 20} MiB; export it again"
            )
        yield line.rstrip("\r\n")


def csv_rows(text: str, delimiter: str, source: str) -> Iterator[list[str]]:
    """Return the rows of a CSV text. Raises UnusableError if damaged or above MAX_CELLS cells."""
    cells = 0
    limit = csv.field_size_limit(MAX_NAME * 10)
    try:
        # A quoted cell may span lines, so lines keep an end.
        lines = (line + "\n" for line in lines_of(text, source))
        for row in csv.reader(lines, delimiter=delimiter):
            cells += len(row)
            if cells > MAX_CELLS:
                raise UnusableError(
                    f"{source} has over {MAX_CELLS:,} cells; export it grouped by function only"
                )
            yield row
    except csv.Error as error:
        raise UnusableError(f"{source}: damaged CSV ({error}); export it again") from None
    finally:
        csv.field_size_limit(limit)


def clean(text: str) -> str:
    """Return a name that is safe to print: no control characters, limited length."""
    return _CONTROL.sub("?", text.strip())[:MAX_NAME]


def module_of(text: str) -> str:
    """Return the file's name without folders; '' if unknown; '[kernel]' for the kernel."""
    name = clean(text).replace("\\", "/").rstrip("/")
    if not name.startswith("["):
        name = name.rsplit("/", 1)[-1]
    if name.lower() in _NAMELESS:
        return ""
    return "[kernel]" if name.lower() in _KERNEL else name


def function_of(text: str) -> str:
    """Return a function's name without control characters; "[unknown]" if it has none."""
    name = clean(text)
    return "[unknown]" if name.lower() in _NAMELESS else name


def decimal_mark(cells: Iterable[str], path: object = "the file") -> str:
    """Return the decimal mark of this file, '.' or ',', inferred from all cells.

    `1,234,567`, `1868,632`, `0,5` and `41,5%` are unambiguous; `1,234` is not. Raises
    UnusableError if both marks occur.
    """
    seen: dict[str, str] = {}
    for cell in cells:
        match = _NUMBER.fullmatch(cell.strip()) if len(cell) <= 64 else None
        if match is None:
            continue
        body = match[2].strip()
        marks = [mark for mark in ".," if mark in body]
        if len(marks) == 2:
            seen[max(marks, key=body.rfind)] = cell
        elif marks:
            mark, other = marks[0], "," if marks[0] == "." else "."
            head, _, tail = body.partition(mark)
            if mark in tail:
                seen[other] = cell
            elif len(tail.rstrip()) != 3 or head in ("", "0") or len(head) > 3:
                seen[mark] = cell
    if len(seen) == 2:
        raise UnusableError(
            f"{path} writes numbers in two ways ({clean(seen['.'])} and {clean(seen[','])}); "
            "export it again with one locale"
        )
    return next(iter(seen), ".")


def number(text: str, mark: str = ".") -> tuple[float, str]:
    """Return (value, unit) in base units: '', 'share' (0..1), 'ns', 'hz', or 'damaged' with NaN.

    An empty cell gives (NaN, '').
    """
    text = text.strip()
    if text.lower() in _ABSENT:
        return math.nan, ""
    match = _NUMBER.fullmatch(text) if len(text) <= 64 else None
    if match is None or match[4].lower() not in _UNITS:
        return math.nan, "damaged"
    whole, _, fraction = re.sub(r"['\u2019 \u00a0\u202f]", "", match[2]).partition(mark)
    groups = whole.split("," if mark == "." else ".")
    well_grouped = len(groups) == 1 or (
        1 <= len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:])
    )
    if not well_grouped or (fraction and not fraction.isdigit()):
        return math.nan, "damaged"
    unit, factor = _UNITS[match[4].lower()]
    value = float(f"{match[1]}{''.join(groups) or '0'}.{fraction or '0'}e{match[3] or '0'}")
    value *= factor
    return (value, unit) if math.isfinite(value) else (math.nan, "damaged")


def slug(text: str) -> str:
    """Return a column name: `L1 Bound` -> `l1_bound`."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:80] or "unnamed"
    return f"{name}_stated" if name in _TAKEN else name


def unused(name: str, used: Container[str]) -> str:
    """Return the name, with a number appended if a column already has it."""
    return next(n for n in chain([name], (f"{name}_{i}" for i in count(2))) if n not in used)


def gathered(
    kind: str,
    rows: pd.DataFrame,
    means: Sequence[str],
    notes: list[str],
    source: str,
    totals: dict[str, float] | None = None,
) -> Profile:
    """Return a Profile of rows of `module`, `function` and metrics, one per (module, function).

    Raises UnusableError if no row has a number.
    """
    metrics = [name for name in rows.columns if name not in ("module", "function")]
    rows = rows.astype(dict.fromkeys(metrics, "float64"))
    numbers = rows[metrics]
    impossible = (numbers.abs() > MAX_VALUE) | ((numbers < 0) & ~numbers.columns.isin(means))
    if impossible.any(axis=None):
        notes.append(f"{int(impossible.to_numpy().sum())} impossible numbers are left out")
        rows[metrics] = numbers.mask(impossible)
    additive = [name for name in metrics if name not in means and rows[name].notna().any()]
    averaged = [name for name in metrics if name in means and rows[name].notna().any()]
    if rows.empty or not additive:
        raise UnusableError(
            f"{source} holds no function with a number; export it again by function"
        )
    weight = next((name for name in WEIGHTS if name in additive), "")
    keys = ["module", "function"]
    grouped = rows.groupby(keys, sort=False, dropna=False)
    functions = grouped[additive].sum(min_count=1)
    base = rows[weight].fillna(0.0) if weight else pd.Series(1.0, index=rows.index)
    averages: dict[str, pd.Series] = {}
    for name in averaged:
        known = rows[name].notna()
        parts = pd.DataFrame(
            {
                "top": (rows[name] * base).where(known, 0.0),
                "base": base.where(known, 0.0),
                "plain": rows[name],
                "module": rows["module"],
                "function": rows["function"],
            }
        ).groupby(keys, sort=False)
        sums = parts[["top", "base"]].sum()
        with np.errstate(invalid="ignore"):
            mean = sums["top"] / sums["base"].where(sums["base"] > 0)
        # Without a weight, functions with the same name get the plain mean.
        averages[name] = mean.fillna(parts["plain"].mean())
    functions = pd.concat([functions, pd.DataFrame(averages, index=functions.index)], axis=1)
    _derive_backend(functions, averaged, notes)
    _note_negative_shares(functions, averaged, notes)
    stated = {name: float(functions[name].sum()) for name in additive}
    for name, given_total in (totals or {}).items():
        if name not in additive or not 0 <= given_total <= MAX_VALUE:
            continue
        if given_total < stated[name] * (1 - _ROUNDED_ROWS):
            notes.append(
                f"the export's total of {name} ({given_total:g}) is less than its functions have "
                f"({stated[name]:g}): their sum is used"
            )
        else:
            stated[name] = given_total
    return Profile(
        kind,
        functions.reset_index(),
        tuple(additive),
        tuple(averaged),
        stated,
        tuple(notes),
        source,
    )


def _derive_backend(functions: pd.DataFrame, averaged: list[str], notes: list[str]) -> None:
    """Compute the back-end share as 1 - the other three, if the export lacks it."""
    if "backend_bound" in averaged or not set(TOPDOWN[:3]) <= set(averaged):
        return
    functions["backend_bound"] = 1.0 - functions[list(TOPDOWN[:3])].sum(axis=1, skipna=False)
    averaged.append("backend_bound")
    notes.append(
        "back-end bound is one minus the other three shares: the export has no such column"
    )


def _note_negative_shares(
    functions: pd.DataFrame, averaged: Sequence[str], notes: list[str]
) -> None:
    """Note shares below zero. Their values stay, so that means over functions are correct."""
    for name in averaged:
        below = functions[name] < 0
        near = below & (functions[name] >= -NEAR_ZERO)
        title, count = name.replace("_", " "), len(functions)
        most = -float(functions[name][near].min()) if near.any() else 0.0
        if most > _ROUNDING:
            notes.append(
                f"{title} of {int(near.sum())} of {count} functions is 0 ±{most:.1%}: shares of "
                "one function sum to more than one"
            )
        far = int((below & ~near).sum())
        if far:
            notes.append(
                f"{title} of {far} of {count} functions is not resolved: shares of one function "
                "sum to far more than one"
            )


def resolved(table: pd.DataFrame, means: Sequence[str]) -> pd.DataFrame:
    """Return the table without negative shares: 0 if within NEAR_ZERO of zero, else NaN."""
    values = table[list(means)]
    values = values.where(~(values < -NEAR_ZERO)).clip(lower=0.0)
    return table.assign(**{name: values[name] for name in means})
