"""C and C++ functions of an observed program: lines, tables, document."""

from typing import TYPE_CHECKING, Any

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.tables import sampled_functions
from lotus.analysis.attached.tables.sampled_functions import FunctionSummary, OperationSamples
from lotus.common.text.formatting import amount, operation_name, plain, share
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table, rows_of

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

Cells = tuple[list[tuple[str, str]], list[list[str]]]
TITLE = "C and C++ functions (share: of the operation's samples)"
PROCESSES_TITLE = "C and C++ functions of whole processes (share: of their samples)"
_MOST_FUNCTIONS, _MOST_OPERATIONS, _MOST_FIRST = 5, 20, 3
_PARTS = {
    phases.DATASET: "(the data set's own code)", phases.COLLATE: "(collate)",
    phases.SNAPSHOT: "(snapshots of the loader's state)",
    phases.STEP: "(the training step)", phases.SEND: "(sending)", phases.RECEIVE: "(receiving)",
}  # fmt: skip
_REASONS = {
    sampled_functions.FEW: "too few samples (watch longer: --seconds)",
    sampled_functions.SHORT: "calls of a few milliseconds, too short to tell from outside (lotus "
    "trace --perf tells)",
    sampled_functions.REGULAR: "operations follow one another too regularly to tell them from "
    "outside (lotus trace --perf tells)",
    sampled_functions.ALIKE: "not separable from the other operations (lotus trace --perf "
    "separates them)",
}


def write(console: "Console", functions: FunctionSummary, *, in_full: bool = True) -> None:
    """Print the tables; without `in_full`, a sentence."""
    if not in_full:
        print_paragraph(console, "Functions", first_words(functions))
        return
    headings, rows = operation_cells(functions)
    print_table(console, TITLE, headings, rows)
    headings, rows = process_cells(functions)
    print_table(console, PROCESSES_TITLE, headings, rows)
    for line in lines(functions):
        print_paragraph(console, "", line)


def first_words(functions: FunctionSummary) -> str:
    """Return a sentence with the first function of the operations with the most samples."""
    with_functions = [operation for operation in functions.operations if len(operation.functions)][
        :_MOST_FIRST
    ]
    if not with_functions:
        return "of no operation known; those of whole processes are in lotus report"
    parts = []
    for operation in with_functions:
        first = rows_of(operation.functions)[0]
        parts.append(f"{_words(operation)}: {plain(first['function'])} {share(first['share'])}")
    return "; ".join(parts) + "; more in lotus report"


def operation_cells(functions: FunctionSummary) -> Cells:
    """Return columns and rows of the functions of each operation."""
    rows = []
    for operation in functions.operations[:_MOST_OPERATIONS]:
        for place, row in enumerate(rows_of(operation.functions.head(_MOST_FUNCTIONS))):
            rows.append([_words(operation) if not place else "", *_function(row)])
    return [("operation", LEFT), *_COLUMNS], rows


def process_cells(functions: FunctionSummary) -> Cells:
    """Return columns and rows of the functions of all workers and of the main processes."""
    rows = []
    for process, table in functions.processes.groupby("process", sort=False):
        for place, row in enumerate(rows_of(table.head(_MOST_FUNCTIONS))):
            rows.append([str(process) if not place else "", *_function(row)])
    return [("processes", LEFT), *_COLUMNS], rows


_COLUMNS = [
    ("function", LEFT), ("library", LEFT), ("share", RIGHT), ("95% interval", RIGHT),
    ("samples", RIGHT),
]  # fmt: skip


def _function(row: Any) -> list[str]:
    interval = f"{share(row['low'])} to {share(row['high'])}"
    return [
        plain(row["function"]), plain(row["library"]), share(row["share"]), interval,
        amount(row["samples"]),
    ]  # fmt: skip


def _words(operation: OperationSamples) -> str:
    return _PARTS.get(operation.phase) or plain(operation_name(operation.name))


def lines(functions: FunctionSummary) -> list[str]:
    """Return how functions were assigned to operations, and what has no name."""
    kernel = "" if functions.kernel else ", the kernel left out"
    lost = f" ({amount(functions.lost)} more were lost)" if functions.lost else ""
    text = (
        f"perf sampled {plain(functions.event)} {functions.frequency} times a second{kernel}: "
        f"{amount(functions.samples)} samples{lost}. {amount(functions.matched)} of "
        f"{amount(functions.stacks)} Python stacks have one within a millisecond. The other "
        f"{share(functions.apart_share)} of the samples are known by process only."
    )
    unknown = [
        f"Functions not known of {', '.join(names)}: {reason}."
        for state, reason in _REASONS.items()
        if (names := [_words(each) for each in functions.operations if each.state == state])
    ]
    return [*unknown, text, *(plain(note) for note in functions.notes)]


def document(functions: FunctionSummary) -> dict[str, Any]:
    """Return the values of --json."""
    names = ("event", "frequency", "kernel", "lost", "samples", "stacks", "matched", "apart_share",
             "late_ns", "processes")  # fmt: skip
    return {
        **{name: getattr(functions, name) for name in names},
        "notes": list(functions.notes),
        "operations": [
            {
                "phase": each.phase,
                "name": each.name,
                "matched": each.matched,
                "state": each.state,
                "held": each.held,
                "functions": each.functions,
            }
            for each in functions.operations
        ],
    }
