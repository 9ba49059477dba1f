"""Lists every published figure: its value, spread and age, and how to repeat it.

    python tools/bench/all.py                one table, regressions first
    python tools/bench/all.py --run NAME...  measure these again, unless newer than their code

This tool measures nothing itself: each claim has its own tool. A figure is read where it is
published or recorded, by a pattern, and is never copied here. Its date is that of its record, or of
the commit that wrote its line. It is old if files that it measures were changed on a later day, and
worse if the previous version of its record, in git, had a better one. What a tool prints is kept in
tools/bench/results/all/NAME.txt; figures of the documentation are updated by hand.
"""

import argparse
import functools
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS, OVERHEAD, RESULTS = "docs/benchmarks.md", "docs/overhead.md", "tools/bench/results"
ACCURACY = "docs/accuracy.md"
DIAGNOSIS, GAINS = f"{RESULTS}/diagnosis.md", f"{RESULTS}/gains.md"
OVERHEADS, TUNE = "tools/bench/overhead/comparison.py", "tools/bench/tune/comparison.py"
# Where figures of a record were up to 2026-11-29, and up to 2026-11-26.
BEFORE = {
    ACCURACY: [BENCHMARKS],
    DIAGNOSIS: [ACCURACY, BENCHMARKS],
    GAINS: ["docs/gains.md", BENCHMARKS],
}
NO_FIGURE = "none"
# The contents of a table's cell, up to its end.
CELL = r"[^|\n]*\|"
TRACER = "lotus/inside lotus/recording"
VERDICT = "lotus/analysis lotus/inside/trace"


@dataclass(frozen=True)
class Claim:
    """A published figure. `pattern` names `figure` and may name `spread` and `date`."""

    name: str
    says: str
    command: str
    measures: str
    record: str = ""
    pattern: str = ""
    more_is_better: bool = False


@dataclass(frozen=True)
class Found:
    figure: str = NO_FIGURE
    spread: str = ""
    date: str = ""


def _row(*starts: str, cells: int = 0) -> str:
    """Return the pattern of a table's row that begins with these cells, with one figure in it."""
    skipped = CELL * cells
    return r"^\| *" + r" *\| *".join(starts) + r" *\|" + skipped


DATED = r"(?P<date>20\d\d-\d\d-\d\d)"
# Of the same table: up to the row, no other date with a torch comes.
OF_TOOLS = (
    DATED + r", torch(?:(?!\d, torch)[\s\S])*?"
    r"\| {} \|{}[ ~]*(?P<figure>[^(|]*?) \((?P<spread>[^)]*)\)"
)
# Up to 2026-11-28 the tools were in one folder.
REPLAYED = (
    r"replayed on (?:that recorded grid|the grid of)[^|]*?`tune(?:/comparison)?\.py`, "
    + DATED
    + r"[\s\S]*?"
)
REAL = r"[\s\S]*?Real, on[\s\S]*?\n{} +10 +(?P<figure>[\d.]+%) +(?P<spread>.*?%)"
OF_PEERS = r"commit [0-9a-f]+, " + DATED + r", load[\s\S]*?"
CLAIMS = [
    Claim(
        "overhead", "the loop of six scripts under lotus trace", OVERHEADS, TRACER,
        OVERHEAD, OF_TOOLS.format("lotus trace", CELL),
    ),
    Claim(
        "overhead-process", "their whole process, with the verdict", OVERHEADS,
        TRACER, OVERHEAD, OF_TOOLS.format("lotus trace", ""),
    ),
    Claim(
        "overhead-py-spy", "beside: the loop under py-spy", OVERHEADS, "",
        OVERHEAD, OF_TOOLS.format(r"py-spy [\d.]*", CELL),
    ),
    Claim(
        "overhead-traceml", "beside: the loop under TraceML", OVERHEADS, "",
        OVERHEAD, OF_TOOLS.format(r"TraceML [\d.]*", CELL),
    ),
    Claim(
        "hooks", "instructions of an operation, hooks in C", "tools/bench/overhead/hooks.py",
        "lotus/inside/trace", OVERHEAD, _row("an operation", "4,500") + r" *(?P<figure>\d+)",
    ),
    Claim(
        "diagnosis", "first cause right: seven corpora",
        "tools/bench/diagnosis.py --corpus own open blind sealed variants users night", VERDICT,
        DIAGNOSIS,
        _row("all seven, again at [0-9a-f]+") + f" *{DATED}{CELL}" + r" *(?P<figure>\d+ of \d+)",
        more_is_better=True,
    ),
    Claim(
        "diagnosis-dipper", "the same in programs by somebody else, the newest",
        "tools/bench/diagnosis.py --corpus dipper", VERDICT, DIAGNOSIS,
        _row("`dipper`[^|]*") + f" *{DATED}{CELL}" + r" *(?P<figure>\d+ of \d+)",
        more_is_better=True,
    ),
    Claim(
        "diagnosis-variants", "the same in programs by somebody else",
        "tools/bench/diagnosis.py --corpus variants", VERDICT, DIAGNOSIS,
        _row("`variants`") + f" *{DATED}{CELL}" + r" *(?P<figure>\d+ of \d+)", more_is_better=True,
    ),
    Claim(
        "diagnosis-traceml", "beside: TraceML names the cause, users and a fourth of sealed",
        "tools/bench/accuracy/diagnosis_peers.py --tool traceml --python build/peers/bin/python",
        "",
        ACCURACY, OF_PEERS + _row(r"TraceML [\d.]+", cells=1) + r" *(?P<figure>\d+ of \d+)",
    ),
    Claim(
        "diagnosis-loadtune", "beside: loadtune names the cause, users and a fourth of sealed",
        "tools/bench/accuracy/diagnosis_peers.py --tool loadtune --python build/peers/bin/python",
        "",
        ACCURACY, OF_PEERS + _row(r"loadtune [\d.]+", cells=1) + r" *(?P<figure>\d+ of \d+)",
    ),
    Claim(
        "attach", "first cause right by lotus attach (by trace: `diagnosis`)",
        "tools/bench/attach/first_causes.py", f"{VERDICT} lotus/attach", DIAGNOSIS,
        DATED + r",\s+other work (?:beside|ran) all the time[\s\S]*?"
        r"Together (?P<figure>\d+ of \d+) \((?P<spread>[^)]*)\)", more_is_better=True,
    ),
    Claim(
        "tune", "lost to the best of ten real loops, median",
        f"{TUNE} --record --tune --write", "lotus/tune", f"{RESULTS}/tune.txt",
        DATED + REAL.format("lotus"),
    ),
    Claim(
        "tune-replayed", "lost to the best of the recorded grid, median",
        TUNE, "lotus/tune", GAINS,
        REPLAYED + _row("`lotus tune`")
        + r" (?P<figure>[\d.]+ %) \| (?P<spread>[\d.]+ % \| [\d.]+ %)",
    ),
    Claim(
        "tune-random", "beside: random search in the same seconds", TUNE, "",
        GAINS, REPLAYED + r"^\| random search in the same seconds[^|]*\|"
        r" (?P<figure>[\d.]+ %) \| (?P<spread>[\d.]+ % \| [\d.]+ %)",
    ),
    Claim(
        "tune-grid", "beside: the grid, each setting once", TUNE, "",
        f"{RESULTS}/tune.txt",
        DATED + r"[\s\S]*?\ngrid +\d+ +(?P<figure>[\d.]+%) +(?P<spread>[\d.]+% +[\d.]+%)",
    ),
    Claim(
        "tune-busy", "the same beside other work", f"{TUNE} --record --tune",
        "lotus/tune", f"{RESULTS}/tune_busy.txt",
        DATED + REAL.format("lotus"),
    ),
    Claim(
        "tune-loadtune", "beside: loadtune there",
        f"{TUNE} --tune --rivals build/peers/bin/python", "",
        f"{RESULTS}/tune_busy.txt", DATED + REAL.format("loadtune"),
    ),
    Claim(
        "tune-epochs", "whole epochs with the chosen setting, small CNN, times as fast",
        "tools/bench/tune/promise.py --data build/data --only small_cnn",
        "lotus/tune lotus/inside/tune", GAINS,
        _row("below 2, (?:commit [0-9a-f]+|" + DATED + ")", cells=2)
        + r" (?P<figure>[\d.]+) in the median of nine pairs \((?P<spread>[^)]*)\)",
        more_is_better=True,
    ),
    Claim(
        "advise", "later epochs with alternatives and a cache, a light step without workers",
        "tools/bench/gains/advise_demos.py",
        "lotus/advise lotus/inside/alternatives lotus/inside/cache",
        f"{RESULTS}/advise_demos.txt",
        DATED + r"[\s\S]*?light step, no workers[\s\S]*?\n +both +[\d.]+ \([^)]*\) +"
        r"(?P<figure>[\d.]+) \((?P<spread>[^)]*)\)", more_is_better=True,
    ),
    Claim(
        "new-memory", "what another malloc gains, torch, 54 MiB a volume, two workers",
        "tools/bench/gains/new_memory.py",
        "lotus/analysis/verdict/causes/making/kernel_work.py", f"{RESULTS}/new_memory.txt",
        DATED + r"[\s\S]*?torch 54 2 +tcmalloc +[\d.]+ \([^)]*\) +"
        r"(?P<figure>[\d.]+) \((?P<spread>[^)]*)\)", more_is_better=True,
    ),
    Claim(
        "garbage-collector", "what gc.disable() gains, samples of 640 KiB of JSON, no workers",
        "tools/bench/gains/garbage_collector.py",
        "lotus/analysis/verdict/causes/garbage.py", f"{RESULTS}/garbage_collector.txt",
        DATED + r"[\s\S]*?640 +0 +disabled +[\d.]+ \([^)]*\) +"
        r"(?P<figure>[\d.]+) \((?P<spread>[^)]*)\)", more_is_better=True,
    ),
    Claim(
        "simulator", "error of whatif, median of 25 settings",
        "tools/bench/accuracy/simulate.py --write",
        "lotus/tune/simulation", f"{RESULTS}/simulate.txt",
        DATED + r"[\s\S]*?as recorded  all .*?median error (?P<figure>[\d.]+%), "
        r"(?P<spread>worst [\d.]+%)",
    ),
    Claim(
        "balance", "lotus balance against a searched split, two ranks, CNN",
        "tools/bench/ranks/balance_measured.py", "lotus/balance lotus/inside/distributed",
        f"{RESULTS}/balance_measured.md",
        r"quota2 cnn[^\n]*\| (?P<figure>[\d.]+%) \((?P<spread>[^)]*)\)[\s\S]*" + DATED,
        more_is_better=True,
    ),
    Claim(
        "balance-simulated", "the same, 64 simulated ranks of mixed kinds",
        "tools/bench/ranks/balance_simulated.py", "lotus/balance",
        f"{RESULTS}/balance_simulated.txt",
        DATED + r"[\s\S]*?64 ranks, mixed[\s\S]*?lotus +(?P<figure>[\d.]+%) +\((?P<spread>[^)]*)",
        more_is_better=True,
    ),
    Claim(
        "report", "processor seconds of a report of 10 million events",
        "tools/bench/speed/report_size.py --write tools/bench/results",
        "lotus/reading lotus/analysis lotus/reporters", BENCHMARKS,
        r"of 10 and 40 million events, in batches of 64 \|[^|]*?" + DATED + r"[^|]*\|"
        r" (?:[\d.]+ to )?(?P<figure>[\d.]+) and",
    ),
    Claim(
        "report-page", "the same with its page", "tools/bench/speed/report_size.py --write "
        "tools/bench/results", "lotus/reading lotus/analysis lotus/reporters",
        f"{RESULTS}/report_size.json",
        r'"page",\s+"events": 10000896,\s+"wall_s": [\d.]+,\s+"cpu_s": (?P<figure>[\d.]+)',
    ),
    Claim(
        "start", "ms of lotus --help",
        "tools/bench/speed/startup.py", "lotus/cli.py lotus/commands",
        BENCHMARKS, _row("`lotus --help`, median of 20", r"`(?:speed/)?startup\.py`")
        + r" (?P<figure>\d+) ms[^|]*?\(" + DATED,
    ),
    Claim(
        "suite", "make test, two processes", "make test", "lotus native_map tests", BENCHMARKS,
        r"`make test` on a fresh clone[^(;]*\(" + DATED + r", commit [0-9a-f]+\): [\d,]+\s+tests "
        r"in (?P<figure>\d+ min \d+ s)",
    ),
    Claim(
        "wheel", "seconds of pip install of the wheel beside the newest torch",
        "tools/wheel_check.py", "pyproject.toml", BENCHMARKS,
        DATED + r"\n\(seconds of wall[\s\S]*?" + _row("3.13", "Python", r"[\d.]+")[1:]
        + r" (?P<figure>\d+)",
    ),
    Claim(
        "five-minutes", "the README's seven commands",
        "tools/bench/speed/newcomer.py", "lotus README.md",
        BENCHMARKS, r"commands took (?P<figure>\d+ min \d+ s)",
    ),
]  # fmt: skip


def git(*words: str) -> str:
    completed = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return completed.stdout.strip()


def read(claim: Claim, text: str) -> tuple[Found, int]:
    """Return the figure in a version of its record, and its line number."""
    match = re.search(claim.pattern, text, re.MULTILINE) if claim.pattern else None
    if match is None or not match["figure"]:
        return Found(), 0
    named = match.groupdict()
    spread = re.sub(r"[\s|]*\|[\s|]*", ", ", " ".join((named.get("spread") or "").split()))
    line = text.count("\n", 0, match.start("figure")) + 1
    return Found(match["figure"].strip(), spread, named.get("date") or ""), line


def recorded(claim: Claim) -> Found:
    """Return the figure as recorded today."""
    path = ROOT / claim.record
    figure, line = read(claim, path.read_text()) if claim.record else (Found(), 0)
    if figure.date or figure.figure == NO_FIGURE:
        return figure
    written = git("blame", "-L", f"{line},{line}", "--porcelain", "--", claim.record)
    seconds = re.search(r"^author-time (\d+)", written, re.MULTILINE)
    date = time.strftime("%Y-%m-%d", time.gmtime(int(seconds[1]))) if seconds else ""
    return Found(figure.figure, figure.spread, date)


def before(claim: Claim, now: Found) -> Found:
    """Return the last different figure in the record's git history."""
    paths = [claim.record, *BEFORE.get(claim.record, [])]
    commits = git("log", "--format=%h", "-n", "100", "--", *paths).split()
    for commit in commits if now.figure != NO_FIGURE else []:
        text = next(filter(None, (git("show", f"{commit}:{path}") for path in paths)), "")
        found, _ = read(claim, text)
        if found.figure not in (NO_FIGURE, now.figure):
            return found
    return Found()


def number(figure: str) -> float | None:
    """Convert a figure to a number: `59 of 63`, `15 min 56 s`, `+7.9 %`, `4,500`."""
    numbers = [float(text) for text in re.findall(r"-?\d+(?:\.\d+)?", figure.replace(",", ""))]
    if not numbers:
        return None
    if " of " in figure:
        return numbers[0] / numbers[1]
    return numbers[0] * 60 + numbers[1] if " min " in figure else numbers[0]


def is_worse(claim: Claim, now: Found, then: Found) -> bool:
    new, old = number(now.figure), number(then.figure)
    if new is None or old is None or not claim.measures:
        return False
    return new < old if claim.more_is_better else new > old


@functools.cache
def changed(paths: str) -> str:
    """Return the day of the last change to these files."""
    return git("log", "-1", "--format=%cs", "--", *paths.split()) if paths else ""


def command(claim: Claim) -> list[str]:
    words = shlex.split(claim.command)
    return [sys.executable, *words] if words and words[0].endswith(".py") else words


def run(claim: Claim) -> int:
    """Measure a claim again, unless its code has not changed since the last time."""
    if not claim.command:
        print(f"{claim.name}: no tool measures it")
        return 1
    output = ROOT / RESULTS / "all" / f"{claim.name}.txt"
    if output.exists() and claim.measures:
        commit = output.read_text().split("\n", 1)[0]
        paths = claim.measures.split()
        if git("rev-parse", "--verify", commit) and not git("diff", commit, "--", *paths):
            print(f"{claim.name}: what is measured is as in {output.relative_to(ROOT)}")
            return 0
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    completed = subprocess.run(
        command(claim), cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True
    )
    print(completed.stdout)
    if completed.returncode == 0:
        output.parent.mkdir(exist_ok=True)
        output.write_text(f"{git('rev-parse', 'HEAD')}\n{claim.command}\n{completed.stdout}")
    return completed.returncode


def table(claims: list[Claim]) -> None:
    rows, counts = [], {"worse": 0, "old": 0, NO_FIGURE: 0}
    for claim in claims:
        now = recorded(claim)
        then = before(claim, now)
        marks = [f"before: {then.figure}"] if then.figure != NO_FIGURE else []
        states = {
            "worse": is_worse(claim, now, then),
            "old": bool(now.date) and changed(claim.measures) > now.date,
            NO_FIGURE: now.figure == NO_FIGURE,
        }
        for state, holds in states.items():
            counts[state] += holds
        if states["worse"]:
            marks.insert(0, "WORSE")
        if states["old"]:
            marks.append(f"older than its code ({changed(claim.measures)})")
        cells = [claim.name, claim.says, now.figure, now.spread, now.date, claim.command]
        rows.append((not states["worse"], [*cells, "; ".join(marks)]))
    print("| claim | what | figure | spread | date | command | |\n|---|---|---|---|---|---|---|")
    for _, cells in sorted(rows, key=lambda row: row[0]):
        print("| " + " | ".join(cells) + " |")
    print(
        f"\n{len(claims)} claims: {counts['worse']} worse than the figure before, "
        f"{counts['old']} older than their code, {counts[NO_FIGURE]} without a figure"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    names = {claim.name: claim for claim in CLAIMS}
    parser.add_argument("--run", nargs="+", choices=sorted(names), metavar="NAME")
    args = parser.parse_args()
    if args.run:
        return max(run(names[name]) for name in args.run)
    table(CLAIMS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
