"""The table of export formats; each row names the file that writes the format.

Imports no pandas: the command line needs the names of formats.
"""

import contextlib
import importlib
import importlib.util
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.common.terminal.progress import Advance
from lotus.common.text.formatting import duration, plain
from lotus.export.export_request import (
    DirectoryFormat,
    Export,
    ExportRequest,
    FileFormat,
    Format,
)

if TYPE_CHECKING:
    from lotus.reading.run import Run

_ROWS = (
    Format(
        "perfetto",
        "timelines.perfetto",
        "timeline, to open at https://ui.perfetto.dev",
        ".pftrace",
        "open it at https://ui.perfetto.dev",
        text=False,
    ),
    Format(
        "chrome",
        "timelines.chrome",
        "timeline as JSON, for older viewers; --with adds a trace of torch.profiler",
        ".trace.json",
        "open it at https://ui.perfetto.dev or, in Chrome, at chrome://tracing",
        options=frozenset({"torch_trace"}),
    ),
    Format(
        "speedscope",
        "profiles.flame_graphs",
        "flame graphs per rank and worker, for https://www.speedscope.app",
        ".speedscope.json",
        "open it at https://www.speedscope.app",
        options=frozenset({"weight"}),
    ),
    Format(
        "folded",
        "profiles.flame_graphs",
        "stacks for flamegraph.pl and inferno: operation;library;function",
        ".folded.txt",
        "draw it with: flamegraph.pl {path} > flames.svg",
        options=frozenset({"weight"}),
    ),
    Format(
        "pprof",
        "profiles.pprof",
        "profile for `go tool pprof`, every event as a sample type",
        ".pb.gz",
        "look at it with: go tool pprof -http=: {path}",
        text=False,
    ),
    Format(
        "parquet",
        "tables.table_files",
        "all tables of the run, for pandas, polars, duckdb (needs pyarrow)",
        "",
        "read one with: pandas.read_parquet({batches})",
        needs="pyarrow",
    ),
    Format(
        "csv",
        "tables.table_files",
        "all tables of the run",
        "",
        "read one with: pandas.read_csv({batches})",
    ),
)
FORMATS = {row.name: row for row in _ROWS}
_OPTIONS = {"torch_trace": "--with", "weight": "--weight"}


def default_path(format: Format, run_directory: Path) -> Path:
    """Return the default path of an export: named after the run, in the current directory."""
    name = Path(os.path.abspath(run_directory)).name or "run"
    return Path(name + format.ending) if format.ending else Path(f"{name}-{format.name}")


def check(request: ExportRequest) -> None:
    """Raise LotusError for options that the format does not use, and for missing requirements."""
    format = FORMATS[request.format]
    for field, option in _OPTIONS.items():
        if getattr(request, field) is not None and field not in format.options:
            names = " and ".join(row.name for row in _ROWS if field in row.options)
            raise LotusError(f"{option} is for --format {names}, not for {format.name}")
    if format.needs and importlib.util.find_spec(format.needs) is None:
        raise LotusError(
            f"--format {format.name} needs {format.needs}, which is not installed beside lotus: "
            f"pip install {format.needs}; --format csv needs nothing"
        )


def export(run: "Run", request: ExportRequest, progress: Advance) -> Export:
    """Write `run` in a format. Raises LotusError, after which nothing of the export remains."""
    check(request)
    format, path = FORMATS[request.format], request.output
    following = format.next.replace("{path}", shlex.quote(str(path)))
    batches = repr(f"{path}/batches.{request.format}")
    notes: list[str] = []
    module = importlib.import_module(f"lotus.export.{format.module}")
    if not format.ending:
        cast(DirectoryFormat, module).fill(run, request, notes, progress)
    else:
        notes += _limits(run)
        with _opened(path, format.text) as file:
            for piece in cast(FileFormat, module).pieces(run, request, notes, progress):
                file.write(piece)
    return Export(path, following.replace("{batches}", batches), notes)


def _limits(run: "Run") -> Iterator[str]:
    """Yield remarks on what is missing or uncertain in the run."""
    again = f"lotus report {shlex.quote(str(run.path))}"
    if not len(run.loaders) and not len(run.batches):
        yield f"no loader was iterated in this run; {again} tells more"
    lost = run.lost
    if len(lost):
        yield f"records were lost ({plain(lost['what'][0])}, ...): {again} tells what"
    if len({process.machine for process in run._outline.processes}) > 1:
        yield _clocks(run)


def _clocks(run: "Run") -> str:
    from lotus.analysis.ranks.rank_steps import clock_errors

    hosts = sorted({process.host for process in run._outline.processes})
    errors = sorted(clock_errors(run.manifest, hosts).tolist())
    if len(hosts) > 1 and errors[-1] < float("inf"):
        apart = duration(sum(errors[-2:]))
        return f"the run is of several machines, whose clocks may be {apart} apart at most"
    return "the run is of several machines, whose clocks are not aligned to each other"


@contextlib.contextmanager
def _opened(path: Path | None, text: bool) -> Iterator[IO[bytes]]:
    if path is not None:
        with files.replacing(path) as file:
            yield file
        return
    if sys.stdout.isatty() and not text:
        raise LotusError(
            "this is not text, so it is not written to a terminal: name a file with -o"
        )
    with open(sys.stdout.fileno(), "wb", closefd=False) as file:
        yield file
