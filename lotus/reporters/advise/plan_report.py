"""`lotus plan` on a terminal and as a document."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus.advise.cache_plan import RAM
from lotus.common import files
from lotus.common.formatting import MISSING, command, duration, plain, plural, share, size
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table
from lotus.settings.tuned_file import DEFAULT, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lotus.advise.cache_plan import CachePlace, CachePlanning, Cut, Interval, Offer

SCHEMA = 1
NO_FILES = (
    "files were read that cannot be seen: where one of them changes, kept samples do not; then use "
    "`lotus cache rm`"
)


def document(planning: CachePlanning, *, output: Path | None = None) -> dict[str, Any]:
    """Return the result as a JSON document; `output` is the file of settings that was written."""
    data = planning.data
    content = {
        "schema": SCHEMA,
        "loader": {"title": Target(**data.loader).words(), **data.loader},
        "setting": dict(data.setting),
        "path": None if data.path is None else list(data.path),
        "operations": list(data.operations),
        "refused": data.refused,
        "files": data.files,
        "unseen_files": data.unseen_files,
        "samples": data.samples,
        "epochs": planning.epochs,
        "cuts": [_cut(cut) for cut in planning.cuts],
        "places": [_place(place) for place in planning.places],
        "offers": [_offer(offer) for offer in planning.offers],
        "chosen": None if planning.chosen is None else _offer(planning.chosen),
        "sentence": planning.reason,
        "notes": list(planning.notes),
        "output": None if output is None else str(output),
    }
    json_result: dict[str, Any] = files.json_value(content)
    return json_result


def _cut(cut: Cut) -> dict[str, Any]:
    return {
        "cut": cut.number,
        "name": cut.name,
        "deterministic": cut.deterministic,
        "draws": list(cut.draws),
        "why": cut.why,
        "value": cut.value or None,
        "before_ns": _mean(cut.before_ns),
        "after_ns": _mean(cut.after_ns),
        "bytes": _mean(cut.bytes),
        "keep_ns": _mean(cut.keep_ns),
        "fetch_ns": _mean(cut.fetch_ns),
    }


def _mean(values: Any) -> float | None:
    return float(values.mean()) if len(values) else None


def _place(place: CachePlace) -> dict[str, Any]:
    def rate(bytes_per_s: float) -> float | None:
        return None if math.isinf(bytes_per_s) else bytes_per_s

    return {
        "kind": place.kind,
        "folder": place.folder,
        "budget_bytes": place.budget_bytes,
        "write_bytes_per_s": rate(place.write_bytes_per_s),
        "read_bytes_per_s": rate(place.read_bytes_per_s),
    }


def _offer(offer: Offer) -> dict[str, Any]:
    def interval(values: Interval) -> dict[str, float]:
        return {"mean": values.mean, "low": values.low, "high": values.high}

    return {
        "cut": offer.cut.number,
        "place": offer.place.kind,
        "least_ns_per_byte": offer.least_ns_per_byte,
        "kept_share": offer.share,
        "kept_bytes": offer.kept_bytes,
        "warm": offer.warm,
        "now_ns": interval(offer.now),
        "first_epoch_ns": interval(offer.first),
        "later_epochs_ns": interval(offer.later),
        "times": interval(offer.times),
        "break_even_epochs": offer.break_even,
    }


def write(
    console: Console, planning: CachePlanning, *, words: Sequence[str], output: Path | None
) -> None:
    """Print what was measured, then the choice; `words` are the program's command."""
    data = planning.data
    title = Target(**data.loader).words()
    console.print(f"\nKeeping samples: {plain(title)}", style="bold")
    _write_cuts(console, planning)
    console.print()
    for cut in planning.cuts:
        if cut.why is not None:
            text = f"after {cut.name}: {cut.why}"
            print_paragraph(console, "not kept", plain(text))
            break  # the following ones are mostly left out for the same reason
    if planning.chosen is not None:
        _write_choice(console, planning, planning.chosen)
    if data.unseen_files:
        print_paragraph(console, "warning", NO_FILES)
    for note in planning.notes:
        print_paragraph(console, "note", plain(note))
    console.print(f"\n{plain(planning.reason)}.", style="bold", soft_wrap=True)
    if planning.chosen is None or output is None:
        return
    settings_words = [] if output == DEFAULT else ["--settings", str(output)]
    console.print("\nNext, whether the loader binds at all, then with kept samples:", style="bold")
    for line in (
        ["lotus", "advise", "--ceilings", "--", *words],
        ["lotus", "run", *settings_words, "--", *words],
    ):
        console.print(f"  {command(line)}", soft_wrap=True)


def _write_cuts(console: Console, planning: CachePlanning) -> None:
    rows = []
    for cut in planning.cuts:
        if not len(cut.before_ns):
            continue
        rows.append(
            [
                plain(cut.name),
                _again(cut),
                duration(float(cut.before_ns.mean())),
                duration(float(cut.after_ns.mean())),
                size(float(cut.bytes.mean())) if len(cut.bytes) else MISSING,
                duration(float(cut.fetch_ns.mean())) if len(cut.fetch_ns) else MISSING,
            ]
        )
    columns = [
        ("cut after", LEFT),
        ("same again", LEFT),
        ("before", RIGHT),
        ("after", RIGHT),
        ("size", RIGHT),
        ("from RAM", RIGHT),
    ]
    samples = plural(planning.data.samples, "sample")
    print_table(console, f"Means of {samples}, each on one thread", columns, rows)


def _again(cut: Cut) -> str:
    if cut.draws:
        return f"no: {', '.join(cut.draws)}"
    return "yes" if cut.deterministic else "no"


def _write_choice(console: Console, planning: CachePlanning, offer: Offer) -> None:
    place = offer.place
    where = "in RAM" if place.kind == RAM else "on disk"
    choice = (
        f"what comes from {offer.cut.name} ({offer.cut.value}): {size(offer.kept_bytes)} "
        f"{where}, of at most {size(place.budget_bytes)}"
    )
    if offer.share < 1:
        choice += f", for {share(offer.share)} of the samples"
        if offer.least_ns_per_byte:
            choice += ": those that save most for their size"
    print_paragraph(console, "keep", plain(choice))
    print_paragraph(console, "now", f"{_span(offer.now)} a sample in its worker")
    print_paragraph(console, "epoch 1", f"{_span(offer.first)}: samples are written")
    print_paragraph(console, "later", _span(offer.later))
    times = offer.times
    print_paragraph(
        console,
        "predicted",
        f"from epoch 2 the same workers make {times.mean:.2f} ({times.low:.2f} to "
        f"{times.high:.2f}) times as many samples; without collate and sending, which stay",
    )
    pays = "from epoch 1 on" if offer.break_even == 1 else f"after {offer.break_even} epochs"
    print_paragraph(console, "pays", f"{pays}, of {planning.epochs}")
    if place.kind != RAM:
        assumed = (
            "what is kept fits in free memory, so it is read from the page cache"
            if offer.warm
            else f"it is read from the disk, at {size(place.read_bytes_per_s)}/s for all workers"
        )
        print_paragraph(console, "assumed", assumed)
    for label, text in _changes(planning, offer):
        print_paragraph(console, label, plain(text))


def _changes(planning: CachePlanning, offer: Offer) -> list[tuple[str, str]]:
    """Return what would change the choice."""
    lines = []
    if offer.share < 1 and offer.kept_bytes >= 0.99 * offer.place.budget_bytes:
        total_bytes = float(offer.cut.bytes.mean()) * (planning.data.length or 0)
        option = "--ram" if offer.place.kind == RAM else "--disk"
        lines.append(("more room", f"all samples take {size(total_bytes)}; {option} gives more"))
    if offer.cut.number < len(planning.cuts) - 1:
        following = planning.cuts[offer.cut.number + 1]
        if following.draws:
            text = f"{following.name} draws random numbers: the operations after it run every time"
            lines.append(("limit", text))
    text = "where the training step binds, not the loader, nothing is gained"
    lines.append(("no gain", text))
    return lines


def _span(interval: Interval) -> str:
    mean, low, high = (duration(value) for value in (interval.mean, interval.low, interval.high))
    return f"{mean} ({low} to {high})"
