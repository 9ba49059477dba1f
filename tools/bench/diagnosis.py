"""How often the verdict is right: programs with a planted cause, and what the next step gains.

    PYTHONPATH=. python tools/bench/diagnosis.py [--busy 0] [--pairs 3] [--json FILE] [NAME ...]

Each program of tests/diagnosis/programs is traced once; its label says which cause comes first.
Then it runs untraced, as it is and with what the next step says, in interleaved pairs: shown is the
median of the pairs' ratios of the printed seconds, with the least and the greatest. `--busy N`
keeps N processes computing beside.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import provenance

PROGRAMS = provenance.ROOT / "tests" / "diagnosis" / "programs"
LABELS = PROGRAMS.parent / "labels.json"


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """`count` processes that compute."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def seconds(name: str, args: Sequence[str], env: Mapping[str, str]) -> float:
    """What an untraced run of a program prints of its loops, added up."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / f"{name}.py"), *args],
        env={**os.environ, **env}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("seconds ")]
    return sum(map(float, lines))


def verdict(name: str) -> dict[str, Any]:
    """The verdict on one traced run."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        program = [sys.executable, str(PROGRAMS / f"{name}.py")]
        lotus = [sys.executable, "-m", "lotus"]
        subprocess.run(
            [*lotus, "trace", "-q", "-o", str(run), "--", *program],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        report = subprocess.run(
            [*lotus, "report", "--json", str(run)], capture_output=True, check=True
        )
    judged: dict[str, Any] = json.loads(report.stdout)["verdict"]
    return judged


def score(name: str, label: Mapping[str, Any], pairs: int) -> dict[str, Any]:
    """One row: whether cause and next step are right, and what the next step gains."""
    judged = verdict(name)
    first = judged["causes"][0]
    fix = label["fix"]
    gains = [
        seconds(name, (), {}) / seconds(name, fix.get("args", ()), fix.get("env", {}))
        for _ in range(pairs if fix else 0)
    ]
    return {
        "program": name,
        "first": f"{first['kind']}: {first['title']}",
        "right": first["kind"] in label["kinds"] and label["names"] in first["title"],
        "harmless": not any(words in first["advice"] for words in label["never"]),
        "advice": first["advice"],
        "doubt": judged["doubt"],
        "gain": statistics.median(gains) if gains else None,
        "gains": sorted(gains),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs (default: all)")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of runs for the gain")
    parser.add_argument("--json", type=Path, help="file for all rows")
    args = parser.parse_args()
    labels = json.loads(LABELS.read_text())
    print(provenance.header(more=f"\nbusy     {args.busy} processes beside, {args.pairs} pairs"))
    rows = []
    with busy(args.busy):
        for name in args.names or labels:
            if labels[name].get("busy_only") and not args.busy:
                continue
            row = score(name, labels[name], args.pairs)
            rows.append(row)
            gain = "" if row["gain"] is None else f"{row['gain']:.2f} times"
            if row["gains"]:
                gain += f" ({row['gains'][0]:.2f} to {row['gains'][-1]:.2f})"
            marks = f"{'right' if row['right'] else 'WRONG':5} {'' if row['harmless'] else 'HARMS'}"
            print(f"{name:20} {marks:11} {gain:28} {row['first'][:90]}", flush=True)
    right, harmless = (sum(row[what] for row in rows) for what in ("right", "harmless"))
    print(f"first cause right: {right} of {len(rows)}; next step harmless: {harmless}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
