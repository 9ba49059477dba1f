"""The columns of the report's tables; a new column is one row in one of these lists.

The document (`--json`) has every column of the analysis, under its own name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lotus.analysis.samples.operation_statistics import has_helpers
from lotus.analysis.summary import LoaderSummary
from lotus.analysis.verdict.rest_of_causes import rest_of
from lotus.analysis.verdict.verdict import Cause
from lotus.common.text.formatting import amount, duration, operation_name, plain, share
from lotus.reporters.base.console import LEFT, RIGHT, rows_of, tight, tight_size
from lotus.reporters.run.parts import blocked_words

Row = Mapping[str, Any]
TERMINAL, PAGE = "terminal", "page"
BOTH = (TERMINAL, PAGE)


def _always(loader: LoaderSummary) -> bool:
    return True


@dataclass(frozen=True)
class Column:
    """`cell` formats a row of the analysis; `when` tells for which loaders the column is shown."""

    title: str
    cell: Callable[[Row], str]
    where: Sequence[str] = BOTH
    align: str = RIGHT
    when: Callable[[LoaderSummary], bool] = _always


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are shown for a loader."""

    shown: Sequence[Column]

    @property
    def headings(self) -> list[tuple[str, str]]:
        """Return titles with their alignment."""
        return [(column.title, column.align) for column in self.shown]

    def cells(self, row: Row) -> list[str]:
        """Return the texts of a row."""
        return [column.cell(row) for column in self.shown]

    def rows(self, rows: Iterable[Row]) -> list[list[str]]:
        """Return the texts of several rows."""
        return [self.cells(row) for row in rows]


def cause_rows(columns: Columns, causes: Sequence[Cause]) -> list[list[str]]:
    """Return the texts of a list of causes, with a row for what they leave."""
    rest = rest_of(causes)
    return columns.rows(vars(row) for row in (*causes, *([rest] if rest else [])))


def shown(table: Sequence[Column], loader: LoaderSummary, where: str) -> Columns:
    """Return the columns of `table` that are shown in `where` for this loader."""
    return Columns([column for column in table if where in column.where and column.when(loader)])


def _interval(row: Row) -> str:
    return f"{share(row['low'])} to {share(row['high'])}" if row["high"] >= row["low"] else ""


def _time_interval(row: Row) -> str:
    return f"{tight(row['low_ns'])} to {tight(row['high_ns'])}" if row["ns"] >= 0 else ""


def _of(name: str, words: Callable[[Any], str]) -> Callable[[Row], str]:
    """Return a function that formats one value; "" for a row without this value."""
    return lambda row: words(row[name]) if name in row else ""


def _several_ranks(loader: LoaderSummary) -> bool:
    return len(loader.scope.ranks) > 1


def _one_rank(loader: LoaderSummary) -> bool:
    return not _several_ranks(loader)


def _worker(row: Row) -> str:
    return "main" if row["worker"] < 0 else str(row["worker"])


def _long_worker(row: Row) -> str:
    return "main" if row["worker"] < 0 else f"worker {row['worker']}"


def _memory(loader: LoaderSummary) -> bool:
    return bool(loader.workers["pss_bytes"].notna().any())


def _delays(loader: LoaderSummary) -> bool:
    return bool(loader.workers["run_delay_share"].notna().any())


def _waits(loader: LoaderSummary) -> bool:
    return bool(loader.operations["waiting_share"].notna().any())


def _ready(loader: LoaderSummary) -> bool:
    return bool(loader.operations["run_delay_share"].notna().any())


def _waits_only(loader: LoaderSummary) -> bool:
    """Return whether it is not known for what operations were off the CPU."""
    return _waits(loader) and not _ready(loader)


def _helped(loader: LoaderSummary) -> bool:
    return any(has_helpers(row) for row in rows_of(loader.operations))


def _helpers(row: Row) -> str:
    return share(row["helper_share"]) if "helper_share" in row and has_helpers(row) else ""


def _paths(loader: LoaderSummary) -> bool:
    return bool(loader.slowest["path"].astype(bool).any())


def _mostly(loader: LoaderSummary) -> bool:
    return bool(loader.slowest["operation"].astype(bool).any())


def _places(loader: LoaderSummary) -> bool:
    return bool(loader.blocked["place"].astype(bool).any())


WORKERS = (
    Column("worker", _worker, (TERMINAL,), LEFT, _one_rank),
    Column(
        "rank/worker", lambda row: f"{row['rank']}/{_worker(row)}", (TERMINAL,), LEFT,
        _several_ranks,
    ),
    Column("", _long_worker, (PAGE,), LEFT, _one_rank),
    Column(
        "", lambda row: f"rank {row['rank']} {_long_worker(row)}", (PAGE,), LEFT, _several_ranks,
    ),
    Column("batches", _of("batches", amount), (PAGE,)),
    Column("samples", _of("samples", amount)),
    Column("fetch", _of("batch_mean_ns", tight), (TERMINAL,)),
    Column("fetching", _of("fetch_ns", tight), (PAGE,)),
    Column("a sample", _of("sample_ns", tight)),
    Column("idle", _of("idle_share", share)),
    Column("on CPU", _of("cpu_share", share)),
    Column("no core", _of("run_delay_share", share), when=_delays),
    Column("start-up", _of("startup_ns", tight)),
    Column("memory", _of("pss_bytes", tight_size), (TERMINAL,), when=_memory),
    Column("grew", _of("growth_bytes", tight_size), (TERMINAL,), when=_memory),
)  # fmt: skip

# Of an operation's own time, which is on a core but for "no core" and "blocked".
CORE_TIMES = (
    Column("off CPU", _of("waiting_share", share), when=_waits_only),
    Column("no core", _of("run_delay_share", share), when=_ready),
    Column("blocked", _of("blocked_share", share), when=_ready),
    Column("helpers", _helpers, when=_helped),
)


def core_words(loader: LoaderSummary) -> str:
    """Return what the columns CORE_TIMES mean; "" where only "off CPU" is known, or nothing."""
    if not _ready(loader):
        return ""
    words = (
        "An operation's own time is on a core, ready to run with no core, or blocked. These are "
        "shares of it."
    )
    if _helped(loader):
        words += " Helpers: how much of the process's CPU time meanwhile was of other threads."
    return words


# Without names, which precede them as a tree.
OPERATIONS = (
    Column("count", _of("count", amount)),
    *(Column(name, _of(f"{name}_ns", tight)) for name in ("mean", "p50", "p95", "p99", "std")),
    Column("share", _of("workers_share", share)),
    *CORE_TIMES,
)

BLOCKED = (
    Column("", blocked_words.name_of, align=LEFT),
    Column("looks", _of("looks", amount)),
    Column("share", _of("share", share)),
    Column("95% interval", _interval),
    Column("time", _of("ns", tight)),
    Column("95% interval of the time", _time_interval, (PAGE,)),
    Column("where", blocked_words.place_of, (PAGE,), LEFT, _places),
    Column("", blocked_words.state_of, align=LEFT),
)

SLOWEST_SAMPLES = (
    Column("index", lambda row: "-" if row["sample"] == -1 else str(row["sample"])),
    Column("took", _of("duration_ns", tight)),
    Column("median", lambda row: f"{row['times']:.1f}x", (TERMINAL,)),
    Column("times the median", lambda row: f"{row['times']:.1f}", (PAGE,)),
    Column("mostly", lambda row: plain(operation_name(row["operation"])), align=LEFT, when=_mostly),
    Column("epoch/batch", lambda row: f"{row['epoch']}/{row['batch']}"),
    Column("path", lambda row: plain(row["path"]), align=LEFT, when=_paths),
)

RANKS = (
    Column("rank", _of("rank", str), align=LEFT),
    Column("loop", _of("loop_ns", tight)),
    Column("blocked", _of("wait_share", share)),
    Column("step", _of("step_share", share)),
    Column("samples/s", _of("samples_per_s", amount)),
)

CAUSES = (
    Column("", _of("title", plain), (PAGE,), LEFT),
    Column("of loop", _of("share", share)),
    Column("95% interval", _interval),
    Column("of waits", _of("wait_share", share)),
    Column("time", _of("ns", duration), (PAGE,)),
    Column("", _of("title", plain), (TERMINAL,), LEFT),
)

SLOW_BATCHES = (
    Column("epoch/batch", lambda row: f"{row['epoch']}/{row['batch']}"),
    Column("worker", _worker, when=_one_rank),
    Column("rank/worker", lambda row: f"{row['rank']}/{_worker(row)}", when=_several_ranks),
    Column("slow samples", lambda row: f"{row['slow']} of {row['samples']}"),
    Column("a sample", _of("typical_ns", tight)),
    Column("usual", lambda row: f"{row['times']:.1f}x"),
    Column(
        "",
        lambda row: "the first of its worker" if row["first"] and row["worker"] >= 0 else "",
        align=LEFT,
    ),
)
SLOW_BATCHES_NOTE = (
    "Of these, only samples that took longer than the rest of their batch are among the slowest "
    "above: all of a batch is slow by a stall of the machine or of storage, or if it is of a slow "
    "kind."
)

BOOKS = (
    Column("", _of("whole", str), align=LEFT),
    Column("total", _of("total_ns", tight)),
    Column("parts", _of("parts_ns", tight)),
    Column("itself", _of("own_ns", tight)),
    Column("remainder", _of("remainder_ns", tight)),
    Column("", _of("remainder_share", share)),
)


def batches(threshold_ns: float) -> Sequence[Column]:
    """Return columns of the table of batches; the last one counts those above the threshold."""
    return (
        Column("", _of("measure", str), align=LEFT),
        *(Column(name, _of(f"{name}_ns", tight)) for name in ("mean", "p50", "p95", "p99", "max")),
        Column(f"> {duration(threshold_ns)}", _of("over_share", share)),
    )
