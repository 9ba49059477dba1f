"""Runs other tools on the programs of tests/diagnosis and judges their answers beside lotus's.

    PYTHONPATH=. python tools/bench/accuracy/diagnosis_peers.py --python PYTHON [--rows FILE]
        [--tool ...] [--corpus users sealed] [NAME ...]

PYTHON is an interpreter with the packages of the programs and the tools: traceml-ai, loadtune with
greenlet, and torch. Each tool runs once on each program, one after the other, started as
diagnosis_peers_run.py says and judged as diagnosis_peers_rule.py says. lotus is judged as in
diagnosis.py: by kind, title and note of the first cause. Without names, all programs of the corpora
are used, of `sealed` every fourth in the order of its labels. Printed is the score of each tool; a
row contains the load of the machine before the run. Rows already in --rows are not measured again.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tools.bench import diagnosis, provenance
from tools.bench.accuracy import diagnosis_peers_rule as rule
from tools.bench.row_file import RowFile

HERE = Path(__file__).parent
LIMIT_S = 420
SAID = ("said", "next", "more")  # of the cause, as the next step, and what is not judged
COUNTED = {
    "side": "right side", "named": "cause named", "hinted": "only hinted at in the step",
    "step": "next step given", "refused": "step that its label refuses",
}  # fmt: skip


def traceml(out: Path) -> Sequence[str]:
    (path,) = out.glob("logs/*/final_summary.txt")
    text = re.sub(r"\|\|.*|^[|+]|[|+]$", "", path.read_text(), flags=re.MULTILINE)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    parts = ("Verdict|Why", "Next:", "STEP TIMING|Step Time|[├│└]")
    return ["\n".join(line for line in lines if re.match(part, line)) for part in parts]


def torch(out: Path) -> Sequence[str]:
    lines = (out / "table.txt").read_text().splitlines()
    return "\n".join([line.strip() for line in lines if "%" in line][:7]), "", ""


def loadtune(out: Path) -> Sequence[str]:
    report = (out / "report.md").read_text()
    parts = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=\n## |\Z)", report, re.MULTILINE | re.DOTALL))
    cause, dash, step = parts["Diagnosis"].strip().partition(" — ")
    verdict = parts["Verdict"].strip()
    trial_lines = [line for line in parts["Trials"].splitlines() if line.startswith("| `")]
    steps = [step] if dash else []
    (steps if "Recommended" in verdict else trial_lines).append(verdict)
    return cause, "\n".join(steps), "\n".join(trial_lines)


READ: dict[str, Callable[[Path], Sequence[str]]] = {
    "traceml": traceml, "loadtune": loadtune, "torch": torch,
}  # fmt: skip
TOOLS = ("lotus", *READ)


def command(tool: str, python: str, program: Path, out: Path) -> list[str]:
    script, words = str(HERE / "diagnosis_peers_run.py"), [tool, str(program), str(out)]
    if tool != "traceml":
        return [python, script, *words]
    start = [str(Path(python).parent / "traceml"), "run", "--logs-dir", str(out / "logs")]
    return [*start, script, "--args", *words]


def ended(words: Sequence[str], folder: str, log: IO[str]) -> int | None:
    """Return the exit code of a command; None after LIMIT_S, with all of its processes killed."""
    environ = {**os.environ, "PYTHONPATH": ""}
    started = subprocess.Popen(
        words, stdout=log, stderr=log, cwd=folder, env=environ, start_new_session=True
    )
    try:
        return started.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def put_on(tool: str, python: str, program: Path) -> dict[str, str]:
    """Return a tool's output on a program, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("w") as stream:
            code = ended(command(tool, python, program, Path(folder)), folder, stream)
        if code is None:
            return {"problem": f"nothing said in {LIMIT_S} s"}
        try:
            return dict(zip(SAID, READ[tool](Path(folder)), strict=True))
        except (OSError, ValueError, KeyError):
            lines = [line for line in log.read_text().splitlines() if line.strip()]
            problem = f"exit code {code}: {' / '.join(lines[-2:])}"
            return {"problem": problem.replace(folder, "").replace(f"{provenance.ROOT}/", "")}


def by_lotus(program: Path, label: Mapping[str, Any]) -> dict[str, Any]:
    """Return lotus's output on a program, judged as by diagnosis.py."""
    row = diagnosis.row_of(program.stem, program, label, 0, 0)
    judged = {
        "side": (row["first"] not in rule.NOT_INPUT) == rule.of_input(label),
        "named": row["right"] and not label["healthy"],
        "hinted": False,
        "step": bool(row["advice"]),
        "refused": not row["harmless"],
    }
    words = f"{row['first']}: {row['title']}"
    return {"said": words, "next": row["advice"], "more": "", "judged": judged}


def measured(tool: str, python: str, program: Path, label: Mapping[str, Any]) -> dict[str, Any]:
    row = {"corpus": program.parent.name, "program": program.stem, "tool": tool}
    load, begin = os.getloadavg()[0], time.monotonic()
    output = by_lotus(program, label) if tool == "lotus" else put_on(tool, python, program)
    return {**row, "load": round(load, 1), "seconds": round(time.monotonic() - begin), **output}


def chosen(corpora: Sequence[str], names: Sequence[str]) -> Iterator[tuple[Path, Any]]:
    for corpus in corpora:
        labels = json.loads((diagnosis.PROGRAMS / f"{corpus}.json").read_text())
        default = list(labels)[:: 4 if corpus == "sealed" else 1]
        for name in labels:
            if name in (names or default):
                yield diagnosis.PROGRAMS / corpus / f"{name}.py", labels[name]


def workers_of(program: Path) -> int:
    match = re.search(r'"--workers", type=int, default=(\d+)', program.read_text())
    return int(match[1]) if match else 0


def lines_of(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a row: the judgement, and the words on which it rests."""
    marks = [words for what, words in COUNTED.items() if row.get("judged", {}).get(what)]
    judgement = ", ".join(marks) or "nothing"
    yield f"  {row['tool']}, load {row['load']}, {row['seconds']} s: {judgement}"
    words = row.get("problem") or "\n".join(filter(None, (row[part] for part in SAID)))
    yield "    " + words.replace("\n", "\n    ")


def score(rows: Sequence[Mapping[str, Any]], healthy: set[str]) -> Iterator[str]:
    """Yield the table, a line per tool. Programs without output of a tool do not count for it."""
    heads = ["tool", *COUNTED.values(), "healthy left alone"]
    yield "| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|"
    for tool in dict.fromkeys(row["tool"] for row in rows):
        fine, planted = (
            [
                row.get("judged", {})
                for row in rows
                if row["tool"] == tool and (row["program"] in healthy) == well
            ]
            for well in (True, False)
        )
        counts = [sum(found.get(what, False) for found in planted) for what in COUNTED]
        alone = sum(found.get("side", False) and not found["refused"] for found in fine)
        cells = [f"{count} of {len(planted)}" for count in counts]
        yield f"| {tool} | {' | '.join(cells)} | {alone} of {len(fine)} |"


def versions(python: str) -> str:
    code = (
        "import sys, importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
    )
    names = ("traceml-ai", "loadtune", "torch")
    return subprocess.run([python, "-c", code, *names], capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs")
    parser.add_argument("--python", required=True, help="a Python that has the other tools")
    parser.add_argument(
        "--corpus", nargs="+", choices=diagnosis.CORPORA, default=["users", "sealed"]
    )
    parser.add_argument("--tool", nargs="+", choices=TOOLS, default=TOOLS)
    parser.add_argument("--rows", type=Path, help="file of rows, a JSON object a line")
    args = parser.parse_args()
    python = os.path.abspath(args.python)  # not resolved: that of an environment is a link
    print(provenance.header(more=f"\ntools    {versions(python).strip()}"))
    file = RowFile(args.rows)
    existing = file.by("program", "tool")
    rows, healthy = [], set()
    for program, label in chosen(args.corpus, args.names):
        healthy |= {program.stem} if label["healthy"] else set()
        print(f"\n{program.parent.name}/{program.stem}: {label['cause']}")
        for tool in args.tool:
            row = existing.get((program.stem, tool))
            if row is None:
                row = measured(tool, python, program, label)
                file.add(row)
            if tool != "lotus" and "said" in row:
                row["judged"] = rule.judged(label, row["said"], row["next"], workers_of(program))
            rows.append(row)
            print("\n".join(lines_of(row)), flush=True)
    print("\n" + "\n".join(score(rows, healthy)))


if __name__ == "__main__":
    main()
