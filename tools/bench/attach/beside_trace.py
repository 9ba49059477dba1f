"""Compares the first cause that `lotus attach` names with that of `lotus trace` on the same run.

    PYTHONPATH=. python tools/bench/attach/beside_trace.py [--seconds 20] [--after 5]
        [--data DIRECTORY] [--rows FILE] [NAME ...]

The six demos and ten programs of tests/diagnosis run under `lotus trace`, long enough to be
observed: with more epochs if a program takes --epochs, else repeatedly in one process. --after
seconds after the first worker started (or after 4 s of CPU time since torch was imported),
`lotus attach` observes the program for --seconds; then the program is ended. So trace describes
the whole process, attach a part of it. Printed for each program are the first cause that each
names, and whether it is the label's; the demos have no label. Shares of time are compared by
wait_shares.py, because trace itself changes them in short steps. Rows already in --rows are not
measured again.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lotus.attach.threads.thread_readings import children_of
from lotus.workloads.catalogue import WORKLOADS
from tools.bench import diagnosis, provenance
from tools.bench.attach import first_causes
from tools.bench.overhead import comparison
from tools.bench.row_file import RowFile, printed

DEMO = "demo"
PROGRAMS = (
    *((DEMO, name) for name in WORKLOADS),
    ("own", "sleeping"), ("own", "slow_transform"), ("open", "captions"), ("open", "fraud"),
    ("open", "gan"), ("users", "meters"), ("night", "crossings"),
    ("dawn", "whales"), ("dawn", "orchards"), ("users", "handsets"),
)  # fmt: skip
LOTUS = (sys.executable, "-m", "lotus")
_LIMIT_S, _START_CPU_S, _EPOCHS = 180, 4, 1000


def command(corpus: str, name: str, data: Path) -> list[str]:
    """Return a program that runs for longer than it is watched."""
    if corpus != DEMO:
        return first_causes.longer(diagnosis.PROGRAMS / corpus / f"{name}.py")
    workload = WORKLOADS[name]
    threads = max(1, len(os.sched_getaffinity(0)) - 2)  # as lotus demo has it
    words = [sys.executable, str(workload.script), "--workers=2", f"--threads={threads}"]
    words += [f"--batch-size={workload.batch_size}", f"--epochs={_EPOCHS}"]
    return [*words, "--data", str(comparison.data_of(name, workload.count, data))]


@contextlib.contextmanager
def traced(words: Sequence[str], run: Path, after: float) -> Iterator[int]:
    """The process id of a program that is traced and has been loading for `after` seconds.

    It is ended at last by SIGTERM, and what was recorded is complete then.
    """
    trace = [*LOTUS, "trace", "-q", "-o", str(run), "--", *words]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(trace, start_new_session=True, **quiet)
    try:
        pid = _wait_for(
            child, lambda: next(filter(first_causes.has_torch, children_of(child.pid)), 0)
        )
        loaded = first_causes.cpu_s(pid)
        _wait_for(
            child, lambda: children_of(pid) or first_causes.cpu_s(pid) - loaded > _START_CPU_S
        )
        time.sleep(after)
        yield pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        child.wait(timeout=_LIMIT_S)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _wait_for(child: subprocess.Popen[bytes], known: Any) -> Any:
    until = time.monotonic() + _LIMIT_S
    while not (result := known()):
        if child.poll() is not None or time.monotonic() > until:
            raise SystemExit("the program did not begin to load data")
        time.sleep(0.05)
    return result


def judged(run: Path) -> tuple[dict[str, Any], str]:
    """Return the document and the text of a report."""
    words = [*LOTUS, "report", str(run)]
    document, text = (
        subprocess.run([*words, *more], capture_output=True, check=True, text=True).stdout
        for more in (["--json"], [])
    )
    return json.loads(document), " ".join(text.split())


def row_of(corpus: str, name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the results of both for one run."""
    row: dict[str, Any] = {"corpus": corpus, "program": name}
    row["load"] = round(os.getloadavg()[0], 1)
    words = command(corpus, name, args.data)
    with tempfile.TemporaryDirectory() as folder:
        run, seen = Path(folder, "run"), Path(folder, "seen")
        with traced(words, run, args.after) as pid:
            look = [*LOTUS, "attach", str(pid), f"--seconds={args.seconds}", "-o", str(seen)]
            completed = subprocess.run(look, capture_output=True, text=True)
        row["said"] = completed.stderr.strip()[-200:] if completed.returncode else ""
        label = {"kinds": [], "names": "", "note": "", "never": []}
        if corpus != DEMO:
            label = json.loads((diagnosis.PROGRAMS / f"{corpus}.json").read_text())[name]
        document, text = judged(run)
        row["planted"] = label["kinds"]
        row["trace"] = first_causes.scored(document["verdict"] or {}, text, label)
        document, text = judged(seen) if not completed.returncode else ({"verdict": {}}, "")
        row["attach"] = first_causes.scored(document["verdict"] or {}, text, label)
    return row


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row per program: from --rows if it is there, else measured and appended."""
    file = RowFile(args.rows)
    existing = file.by("corpus", "program")
    for corpus, name in PROGRAMS:
        if args.names and name not in args.names:
            continue
        row = existing.get((corpus, name))
        if row is None:
            row = row_of(corpus, name, args)
            file.add(row)
        yield row


def line_of(row: Mapping[str, Any]) -> str:
    """Return a row of a Markdown table."""
    causes = [
        f"{row[how]['first']}: {row[how]['title']}".replace("|", "/").removesuffix(": ")
        + (" (wrong)" if row["planted"] and not row[how]["right"] else "")
        for how in ("trace", "attach")
    ]
    planted = ", ".join(row["planted"]) or "-"
    name = f"`{row['corpus']}/{row['program']}`"
    return f"| {name} | {row['load']} | {planted} | {causes[0]} | {causes[1]} |"


def summary(rows_shown: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how often each is right, and how often they agree."""
    labelled = [row for row in rows_shown if row["planted"]]
    for how in ("trace", "attach"):
        yield f"{how}: {sum(row[how]['right'] for row in labelled)} of {len(labelled)} labels"
    same = sum(row["trace"]["first"] == row["attach"]["first"] for row in rows_shown)
    yield f"the same kind of cause first: {same} of {len(rows_shown)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs (default: all)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to watch")
    parser.add_argument("--after", type=float, default=5.0, help="seconds after the first worker")
    parser.add_argument("--data", type=Path, default=provenance.ROOT / "build" / "data")
    parser.add_argument("--rows", type=Path, help="file of rows, a JSON object a line")
    args = parser.parse_args()
    print(provenance.header(more=f"\nwatched  {args.seconds:g} s, {args.after:g} s after a worker"))
    print("| program | load | label | first cause, trace | first cause, attach |")
    print("|---|---|---|---|---|")
    print("\n".join(summary(printed(rows(args), line_of))))


if __name__ == "__main__":
    main()
