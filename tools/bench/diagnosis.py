"""Measures how often the verdict is right, on programs with a planted cause, and the advice's gain.

    PYTHONPATH=. python tools/bench/diagnosis.py [--corpus CORPUS ...] [--busy 0] [--pairs 1]
        [--follow 0] [--rows FILE] [--runs DIR] [NAME ...]

Each program of tests/diagnosis/CORPUS is traced once; its label in CORPUS.json, written before the
rules, says which cause comes first. Then it runs untraced, unchanged and with the label's remedy,
in interleaved pairs; printed is the median of the pairs' ratios of the printed seconds. `--follow
N` does the same N times with the verdict's own next step, if that is a setting or an environment
variable, and prints the measured gain beside the predicted one. `--busy N` keeps N other processes
computing. Rows already in --rows are not measured again, so an interrupted measurement continues.
`--runs DIR` keeps the recordings, and judges those that are there already without running their
programs again: this tells what a change of the rules does to the score.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lotus.analysis.verdict.run_time import RunPart, RunTime
from tools.bench import provenance
from tools.bench.row_file import RowFile, printed

PROGRAMS = provenance.ROOT / "tests" / "diagnosis"
CORPORA = tuple(sorted(path.stem for path in PROGRAMS.glob("*.json")))
SETTING = "num_workers prefetch_factor persistent_workers pin_memory".split()
SLOWER = 0.95  # of a pair's speed: below it the next step made the program slower
_LIMIT_S = 600


class NotAppliedError(RuntimeError):
    """`lotus run` left a loader as it is."""


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Run `count` processes that compute."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def seconds(command: Sequence[str], env: Mapping[str, str]) -> float:
    """Return the sum of the loop times that an untraced run of a program prints.

    Raises NotAppliedError if lotus says that the loader keeps its own settings.
    """
    completed = subprocess.run(
        command,
        env={**os.environ, **env}, capture_output=True, text=True, check=True, timeout=_LIMIT_S,
    )  # fmt: skip
    if "keeps its own settings" in completed.stderr:
        raise NotAppliedError(completed.stderr)
    lines = [
        line.split()[1] for line in completed.stdout.splitlines() if line.startswith("seconds ")
    ]
    return sum(map(float, lines))


def of_all_loops(document: Mapping[str, Any], gain: float | None) -> float | None:
    """Return how many times as fast all loops are if those of the first loader are `gain` times.

    A program prints the seconds of all its loops.
    """
    time = document["time"]
    if not gain or not time:
        return gain
    parts = tuple(RunPart(**part) for part in time["parts"])
    of_run = RunTime(time["wall_ns"], parts, time["pauses"])
    return of_run.gain_of_loops(document["loaders"][0]["loader"], gain)


def diagnosed(program: Path, kept: Path | None) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return the verdict on one traced run, its first loader's settings, and the report as text.

    Gains that the verdict expects are those of all loops.

    The run is recorded in `kept`, or read there if it exists; None: recorded for this call only.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = kept or Path(folder, "run")
        lotus = [sys.executable, "-m", "lotus"]
        if not run.exists():
            subprocess.run(
                [*lotus, "trace", "-q", "-o", str(run), "--", sys.executable, str(program)],
                check=True, stdout=subprocess.DEVNULL, timeout=_LIMIT_S,
            )  # fmt: skip
        report, text = (
            subprocess.run([*lotus, "report", *words, str(run)], capture_output=True, check=True)
            for words in (["--json"], [])
        )
    document = json.loads(report.stdout)
    words = " ".join(text.stdout.decode().split())
    for cause in document["verdict"]["causes"]:
        expected = cause["remedy"]["expected"]
        expected |= {end: of_all_loops(document, expected[end]) for end in ("gain", "low", "high")}
    return document["verdict"], document["loaders"][0]["settings"], words


def followed(program: Path, settings: Mapping[str, Any], remedy: Mapping[str, Any]) -> float | None:
    """Return the speed-up of a program with a remedy, in one pair of untraced runs.

    0.0 if the program ends with an error with it. None if `lotus run` cannot apply it.
    """
    before = seconds([sys.executable, str(program)], {})
    command = [sys.executable, str(program)]
    with tempfile.TemporaryDirectory() as folder:
        if remedy["setting"]:
            changed = {name: settings.get(name) for name in SETTING} | remedy["setting"]
            if not changed["num_workers"]:
                changed |= {"prefetch_factor": None, "persistent_workers": False}
            loader = {name: settings[name] for name in ("call_site", "dataset")}
            content = {"schema": 1, "loaders": [{"loader": loader, "setting": changed}]}
            file = Path(folder, "tuned.json")
            file.write_text(json.dumps(content))
            run = [sys.executable, "-m", "lotus", "run", "--settings", str(file), "--"]
            command = [*run, *command]
        try:
            return before / seconds(command, remedy["environment"])
        except subprocess.CalledProcessError as error:
            print(f"{program.stem} failed with the next step:\n{error.stderr}", file=sys.stderr)
            return 0.0
        except NotAppliedError as error:
            print(error, file=sys.stderr)
            return None


def advised(cause: Mapping[str, Any]) -> str:
    """Return the next step without sentences that advise against something."""
    return " ".join(
        sentence for sentence in cause["advice"].split(". ") if "not help" not in sentence
    )


def row_of(
    name: str,
    program: Path,
    label: Mapping[str, Any],
    pairs: int,
    follow: int,
    kept: Path | None,
) -> dict[str, Any]:
    """Return whether cause and next step are right, and the change's gain."""
    judged, settings, text = diagnosed(program, kept)
    first = judged["causes"][0]
    fix = label["fix"] or {}
    plain = [sys.executable, str(program)]
    gains = [
        seconds(plain, {}) / seconds([*plain, *fix.get("args", ())], fix.get("env", {}))
        for _ in range(pairs if fix else 0)
    ]
    remedy = first["remedy"]
    trials = follow if remedy["setting"] or remedy["environment"] else 0
    pairs_with_it = (followed(program, settings, remedy) for _ in range(trials))
    tried = [gain for gain in pairs_with_it if gain is not None]
    named = first["kind"] in label["kinds"] and re.search(label["names"], first["title"])
    noted = re.search(label["note"], text)
    return {
        "program": name,
        "planted": label["kinds"][0],
        "healthy": label["healthy"],
        "first": first["kind"],
        "title": first["title"],
        "right": bool(named and noted),
        "harmless": not any(re.search(words, advised(first)) for words in label["never"]),
        "advice": first["advice"],
        "doubt": judged["doubt"],
        "gain": statistics.median(gains) if gains else None,
        "remedy": remedy,
        "followed": statistics.median(tried) if tried else None,
        "planted_gain": label.get("gain"),
    }


def rows(
    corpora: Iterable[str],
    names: Sequence[str],
    load: int,
    pairs: int,
    follow: int,
    file: RowFile,
    runs: Path | None,
) -> Iterator[dict[str, Any]]:
    """Yield a row per program: from `file` if it is there, else measured and appended."""
    existing = file.by("corpus", "program", "busy")
    for corpus in corpora:
        labels = json.loads((PROGRAMS / f"{corpus}.json").read_text())
        for name, label in labels.items():
            if (names and name not in names) or (label.get("busy_only") and not load):
                continue
            row = existing.get((corpus, name, load))
            if row is None:
                program = PROGRAMS / corpus / f"{name}.py"
                kept = runs / f"{corpus}-{name}-{load}" if runs else None
                row = {
                    "corpus": corpus, "busy": load,
                    **row_of(name, program, label, pairs, follow, kept),
                }  # fmt: skip
                file.add(row)
            yield row


def holds(expected: Mapping[str, Any], gain: float) -> bool:
    """Return whether a measured gain is in the predicted interval; "at most" has no lower end."""
    return bool((expected["at_best"] or expected["low"] <= gain) and gain <= expected["high"])


def predicted(remedy: Mapping[str, Any]) -> str:
    gain = remedy["expected"]
    if gain["gain"] is None:
        return "nothing"
    most = "at most " if gain["at_best"] else ""
    return f"{most}{gain['gain']:.2f} ({gain['low']:.2f} to {gain['high']:.2f})"


def line_of(row: Mapping[str, Any]) -> str:
    marks = f"{'right' if row['right'] else 'WRONG':5} {'' if row['harmless'] else 'HARMS'}"
    gain = "" if row["gain"] is None else f"{row['gain']:.2f}x"
    title = f"{row['first']}: {row['title'][:70]}"
    if row.get("followed") is not None:
        setting = {**row["remedy"]["setting"], **row["remedy"]["environment"]}
        words = ", ".join(f"{key}={value}" for key, value in setting.items())
        title += f" [{words}: {row['followed']:.2f}x, predicted {predicted(row['remedy'])}]"
    return f"{row['corpus']:5} {row['program']:20} {marks:11} {gain:>7} {title}"


def summary(rows_shown: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the score of each corpus, and confusions of causes."""
    for corpus in CORPORA:
        planted = [row for row in rows_shown if row["corpus"] == corpus and not row["healthy"]]
        healthy = [row for row in rows_shown if row["corpus"] == corpus and row["healthy"]]
        if not planted and not healthy:
            continue
        right, harmless = (sum(row[what] for row in planted) for what in ("right", "harmless"))
        yield (
            f"{corpus}: first cause right in {right} of {len(planted)} planted, next step harmless "
            f"in {harmless}; healthy left alone: {sum(row['right'] for row in healthy)} of "
            f"{len(healthy)}"
        )
    yield from _of_steps(rows_shown)
    confused = Counter((row["planted"], row["first"]) for row in rows_shown if not row["right"])
    for (planted_kind, first), count in confused.most_common():
        yield f"  {planted_kind} taken for {first}: {count}"


def _of_steps(rows_shown: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what applied next steps gave, of the time that the planted cause costs."""
    tried = [row for row in rows_shown if row.get("followed") is not None]
    planted = [row for row in tried if not row["healthy"] and (row["planted_gain"] or 0) > 1]
    if tried:
        half = sum(
            row["followed"] > 0 and 1 - 1 / row["followed"] >= (1 - 1 / row["planted_gain"]) / 2
            for row in planted
        )
        failed = sum(row["followed"] == 0 for row in tried)
        slower = sum(row["followed"] < SLOWER for row in tried)
        expected = [row for row in tried if row["remedy"]["expected"]["gain"] is not None]
        held = sum(holds(row["remedy"]["expected"], row["followed"]) for row in expected)
        yield (
            f"next step applied: {len(tried)}; recovers at least half of the planted loss in "
            f"{half} of {len(planted)}; over {1 - SLOWER:.0%} slower: {slower - failed}; "
            f"failed: {failed}; as predicted: {held} of {len(expected)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs (default: all)")
    parser.add_argument(
        "--corpus",
        nargs="+",
        choices=CORPORA,
        metavar="CORPUS",
        default=list(CORPORA),
        help="folders of tests/diagnosis (default: all)",
    )
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside")
    parser.add_argument("--pairs", type=int, default=1, help="pairs of runs for the gain")
    parser.add_argument("--follow", type=int, default=0, help="pairs of runs with the next step")
    parser.add_argument("--rows", type=Path, help="file of rows, a JSON object a line")
    parser.add_argument("--runs", type=Path, help="folder that keeps the recordings")
    args = parser.parse_args()
    print(provenance.header(more=f"\nbusy     {args.busy} processes beside, {args.pairs} pairs"))
    with busy(args.busy):
        file = RowFile(args.rows)
        measured_rows = rows(
            args.corpus, args.names, args.busy, args.pairs, args.follow, file, args.runs
        )
        printed_rows = printed(measured_rows, line_of)
    print("\n".join(summary(printed_rows)))


if __name__ == "__main__":
    main()
