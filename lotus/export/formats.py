"""The formats of an export: what each is called, where it goes, what to do with it next.

Imports no pandas: the command line asks it for names.
"""

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from lotus import files
from lotus.errors import LotusError
from lotus.reporters.words import duration, plain

if TYPE_CHECKING:
    from lotus.run import Run
Progress = Callable[[int, int], None]


class Format(NamedTuple):
    """A format: what it makes, and what to do with that."""

    ending: str  # of the file that it makes, "" for a directory
    next: str  # {path} is the file, quoted for a shell; {batches} one in it, for Python
    text: bool = True  # may go to a terminal


FORMATS = {
    "perfetto": Format(".pftrace", "open it at https://ui.perfetto.dev", text=False),
    "chrome": Format(
        ".trace.json", "open it at https://ui.perfetto.dev or, in Chrome, at chrome://tracing"
    ),
    "speedscope": Format(".speedscope.json", "open it at https://www.speedscope.app"),
    "folded": Format(".folded.txt", "draw it with: flamegraph.pl {path} > flames.svg"),
    "pprof": Format(".pb.gz", "look at it with: go tool pprof -http=: {path}", text=False),
    "parquet": Format("", "read one with: pandas.read_parquet({batches})"),
    "csv": Format("", "read one with: pandas.read_csv({batches})"),
}
_STDOUT = ("-", "/dev/stdout")


@dataclass(frozen=True)
class Asked:
    """What `lotus export` was asked for."""

    format: str
    output: Path | None = None
    torch_trace: Path | None = None
    weight: str | None = None
    force: bool = False


@dataclass
class Done:
    """What was written, what to type next, and remarks."""

    path: Path | None  # None: standard output
    next: str
    notes: list[str] = field(default_factory=list)


def target(asked: Asked, run_directory: Path) -> Path | None:
    """Where the export goes; None for standard output. Default: named after the run, here."""
    ending = FORMATS[asked.format].ending
    if asked.output is None:
        name = Path(os.path.abspath(run_directory)).name or "run"
        return Path(name + ending) if ending else Path(f"{name}-{asked.format}")
    return None if str(asked.output) in _STDOUT else asked.output


def check(asked: Asked, run_directory: Path) -> None:
    """Raise LotusError for what cannot be done, before any work."""
    format = FORMATS[asked.format]
    path = target(asked, run_directory)
    if asked.torch_trace is not None and asked.format != "chrome":
        raise LotusError("--with needs --format chrome: only that is merged with torch.profiler's")
    if asked.weight is not None and asked.format not in ("folded", "speedscope"):
        raise LotusError(
            "--weight is for --format folded and speedscope; pprof has every event as a sample type"
        )
    if asked.format == "parquet":
        _need_pyarrow()
    if path is None:
        if not format.ending:
            raise LotusError(f"--format {asked.format} makes a directory: name it with -o DIR")
        return
    if format.ending:
        files.writable(path)
    elif os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
        raise LotusError(f"{path} is not a directory; -o names another one")
    if not asked.force and (path.is_file() or path.is_dir()):
        raise LotusError(f"{path} exists: overwrite it with -f, or name another with -o")


def export(run: "Run", asked: Asked, progress: Progress) -> Done:
    """Write `run` as asked. Raises LotusError; then nothing is left of it."""
    format = FORMATS[asked.format]
    path = target(asked, run.path)
    following = format.next.replace("{path}", shlex.quote(str(path)))
    batches = repr(f"{path}/batches.{asked.format}")
    done = Done(path, following.replace("{batches}", batches))
    if not format.ending:
        from lotus.export import tables

        assert path is not None
        tables.write(run, path, asked.format, asked.force, done.notes, progress)
        return done
    for note in _missing(run):
        done.notes.append(note)
    with _opened(path, format.text) as file:
        for piece in _pieces(run, asked, done, progress):
            file.write(piece)
    return done


def _missing(run: "Run") -> Iterator[str]:
    """What who looks at the export should know of the run."""
    again = f"lotus report {shlex.quote(str(run.path))}"
    if not len(run.loaders) and not len(run.batches):
        yield f"no loader was iterated in this run; {again} tells more"
    lost = run.lost
    if len(lost):
        yield f"records were lost ({plain(lost['what'][0])}, ...): {again} tells what"
    if len({process.machine for process in run._assembly.processes}) > 1:
        yield _clocks(run)


def _clocks(run: "Run") -> str:
    from lotus.analysis.rank_steps import clock_errors

    hosts = sorted({process.host for process in run._assembly.processes})
    errors = sorted(clock_errors(run.manifest, hosts).tolist())
    if len(hosts) > 1 and errors[-1] < float("inf"):
        apart = duration(sum(errors[-2:]))
        return f"the run is of several machines, whose clocks may be {apart} apart at most"
    return "the run is of several machines, whose clocks are not aligned to each other"


def _pieces(
    run: "Run", asked: Asked, done: Done, progress: Progress
) -> Iterator[bytes | memoryview]:
    # Each is imported where it is asked for: they need numpy and pandas.
    if asked.format == "perfetto":
        from lotus.export import perfetto

        yield from perfetto.write(run, done.notes, progress)
    elif asked.format == "chrome":
        from lotus.export import chrome

        yield from chrome.write(run, asked.torch_trace, done.notes, progress)
    elif asked.format == "pprof":
        from lotus.export import pprof

        yield pprof.content(run, done.notes, progress)
    else:
        from lotus.export import flames

        yield flames.content(run, asked.format, asked.weight, done.notes, progress)


@contextlib.contextmanager
def _opened(path: Path | None, text: bool) -> Iterator[IO[bytes]]:
    if path is not None:
        with files.replacing(path) as file:
            yield file
        return
    if sys.stdout.isatty() and not text:
        raise LotusError("this is no text for a terminal: name a file with -o")
    with open(sys.stdout.fileno(), "wb", closefd=False) as file:
        yield file


def _need_pyarrow() -> None:
    import importlib.util

    if importlib.util.find_spec("pyarrow") is None:
        raise LotusError(
            "--format parquet needs pyarrow, which is not installed beside lotus: "
            "pip install pyarrow; --format csv needs nothing"
        )
