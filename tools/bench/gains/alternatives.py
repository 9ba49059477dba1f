"""Measures how much faster epochs are with the alternatives of `lotus run`.

    PYTHONPATH=. python tools/bench/gains/alternatives.py [--rounds 3] [--samples 600]

cached_samples_train.py trains in turn unchanged, with the alternatives that change no value, and
with all of them. Printed are the seconds of an epoch after the first, medians and ranges over the
rounds, and the speed-up over the unchanged program, paired by round. Losses must be equal where no
value may change.
"""

import random
import statistics
import sys
from pathlib import Path

from lotus.advise.alternatives import applied_alternatives
from lotus.advise.ceilings.ceilings import ALL, EXACT
from lotus.settings import tuned_file
from lotus.settings.space import Setting
from lotus.settings.tuned_file import AlternativeUse, Entry, Target, Tuned
from tools.bench.gains.cached_samples import EPOCHS, PROGRAM, parser_of, pictures, train, words_of

PIPELINES = ("v1", "fixed")
OWN = "own"


def words_for(folder: Path, kind: str, workers: int) -> list[str]:
    choices = applied_alternatives.choices()
    uses = tuple(AlternativeUse(name, name in choices[EXACT]) for name in choices[ALL])
    entry = Entry(Target(dataset="ImageFolder"), Setting(workers), alternatives=uses)
    path = folder / "advice.json"
    tuned_file.write(path, Tuned((entry,)))
    words = [sys.executable, "-m", "lotus", "run", "-q", "--settings", str(path)]
    for use in uses:
        words += [] if kind == EXACT or use.exact else ["--allow", use.name]
    return [*words, "--"]


def compare(pipeline: str, workers: int, data: Path, folder: Path, rounds: int) -> None:
    own = [sys.executable, str(PROGRAM), str(data), "--pipeline", pipeline]
    own += ["--workers", str(workers), "--epochs", str(EPOCHS)]
    durations: dict[str, list[float]] = {kind: [] for kind in (OWN, EXACT, ALL)}
    losses: dict[str, list[str]] = {}
    for turn in range(rounds):
        kinds = list(durations)
        random.Random(turn).shuffle(kinds)
        for kind in kinds:
            before = [] if kind == OWN else words_for(folder, kind, workers)
            seconds, losses[kind] = train([*before, *own])
            durations[kind].append(statistics.median(seconds[1:]))
    if losses[EXACT] != losses[OWN]:
        raise SystemExit(f"{pipeline}, {workers} workers: the losses differ: {losses}")
    for kind, seconds in durations.items():
        row = f"{pipeline:6} {workers:7}  {kind:6}  {words_of(seconds):22}"
        times = [before / after for before, after in zip(durations[OWN], seconds, strict=True)]
        print(row if kind == OWN else f"{row}  {words_of(times)}", flush=True)


def main() -> None:
    options = parser_of(__doc__).parse_args()
    with pictures(options) as (data, folder):
        print(f"\n{'':23}  {'epoch, s':22}  times as fast")
        for pipeline in PIPELINES:
            for workers in (0, 2):
                compare(pipeline, workers, data, folder, options.rounds)


if __name__ == "__main__":
    main()
