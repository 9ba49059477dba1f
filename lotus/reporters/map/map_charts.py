"""Charts of counters and functions per operation, as in `lotus map`."""

from typing import Any

import pandas as pd

from lotus.analysis.common.columns import float_column
from lotus.analysis.counters.function_profile import (
    MapSummary,
    functions_by_operation,
    per_call,
)
from lotus.common.text.formatting import amount, big, operation_name, plain, plural, share
from lotus.reporters.base.chart_parts import bars_height, label, names_axis
from lotus.reporters.base.console import LEFT, RIGHT, rows_of, tight
from lotus.reporters.base.page import COLOURS, Chart, Table
from lotus.reporters.map.map_report import trusted, turns_text
from native_map.events.metrics import METRICS

# In the order in which the top-down literature stacks them.
TOP_DOWN = {
    "frontend_bound": ("front-end bound", COLOURS[1]),
    "backend_bound": ("back-end bound", COLOURS[5]),
    "bad_speculation": ("bad speculation", COLOURS[3]),
    "retiring": ("retiring", COLOURS[4]),
}
_MOST, _MOST_FUNCTIONS = 25, 12
_FIRST = ("ipc", "task_clock")  # what a menu begins with


def top_down(measured: MapSummary) -> Chart | None:
    """Return stacked shares of the CPU's slots per operation; None if they were not measured."""
    table = measured.operations
    names = [name for name in TOP_DOWN if name in table and table[name].notna().any()]
    known = table[table[names].notna().all(axis=1)] if names else table.head(0)
    shown = known.head(_MOST)
    if not len(shown):
        return None
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": TOP_DOWN[name][0],
            "x": (100 * float_column(shown, name)).tolist(),
            "y": list(range(len(shown))),
            "marker": {"color": TOP_DOWN[name][1]},
            "hovertemplate": f"{TOP_DOWN[name][0]}: %{{x:.3g}} %<extra></extra>",
        }
        for name in names
    ]
    axis = names_axis(shown["operation"].map(operation_name).tolist())
    layout = {
        "height": bars_height(axis) + 60,  # on a narrow screen the legend has four lines
        "barmode": "relative",
        "xaxis": {"title": {"text": "% of the slots of a cycle"}},
        "yaxis": axis,
    }
    columns = [("", LEFT), *((TOP_DOWN[name][0], RIGHT) for name in names)]
    rows = [
        [
            operation_name(row["operation"]),
            *(trusted(measured, row["operation"], name, share(row[name])) for name in names),
        ]
        for row in rows_of(shown)
    ]
    return Chart(
        "top-down", "Front end, back end: what held the CPU up", {"data": data, "layout": layout},
        Table(columns, rows), _scaled(measured) + _left_out(known),
    )  # fmt: skip


def metrics(measured: MapSummary) -> Chart | None:
    """Return cycles, instructions, misses and other counts, one at a time, chosen in a menu."""
    table = measured.operations.head(_MOST)
    events = [str(event["name"]) for event in measured.counted]
    events += [name for name in measured.sampled if name not in events]
    charted = {*TOP_DOWN, *(["cpu_ns"] if "task_clock" in events else [])}  # the same
    per = [name for name in METRICS if name in table and name not in charted]
    names = [
        name
        for name in (*per, *(name for name in events if name not in per))
        if name in table and table[name].notna().any()
    ]
    if not names:
        return None
    names.sort(key=lambda name: name not in _FIRST)
    data: list[dict[str, Any]] = []
    buttons, titles = [], []
    for place, name in enumerate(names):
        values, unit = per_call(measured, table, name)
        words = name.replace("_", " ")
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": words,
                "x": values.tolist(),
                "y": list(range(len(table))),
                "marker": {"color": COLOURS[0]},
                "visible": place == 0,
                "hovertemplate": f"%{{x:.4g}} {label(unit, 60)}<extra></extra>",
            }
        )
        visible = [other == name for other in names]
        titles.append(f"{words} ({label(unit, 60)})")
        change = [{"visible": visible}, {"xaxis.title.text": titles[-1]}]
        buttons.append({"label": words, "method": "update", "args": change})
    axis = names_axis(table["operation"].map(operation_name).tolist())
    layout = {
        "height": bars_height(axis) + 40,
        "margin": {"t": 52},
        "xaxis": {"rangemode": "tozero", "title": {"text": titles[0]}},
        "yaxis": axis,
        "showlegend": False,
        "updatemenus": [
            {"buttons": buttons, "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom",
             "pad": {"b": 10}}
        ],
    }  # fmt: skip
    columns = [("", LEFT), ("time", RIGHT)]
    columns += [(name.replace("_", " "), RIGHT) for name in names]
    rows = [
        [
            operation_name(row["operation"]),
            tight(row["total_ns"]),
            *(trusted(measured, row["operation"], name, _cell(name, row[name])) for name in names),
        ]
        for row in rows_of(table)
    ]
    note = "Choose in the menu what is drawn. Counts are of one call; the table has their sums. "
    return Chart(
        "metrics", "Counters per operation", {"data": data, "layout": layout},
        Table(columns, rows), note + _scaled(measured) + _left_out(measured.operations),
    )  # fmt: skip


def _cell(name: str, value: float) -> str:
    metric = METRICS.get(name)
    if metric is None:
        return big(value)
    if metric.unit.startswith("of "):
        return share(value)
    return "-" if value != value else f"{value:.3g}"


def _scaled(measured: MapSummary) -> str:
    texts = []
    if (float_column(measured.operations, "running_share") < 0.995).any():
        texts.append("The counters were shared: counts are scaled by the share counted.")
    if turns := turns_text(measured):
        texts.append(f"{turns}.")
    if measured.sampled:
        names = ", ".join(plain(name) for name in measured.sampled)
        texts.append(f"Estimated from samples: {names}.")
    return " ".join(texts)


def _left_out(table: pd.DataFrame) -> str:
    omitted = len(table) - _MOST
    return f" {plural(omitted, 'more operation')}: see --json." if omitted > 0 else ""


def functions(measured: MapSummary) -> Chart | None:
    """Return C and C++ functions of each operation as an icicle; None without samples."""
    operations = functions_by_operation(measured.functions, _MOST_FUNCTIONS)
    if not operations:
        return None
    ids, labels, parents, values = ["all"], [f"samples of {label(measured.event)}"], [""], [0.0]
    colours, rows = ["rgba(128,128,128,0.25)"], []
    for place, operation in enumerate(operations):
        colour = COLOURS[place % len(COLOURS)]

        def add(key: str, text: str, parent: str, value: float, colour: str = colour) -> None:
            ids.append(key)
            labels.append(label(text, 60))
            parents.append(parent)
            values.append(value)
            colours.append(colour)

        name = operation_name(operation.operation)
        add(f"{place}", name, "all", operation.samples)
        values[0] += operation.samples
        libraries: dict[str, str] = {}
        for row in rows_of(operation.functions):
            file, function, count = row["library"], row["function"], row["samples"]
            if file not in libraries:
                libraries[file] = f"{place}/{len(libraries)}"
                add(libraries[file], file, f"{place}", operation.libraries[file])
            add(f"{libraries[file]}/{len(ids)}", function, libraries[file], count)
            rows.append([name, file, function, amount(count), share(row["share"])])
        if operation.rest > 0:
            text = f"{operation.left_out} more functions"
            add(f"{place}/rest", text, f"{place}", operation.rest)
    data = {
        "type": "icicle",
        "ids": ids,
        "labels": labels,
        "parents": parents,
        "values": values,
        "branchvalues": "total",
        "marker": {"colors": colours},
        "tiling": {"orientation": "v"},
        "pathbar": {"visible": True},
        "hovertemplate": "%{label}<br>%{value:,.0f} samples, %{percentParent:.1%} of %{parent}"
        "<extra></extra>",
    }
    columns = [("operation", LEFT), ("library", LEFT), ("function", LEFT)]
    columns += [("samples", RIGHT), ("of the operation", RIGHT)]
    note = "Click on a part to see it alone. A function of a stripped library goes by the address "
    note += "where it starts."
    cut = sum(operation.left_out for operation in operations)
    note += f" {cut:,} functions with fewer samples are grouped." if cut else ""
    return Chart(
        "functions", "C and C++ functions under each operation",
        {"data": [data], "layout": {"height": 480, "margin": {"l": 0, "r": 0, "t": 26, "b": 0},
         "uniformtext": {"minsize": 9, "mode": "hide"}}}, Table(columns, rows), note,
    )  # fmt: skip
