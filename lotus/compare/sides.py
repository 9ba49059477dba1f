"""Resolves the arguments of `lotus compare` to the comparisons to make."""

import glob
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lotus.analysis.common.run_contents import one_process
from lotus.attach.files import attached_run
from lotus.common.errors import LotusError
from lotus.common.terminal.progress import Advance
from lotus.compare import sampled_runs
from lotus.compare.comparison import Comparison, PartialsOf, Side, are_same, compare
from lotus.compare.sampled_runs import SampledRun
from lotus.reading.run import Run, load
from lotus.settings.space import Setting
from lotus.sweep.sweep_record import Sweep, is_sweep, name_of
from lotus.sweep.sweep_record import load as load_sweep

_MOST_RUNS = 1000  # per side; a pattern that matches more is a mistake


@dataclass(frozen=True)
class ComparisonArgument:
    """The meaning of an argument: runs, or one sweep; `sampled`: runs of `lotus attach`."""

    text: str
    letter: str
    runs: Sequence[Run]
    sweep: Sweep | None = None
    sampled: Sequence[SampledRun] = ()


def comparisons(
    texts: Sequence[str],
    partials: PartialsOf = lambda run: one_process,
    advance: Advance = lambda done, whole: None,
) -> Iterator[Comparison]:
    """Yield comparisons of each side with the first; sweeps are compared setting by setting.

    A text is a run, a directory of runs, a sweep, several of them separated by commas, or a shell
    pattern. `partials` reads the pieces of a run; `advance` is called with the number read and the
    total. Raises LotusError if a text names nothing that can be compared.
    """
    sides = [resolve(text, _letter(index)) for index, text in enumerate(texts)]
    kinds = {side.sweep is not None for side in sides}
    if len(kinds) > 1:
        lone = next(side for side in sides if side.sweep is not None)
        raise LotusError(
            f"{lone.text} is a sweep and another side is not: compare two sweeps, or name runs of "
            f"the sweep, as: lotus compare '{lone.text}/*/*' B"
        )
    if len({bool(side.sampled) for side in sides}) > 1:
        lone = next(side for side in sides if side.sampled)
        raise LotusError(
            f"{lone.text} was sampled by lotus attach and another side was not: compare sides that "
            "were recorded alike, or see each by itself: lotus report RUN"
        )
    for other in sides[1:]:
        if kinds == {True}:
            yield from _settings(sides[0], other, partials, advance)
        elif other.sampled:
            a, b = (Side(side.text, side.sampled, side.letter) for side in (sides[0], other))
            yield sampled_runs.compare(a, b, are_same(a, b))
        else:
            a, b = (_side(side, side.runs) for side in (sides[0], other))
            yield compare(a, b, partials=partials, advance=advance)


def _letter(place: int) -> str:
    return chr(ord("A") + place) if place < 26 else f"side {place + 1}"


def _side(argument: ComparisonArgument, runs: Sequence[Run]) -> Side:
    return Side(argument.text, runs, argument.letter)


def _settings(
    a: ComparisonArgument, b: ComparisonArgument, partials: PartialsOf, advance: Advance
) -> Iterator[Comparison]:
    assert a.sweep is not None
    assert b.sweep is not None
    varied = [name for name in a.sweep.varied if name in b.sweep.varied]
    if set(a.sweep.varied) != set(b.sweep.varied):
        raise LotusError(
            f"the sweeps set different things: {a.text} {', '.join(a.sweep.varied)}; {b.text} "
            f"{', '.join(b.sweep.varied)}; compare runs of them, or sweep both alike"
        )
    common = [setting for setting in a.sweep.settings() if setting in b.sweep.settings()]
    settings = [
        setting
        for setting in common
        if a.sweep.directories(setting) and b.sweep.directories(setting)
    ]
    if not settings:
        raise LotusError(
            f"{a.text} and {b.text} have no setting in common whose runs are done; see: "
            f"lotus report {shlex.quote(a.text)}"
        )
    for setting in settings:
        yield compare(
            _side(a, a.sweep.loaded(setting)),
            _side(b, b.sweep.loaded(setting)),
            _words(setting, varied),
            partials=partials,
            advance=advance,
        )


def _words(setting: Setting, varied: Sequence[str]) -> str:
    return name_of(setting, varied).replace("-", ", ")


def resolve(text: str, letter: str = "A") -> ComparisonArgument:
    """Load the runs or the sweep that an argument names. Raises LotusError."""
    if is_sweep(text):
        return ComparisonArgument(text, letter, [], load_sweep(text))
    paths = [path for part in _parts(text) for path in _runs(part)]
    if len(paths) > _MOST_RUNS:
        raise LotusError(
            f"{text} names {len(paths)} runs; {_MOST_RUNS} are the most of a side: name fewer"
        )
    paths = list(dict.fromkeys(paths))
    sampled = [path for path in paths if attached_run.is_attached(path)]
    if sampled and len(sampled) < len(paths):
        raise LotusError(
            f"{text} has runs that were traced and {sampled[0]}, which lotus attach sampled: name "
            "runs that were recorded alike"
        )
    if sampled:
        return ComparisonArgument(
            text, letter, [], sampled=[sampled_runs.load(path) for path in sampled]
        )
    return ComparisonArgument(text, letter, [load(path) for path in paths])


def _parts(text: str) -> list[str]:
    """Split an argument into names; an existing path may contain commas and stars."""
    if Path(text).exists() or "," not in text:
        return [text]
    return [part for part in text.split(",") if part]


def _runs(text: str) -> list[str]:
    path = Path(text)
    if not path.exists() and glob.has_magic(text):
        runs = sorted(name for name in glob.glob(text) if Path(name, "run.json").is_file())
        if not runs:
            raise LotusError(f"no run is at {text}; see what is there with: ls {text}")
        return runs
    if path.is_dir() and not (path / "run.json").exists():
        try:
            inner = sorted(entry for entry in path.iterdir() if (entry / "run.json").is_file())
        except OSError as error:
            raise LotusError(f"cannot read {text}: {error.strerror}; see: ls -ld {text}") from None
        if inner and not (path / "events").exists():
            return [str(run) for run in inner]
    return [text]
