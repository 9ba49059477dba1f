"""Imports Intel VTune's CSV by function: hotspots and micro-architecture exploration.

The source is `vtune -report hotspots -group-by function -format csv -csv-delimiter
comma|tab|semicolon`, or an export of the graphical program's grid. Seconds are plain or
`1868.632s`, shares `41.5%`.
"""

import io
import itertools
import math

import pandas as pd

from native_map.errors import UnusableError
from native_map.paper.function_counts import (
    MAX_COLUMNS,
    TOPDOWN,
    WEIGHTS,
    Profile,
    clean,
    csv_rows,
    decimal_mark,
    function_of,
    gathered,
    module_of,
    number,
    slug,
    unused,
)

_NAMED = {
    "cpu time": "cpu_ns",
    "clockticks": "cycles",
    "instructions retired": "instructions",
    "cpi rate": "cpi",
    "average cpu frequency": "frequency_hz",
    "retiring": "retiring",
    "front-end bound": "frontend_bound",
    "front end bound": "frontend_bound",
    "bad speculation": "bad_speculation",
    "back-end bound": "backend_bound",
    "back end bound": "backend_bound",
}
_TEXT = {"module", "function (full)", "source file", "start address", "module path", "full name"}
_FUNCTION = ("function", "source function", "function / call stack")
_DELIMITERS = "\t,;|"


def _header(text: str) -> str:
    # VTune may print other lines before the table; the header is the first of twenty with a metric.
    for line in itertools.islice(io.StringIO(text[:200_000]), 20):
        low = line.lower()
        if "function" in low and ("cpu time" in low or "clockticks" in low):
            return line
    return ""


def detect(text: str) -> bool:
    """Return True if a text is a CSV of VTune."""
    return bool(_header(text))


def parse(text: str, source: str = "the export") -> Profile:
    """Return the functions of a VTune export; kind 'vtune-uarch' if it has top-down shares.

    Raises UnusableError if it is not a table of functions.
    """
    header = _header(text)
    if not header:
        raise UnusableError(f"{source} has no header of VTune's; export it with -format csv")
    delimiter = max(_DELIMITERS, key=header.count)
    notes: list[str] = []
    table = list(csv_rows(text[text.index(header) :], delimiter, source))
    names = [name.strip() for name in table[0]]
    if len(names) > MAX_COLUMNS:
        raise UnusableError(
            f"{source} has {len(names)} columns; export it grouped by function only"
        )
    low = [name.lower() for name in names]
    function = 0 if low[0].split(" / ")[0] in _FUNCTION else -1
    if function < 0:
        raise UnusableError(
            f"{source} is grouped by '{clean(names[0])[:60]}'; export it with -group-by function"
        )
    module = low.index("module") if "module" in low else -1
    body = [row for row in table[1:] if any(cell.strip() for cell in row)]
    complete_rows = [row for row in body if len(row) == len(names) and row[function].strip()]
    if len(complete_rows) < len(body):
        notes.append(
            f"{len(body) - len(complete_rows)} lines with missing or extra cells are left out"
        )
    # Rows of call stacks are indented below their function, which includes them.
    top = [row for row in complete_rows if not row[function].startswith((" ", "\t"))]
    if len(top) < len(complete_rows):
        notes.append(
            f"{len(complete_rows) - len(top)} rows of call stacks are counted in their functions"
        )
    columns = [i for i in range(len(names)) if i != function and low[i] not in _TEXT]
    mark = decimal_mark((row[i] for row in top for i in columns), source)
    data: dict[str, list[float]] = {}
    means: list[str] = []
    damaged = 0
    for i in columns:
        parsed = [number(row[i], mark) for row in top]
        damaged += sum(unit == "damaged" for _, unit in parsed)
        values = [value for value, _ in parsed]
        name, mean, factor = _column(low[i], {u for v, u in parsed if not math.isnan(v)}, values)
        name = unused(name, data)
        data[name] = [value * factor for value in values]
        if mean:
            means.append(name)
    if damaged:
        notes.append(f"{damaged} cells are not numbers and were left out")
    if {"cycles", "instructions"} <= data.keys() and "cpi" in data:
        del data["cpi"]  # can be computed from the two, and cannot be summed
        means.remove("cpi")
    rows = pd.DataFrame(data)
    rows.insert(0, "function", [function_of(row[function]) for row in top])
    rows.insert(0, "module", [module_of(row[module]) if module >= 0 else "" for row in top])
    kind = "vtune-uarch" if set(TOPDOWN[:2]) <= data.keys() else "vtune-hotspots"
    return gathered(kind, rows, means, notes, source)


def _column(title: str, units: set[str], values: list[float]) -> tuple[str, bool, float]:
    """Return (name, is a mean, factor) of a column, from its title and the units of its cells."""
    bare = title.replace("(%)", "").strip()
    name = _NAMED.get(bare.removesuffix(":self").strip(), slug(bare))
    share = "share" in units or "(%)" in title or name in TOPDOWN
    if share:
        # `41.5` under `Retiring(%)` or among bare top-down numbers above one is a percentage.
        numbers = [value for value in values if not math.isnan(value)]
        percent = "share" not in units and ("(%)" in title or max(numbers, default=0.0) > 1.0)
        # A share of the time is not a time.
        name = f"{name}_share" if name in (*WEIGHTS, "instructions") else name
        return name, True, 0.01 if percent else 1.0
    if name == "cpu_ns" or title.startswith("cpu time:"):
        # CSV from the command line has plain seconds.
        return name if name == "cpu_ns" else f"{name}_ns", False, 1.0 if "ns" in units else 1e9
    if "ns" in units:
        return f"{name}_ns", False, 1.0
    return name, name in ("cpi", "frequency_hz") or "hz" in units, 1.0
