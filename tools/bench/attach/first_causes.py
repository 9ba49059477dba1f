"""Measures how often `lotus attach` finds the planted cause.

    PYTHONPATH=. python tools/bench/attach/first_causes.py [--corpus own open blind sealed variants
        users night] [--seconds 20] [--rows FILE] [NAME ...]

Each program of tests/diagnosis/CORPUS runs long enough to be observed: with more epochs if it takes
--epochs, else repeatedly in one process. After it has loaded torch and started a worker (or used
4 s of CPU since) it is observed for --seconds. Its label, written before the rules, says which
cause comes first. Causes that only single batches show count as well. Rows already in --rows are
not measured again. beside_trace.py compares with `lotus trace`.
"""

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lotus.attach.processes import process_discovery
from lotus.attach.threads.thread_readings import children_of
from tools.bench import diagnosis, provenance
from tools.bench.row_file import RowFile, printed

_EPOCHS, _SAMPLES = 1000, 5000  # more than fit into the time
_LIMIT_S, _START_CPU_S = 120, 4
# As __main__, for what workers import that were spawned.
_AGAIN = """\
import sys
__file__, sys.argv = sys.argv[1], sys.argv[1:]
sys.path.insert(0, __file__.rpartition("/")[0])
code = compile(open(__file__).read(), __file__, "exec")
while __name__ == "__main__":
    exec(code, globals())
"""


def longer(program: Path) -> list[str]:
    """Return a command by which a program runs longer than it is observed."""
    text = program.read_text()
    if "planted.arguments(" in text:
        return [sys.executable, str(program), f"--samples={_SAMPLES}"]
    if '"--epochs"' in text:
        return [sys.executable, str(program), f"--epochs={_EPOCHS}"]
    return [sys.executable, "-c", _AGAIN, str(program)]


def watched(program: Path, seconds: float) -> tuple[dict[str, Any], str, str]:
    """Return the verdict on a running program, the report as text, and lotus's stderr."""
    lotus = [sys.executable, "-m", "lotus"]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        child = subprocess.Popen(longer(program), stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            until = time.monotonic() + _LIMIT_S
            while not has_torch(child.pid) and time.monotonic() < until and child.poll() is None:
                time.sleep(0.05)
            loaded = cpu_s(child.pid)  # a busy machine imports for long
            while (
                not children_of(child.pid)
                and cpu_s(child.pid) - loaded < _START_CPU_S
                and time.monotonic() < until
                and child.poll() is None
            ):
                time.sleep(0.05)
            completed = subprocess.run(
                [*lotus, "attach", str(child.pid), f"--seconds={seconds}", "-o", str(run)],
                capture_output=True, text=True,
            )  # fmt: skip
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if completed.returncode:
            return {}, completed.stdout, completed.stderr
        report = subprocess.run(
            [*lotus, "report", "--json", str(run)], capture_output=True, check=True
        )
    judged = json.loads(report.stdout)["verdict"] or {}
    return judged, " ".join(completed.stdout.split()), completed.stderr


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process; infinite if it has ended."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return math.inf


def has_torch(pid: int) -> bool:
    facts = process_discovery.read_process(pid)
    return facts is not None and bool(facts.torch)


def scored(judged: Mapping[str, Any], text: str, label: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first cause, and whether it is the planted one."""
    if not judged.get("causes"):
        return {"first": judged.get("kind", "none"), "title": "", "right": False, "harmless": True}
    first = judged["causes"][0]
    named = first["kind"] in label["kinds"] and re.search(label["names"], first["title"])
    return {
        "first": first["kind"],
        "title": first["title"],
        "share": first["share"],
        "right": bool(named and re.search(label["note"], text)),
        "harmless": not any(re.search(words, diagnosis.advised(first)) for words in label["never"]),
    }


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row per program: from --rows if it is there, else measured and appended."""
    file = RowFile(args.rows)
    existing = file.by("corpus", "program")
    for corpus in args.corpus:
        labels = json.loads((diagnosis.PROGRAMS / f"{corpus}.json").read_text())
        for name, label in labels.items():
            if (args.names and name not in args.names) or label.get("busy_only"):
                continue
            row = existing.get((corpus, name))
            if row is None:
                program = diagnosis.PROGRAMS / corpus / f"{name}.py"
                row = {
                    "corpus": corpus, "program": name, "planted": label["kinds"][0],
                    "healthy": label["healthy"], "load": round(os.getloadavg()[0], 1),
                }  # fmt: skip
                judged, text, stderr = watched(program, args.seconds)
                row |= {"said": stderr.strip(), "attach": scored(judged, text, label)}
                file.add(row)
            yield row


def line_of(row: Mapping[str, Any]) -> str:
    seen = row["attach"]
    mark = "right" if seen["right"] else "WRONG"
    text = f" ({row['said'][:60]})" if not seen["title"] else ""
    cause = f"{seen['first']}: {seen['title'][:60]}{text}"
    where = f"{row['corpus']:6} {row['program']:18} load {row['load']:4}"
    return f"{where} {mark} {cause}"


def summary(rows_shown: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for healthy in (False, True):
        mine = [row["attach"] for row in rows_shown if row["healthy"] == healthy]
        right = sum(each["right"] for each in mine)
        harmless = sum(each["harmless"] for each in mine)
        if mine:
            title = "healthy left alone" if healthy else "first cause right"
            yield f"{title} in {right} of {len(mine)}; next step harmless in {harmless}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs (default: all)")
    parser.add_argument(
        "--corpus", nargs="+", choices=diagnosis.CORPORA, default=list(diagnosis.CORPORA)
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to watch")
    parser.add_argument("--rows", type=Path, help="file of rows, a JSON object a line")
    args = parser.parse_args()
    print(provenance.header(more=f"\nwatched  {args.seconds:g} s"))
    print("\n".join(summary(printed(rows(args), line_of))))


if __name__ == "__main__":
    main()
