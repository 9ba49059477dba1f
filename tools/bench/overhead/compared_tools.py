"""The tools that comparison.py compares: how each is run, and how its output is checked.

Each tool runs as its own documentation says, on the same script with the same arguments. Its output
is read after each run: it counts as a recording only if it contains the script's work.
"""

import json
import mmap
import os
import pstats
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.bench.overhead import traceml_script

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
LOST = re.compile(r"you lost some early data")


@dataclass(frozen=True)
class Seen:
    """The contents of a tool's output."""

    records: int  # samples, events, calls: as `unit` says
    unit: str
    workers: int | None  # processes of workers that the output tells of; None: not told apart
    note: str = ""


@dataclass(frozen=True)
class Tool:
    """A tool: `words(python, script, arguments, out)` is its command line, `out` a folder."""

    name: str
    about: str  # how it is run
    words: Callable[[str, str, Sequence[str], Path], list[str]]
    look: Callable[[Path, str], Seen]  # of the folder and of what was printed; any error: failed
    program: str | None = None  # that has to be there
    install: str = ""


def path_of(program: str) -> str | None:
    """Return the path of a program: beside this Python, or on PATH."""
    beside = BIN / program
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(program)


def missing(tool: Tool) -> str | None:
    """Return why a tool cannot run here, and the command that helps; None if it can."""
    if tool.name == "lotus --counters":
        return None if counts() else "no hardware counters here (`lotus doctor` says more)"
    if tool.program and not path_of(tool.program):
        return f"{tool.program} is not installed: {tool.install}"
    return None


def counts() -> bool:
    """Return whether this machine counts hardware events."""
    from lotus.hardware.counter_probe import INSTRUCTIONS, Probe
    from lotus.inside.common import perf_event

    return Probe(perf_event.EventGroup).alone(INSTRUCTIONS).state == "counts"


def version(tool: Tool) -> str:
    """Return the version of a tool, from its package."""
    from importlib import metadata

    names = {
        "lotus": "lotus-profiler",
        "traceml": "traceml-ai",
        "austin": "austin-dist",
        "torch.profiler": "torch",
    }
    if tool.name in ("nothing", "nothing again", "cProfile"):
        return sys.version.split()[0]
    short = tool.name.split()[0]
    try:
        return metadata.version(names.get(short, short))
    except metadata.PackageNotFoundError:
        return "?"


def _lotus(*options: str) -> Callable[[str, str, Sequence[str], Path], list[str]]:
    def words(python: str, script: str, arguments: Sequence[str], out: Path) -> list[str]:
        lotus = path_of("lotus")
        start = [lotus] if lotus else [python, "-m", "lotus"]
        run = str(out / "run")
        return [*start, "trace", *options, "-o", run, "--", python, script, *arguments]

    return words


def _look_lotus(out: Path, text: str) -> Seen:
    from lotus.reading.run import load

    run = load(out / "run")
    batches = run.batches
    note = f"{int(batches['size'].sum())} samples, {len(run.ops)} operations"
    recorders = run.manifest.get("recorders") or {}
    if "perf" in recorders:
        perf = recorders["perf"]
        if perf.get("problem") or not perf.get("samples"):
            raise ValueError(f"perf recorded nothing: {perf.get('problem')}")
        note += f", {perf['samples']} samples of perf"
    return Seen(len(batches), "batches", batches.loc[batches["worker"] >= 0, "pid"].nunique(), note)


def _nothing(python: str, script: str, arguments: Sequence[str], out: Path) -> list[str]:
    return [python, script, *arguments]


def _look_nothing(out: Path, text: str) -> Seen:
    return Seen(0, "", None)


def _py_spy(python: str, script: str, arguments: Sequence[str], out: Path) -> list[str]:
    start = [path_of("py-spy") or "py-spy", "record", "--subprocesses", "--rate", "100"]
    return [*start, "--format", "raw", "-o", str(out / "raw"), "--", python, script, *arguments]


def _look_py_spy(out: Path, text: str) -> Seen:
    samples, workers, all_of = 0, set(), set()
    for line in (out / "raw").read_text().splitlines():
        stack, _, number = line.rpartition(" ")
        samples += int(number)
        pid = re.findall(r"process (\d+):", stack)[-1]
        all_of.add(pid)
        if "_worker_loop" in stack:
            workers.add(pid)
    behind = re.findall(r"([\d.]+)s behind in sampling", text)
    note = f"{len(all_of)} processes"
    if behind:
        note += f"; up to {max(float(late) for late in behind)} s behind"
    return Seen(samples, "stacks", len(workers), note)


def _austin(python: str, script: str, arguments: Sequence[str], out: Path) -> list[str]:
    start = [path_of("austin") or "austin", "-C", "-i", "10ms", "-o", str(out / "austin.txt")]
    return [*start, python, script, *arguments]


def _look_austin(out: Path, text: str) -> Seen:
    samples, workers, all_of = 0, set(), set()
    with (out / "austin.txt").open(errors="replace") as lines:  # it may write names it read half
        for line in lines:
            if line.startswith("P"):
                samples += 1
                pid = line.partition(";")[0]
                all_of.add(pid)
                if ":_worker_loop:" in line:
                    workers.add(pid)
    return Seen(samples, "stacks", len(workers), f"{len(all_of)} processes")


def _viztracer(python: str, script: str, arguments: Sequence[str], out: Path) -> list[str]:
    trace = str(out / "trace.json")
    return [path_of("viztracer") or "viztracer", "-o", trace, "--", script, *arguments]


def _look_viztracer(out: Path, text: str) -> Seen:
    with (out / "trace.json").open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        pids = Counter(match[1] for match in re.finditer(rb'"pid": ?(\d+)', data))
        loops = re.finditer(rb'"pid": ?(\d+)[^{}]*"name": ?"_worker_loop ', data)
        workers = {match[1] for match in loops}
    note = f"{len(pids)} processes"
    note += "; its buffer was full, early events are lost" * bool(LOST.search(text))
    return Seen(sum(pids.values()), "events", len(workers), note)


def _scalene(python: str, script: str, arguments: Sequence[str], out: Path) -> list[str]:
    start = [path_of("scalene") or "scalene", "run", "--cpu-only", "-o", str(out / "scalene.json")]
    return [*start, script, "---", *arguments]


def _look_scalene(out: Path, text: str) -> Seen:
    profile = json.loads((out / "scalene.json").read_text())
    shares = ("n_cpu_percent_python", "n_cpu_percent_c", "n_sys_percent")
    lines = [
        line
        for file in profile["files"].values()
        for line in file["lines"]
        if any(line[share] for share in shares)
    ]
    if not lines:
        raise ValueError("its profile has no line with time in it")
    names = {row["line"] for file in profile["files"].values() for row in file["functions"]}
    fetched = any(name.endswith(".__getitem__") for name in names)
    note = "lines of workers are in it, joined with the main process's" if fetched else ""
    return Seen(len(lines), "lines", None, note or "whether workers are in it cannot be told")


def _torch(python: str, script: str, arguments: Sequence[str], out: Path) -> list[str]:
    wrapper = str(HERE / "torch_profiler.py")
    return [python, wrapper, str(out / "trace.json"), script, *arguments]


def _look_torch(out: Path, text: str) -> Seen:
    events = json.loads((out / "trace.json").read_text())["traceEvents"]
    timed = [event for event in events if event.get("ph") == "X" and isinstance(event["pid"], int)]
    waits = sum(event["name"].startswith("enumerate(DataLoader)") for event in timed)
    if not waits:
        raise ValueError("its trace has no enumerate(DataLoader)")
    processes = len({event["pid"] for event in timed})
    return Seen(len(timed), "events", processes - 1, f"{waits} of enumerate(DataLoader)")


def _traceml(python: str, script: str, arguments: Sequence[str], out: Path) -> list[str]:
    changed = out.parent / Path(script).name
    changed.write_text(traceml_script.changed(Path(script).read_text()))
    start = [path_of("traceml") or "traceml", "run", "--logs-dir", str(out / "logs")]
    return [*start, str(changed), "--args", *arguments]


def _look_traceml(out: Path, text: str) -> Seen:
    (path,) = (out / "logs").glob("*/final_summary.json")
    summary = json.loads(path.read_text())
    steps = summary["step_time"]["global"]["window"]["steps_analyzed"]
    if not steps:
        raise ValueError("its summary has no step")
    return Seen(steps, "steps", 0, summary["primary_diagnosis"]["status"])


def _cprofile(python: str, script: str, arguments: Sequence[str], out: Path) -> list[str]:
    return [python, "-m", "cProfile", "-o", str(out / "profile"), script, *arguments]


def _look_cprofile(out: Path, text: str) -> Seen:
    stats = pstats.Stats(str(out / "profile"))
    functions = stats.stats  # type: ignore[attr-defined]
    loops = sum(function[2] == "_worker_loop" for function in functions)
    return Seen(len(functions), "functions", loops)


TOOLS = (
    Tool("nothing", "python SCRIPT", _nothing, _look_nothing),
    Tool("nothing again", "the same once more: the noise", _nothing, _look_nothing),
    Tool("lotus", "lotus trace -- python SCRIPT", _lotus(), _look_lotus),
    Tool("lotus --counters", "lotus trace --counters", _lotus("--counters"), _look_lotus),
    Tool("lotus --perf", "lotus trace --perf", _lotus("--perf"), _look_lotus, "perf",
         "apt-get install linux-perf"),
    Tool("py-spy", "py-spy record --subprocesses --rate 100 --format raw", _py_spy, _look_py_spy,
         "py-spy", "pip install py-spy"),
    Tool("austin", "austin -C -i 10ms (100 samples a second; its default is 10,000)",
         _austin, _look_austin, "austin", "pip install austin-dist==3.7.0"),
    Tool("viztracer", "viztracer (all functions of all processes, its default buffer)",
         _viztracer, _look_viztracer, "viztracer", "pip install viztracer"),
    Tool("scalene", "scalene run --cpu-only (without memory and GPU)", _scalene, _look_scalene,
         "scalene", "pip install scalene"),
    Tool("torch.profiler", "profile() around the whole script (torch_profiler.py)",
         _torch, _look_torch),
    Tool("traceml", "traceml run, three lines of change to the script (traceml_script.py)",
         _traceml, _look_traceml, "traceml", "pip install traceml-ai"),
    Tool("cProfile", "python -m cProfile -o FILE SCRIPT", _cprofile, _look_cprofile),
)  # fmt: skip
BY_NAME = {tool.name: tool for tool in TOOLS}
BASE = "nothing"
