"""`lotus plan` on a terminal and as a document."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus.advise.caches.cache_plan import LEAST_SAVED, RAM
from lotus.common.storage import files
from lotus.common.text.formatting import MISSING, command, duration, plain, plural, share, size
from lotus.reporters.advise import costs_report
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table
from lotus.settings.tuned_file import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lotus.advise.caches.cache_plan import CachePlace, CachePlanning, Cut, Interval, Offer
    from lotus.advise.caches.cache_timing import CacheTiming, Ratio

SCHEMA = 1
NO_FILES = (
    "files were read that cannot be seen: where one of them changes, cached samples do not; then "
    "use `lotus cache rm`"
)


def document(planning: CachePlanning, *, output: Path | None = None) -> dict[str, Any]:
    """Return the result as a JSON document; `output` is the file of settings that was written."""
    data = planning.data
    content = {
        "schema": SCHEMA,
        "loader": {"title": data.loader.words(), **asdict(data.loader)},
        "setting": dict(data.setting),
        "path": None if data.path is None else list(data.path),
        "operations": list(data.operations),
        "refused": data.refused,
        "files": data.files,
        "unseen_files": data.unseen_files,
        "samples": data.samples,
        "accesses": _accesses(planning),
        "collate_ns": data.collate_ns,
        "epochs": planning.epochs,
        "cuts": [_cut(cut) for cut in planning.cuts],
        "costs": None if planning.costs is None else costs_report.document(planning.costs),
        "places": [_place(place) for place in planning.places],
        "offers": [_offer(offer) for offer in planning.offers],
        "chosen": None if planning.chosen is None else _offer(planning.chosen),
        "sentence": planning.reason,
        "timing": None if planning.timing is None else _timing(planning.timing, planning.epochs),
        "shared": [
            {
                "cut": each.cut,
                "place": each.place,
                "samples": each.samples,
                "bytes": each.bytes,
                "present_share": each.share,
                "compression": each.compression,
                "program": each.program,
            }
            for each in planning.shared
        ],
        "other_loaders": [
            {**asdict(each.loader), "cut": each.cut, "overlap_share": each.overlap}
            for each in planning.others
        ],
        "notes": list(planning.notes),
        "output": None if output is None else str(output),
    }
    json_result: dict[str, Any] = files.json_value(content)
    return json_result


def _timing(timing: CacheTiming, epochs: int) -> dict[str, Any]:
    def ratio(value: Ratio | None) -> dict[str, float] | None:
        return None if value is None else asdict(value)

    known = not timing.why_unknown()
    saving = timing.saving(epochs)
    return {
        "times": ratio(timing.speedup) if known else None,
        "first_epoch_times": ratio(timing.first_longer) if known else None,
        "saved_share": ratio(saving),
        "break_even_epochs": timing.break_even(epochs),
        "why": timing.why_unknown() or None,
        "ended": timing.ended or None,
        "epoch_s": ratio(timing.plain_s),
        "first_epoch_s": ratio(timing.first_s),
        "later_epoch_s": ratio(timing.later_s),
        "waiting_share": timing.waiting,
        "start_s": timing.start_s,
        "epoch_over": timing.over,
        "batches": timing.batches,
        "epoch_batches": timing.epoch_batches,
        "rounds": [
            {
                "plain_s": each.plain_s,
                "filling_s": each.filling_s,
                "cached_s": each.cached_s,
                "waiting_share": each.waiting,
            }
            for each in timing.rounds
        ],
    }


def _accesses(planning: CachePlanning) -> dict[str, Any] | None:
    data = planning.data
    if data.accesses is None:
        return None
    return {
        "not_followed": data.not_followed,
        "samples": data.accesses.samples,
        "epochs": [
            {"accesses": each, "distinct": distinct}
            for each, distinct in zip(
                data.accesses.accesses.tolist(), data.accesses.distinct.tolist(), strict=True
            )
        ],
    }


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
        "compressions": [
            {
                "method": each.method,
                "samples": len(each.bytes),
                "bytes": _mean(each.bytes),
                "keep_ns": _mean(each.keep_ns),
                "fetch_ns": _mean(each.fetch_ns),
            }
            for each in cut.compressions
        ],
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
        "compression": offer.compression,
        "least_ns_per_byte": offer.least_ns_per_byte,
        "kept_share": offer.share,
        "hit_shares": list(offer.hits),
        "kept_bytes": offer.kept_bytes,
        "present_share": offer.present,
        "added_bytes": offer.added_bytes,
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
    title = data.loader.words()
    console.print(f"\nCaching samples: {plain(title)}", style="bold")
    _write_cuts(console, planning)
    if planning.costs is not None:
        costs_report.write(console, planning.costs)
    _write_compressions(console, planning)
    console.print()
    for cut in planning.cuts:
        if cut.why is not None:
            text = f"after {cut.name}: {cut.why}"
            print_paragraph(console, "not cached", plain(text))
            break  # the next ones are mostly left out for the same reason
    if planning.chosen is not None:
        _write_choice(console, planning, planning.chosen)
    else:
        for label, text in _predicted(planning):
            print_paragraph(console, label, plain(text))
    for label, text in _shared_words(planning):
        print_paragraph(console, label, plain(text))
    if data.unseen_files:
        print_paragraph(console, "warning", NO_FILES)
    for note in planning.notes:
        print_paragraph(console, "note", plain(note))
    console.print(f"\n{plain(planning.reason)}.", style="bold", soft_wrap=True)
    if planning.chosen is None or output is None:
        return
    settings_words = [] if output == DEFAULT else ["--settings", str(output)]
    console.print("\nTo try it:" if planning.is_unknown else "\nTo train with it:", style="bold")
    line = ["lotus", "run", *settings_words, "--", *words]
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


def _shared_words(planning: CachePlanning) -> list[tuple[str, str]]:
    """Return what is cached already, and which other loaders have the same samples up to a cut."""
    lines = []
    for each in planning.shared:
        where = "in RAM" if each.place == RAM else "on disk"
        by = "" if each.program is None else f", by {each.program}"
        reads = "reads all its samples from there, and writes none"
        if each.share < 1:
            reads = f"reads {share(each.share)} of its samples from there"
        text = (
            f"what comes from {planning.cuts[each.cut].name} is cached {where} already{by}: "
            f"{plural(each.samples, 'sample')}, {size(each.bytes)}; with it, the first epoch "
            f"{reads}. They count once towards the budget"
        )
        lines.append(("shared", text))
    for other in planning.others:
        saved = [each.saved for each in planning.offers if each.cut.number == other.cut]
        if max(saved, default=0.0) < LEAST_SAVED:
            continue
        name = planning.cuts[other.cut].name
        text = (
            f"{other.loader.words()} makes {share(other.overlap)} of these samples as well, the "
            f"same up to {name}: a cache of what comes from {name} serves both"
        )
        if planning.chosen is not None and planning.chosen.cut.number == other.cut:
            text += f". Once it is filled, lotus plan --loader {other.loader.call_site} counts it"
        lines.append(("both", text))
    return lines


def _write_compressions(console: Console, planning: CachePlanning) -> None:
    """Print what samples take compressed, at the cut that is chosen, or would save most."""
    offers = [planning.chosen] if planning.chosen is not None else planning.offers
    cut = max(offers, key=lambda each: each.saved).cut if offers else None
    if cut is None or not cut.compressions:
        return
    count = max(len(each.bytes) for each in cut.compressions)
    whole = float(cut.bytes[:count].mean())

    def cells(name: str, taken: Any, keep: Any, fetch: Any) -> list[str]:
        mean = float(taken.mean())
        times = [duration(float(each.mean())) for each in (keep, fetch)]
        return [name, size(mean), share(mean / whole), *times]

    rows = [cells("no", cut.bytes[:count], cut.keep_ns[:count], cut.fetch_ns[:count])]
    for each in cut.compressions:
        rows.append(cells(each.method, each.bytes, each.keep_ns, each.fetch_ns))
    columns = [
        ("compressed", LEFT),
        ("size", RIGHT),
        ("share", RIGHT),
        ("to write", RIGHT),
        ("to read", RIGHT),
    ]
    title = f"After {cut.name}, means of at most {plural(count, 'sample')}, CPU time"
    print_table(console, title, columns, rows)


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
    if offer.present:
        choice += f"; {size(offer.kept_bytes - offer.added_bytes)} of it are there already"
    if offer.compression is not None:
        choice += f", compressed ({offer.compression})"
    if offer.share < 1:
        choice += f", for {share(offer.share)} of the samples"
        if offer.least_ns_per_byte:
            choice += ": those that save most for their size"
    print_paragraph(console, "cache", plain(choice))
    text = (
        f"{_span(offer.now)} now, {_span(offer.first)} in the first epoch, {_first(offer)}, and "
        f"{_span(offer.later)} in later ones; in its worker, computed from its parts"
    )
    print_paragraph(console, "a sample", text)
    for label, text in _hits(planning, offer):
        print_paragraph(console, label, plain(text))
    for label, text in _predicted(planning):
        print_paragraph(console, label, plain(text))
    if place.kind != RAM:
        assumed = (
            "the cache fits in free memory, so it is read from the page cache"
            if offer.warm
            else f"it is read from the disk, at {size(place.read_bytes_per_s)}/s for all workers"
        )
        print_paragraph(console, "assumed", assumed)
    for label, text in _changes(planning, offer):
        print_paragraph(console, label, plain(text))


def _first(offer: Offer) -> str:
    """Return what the first epoch does with the cache."""
    return "which writes" if offer.first_shares.written else "which finds its samples cached"


def _predicted(planning: CachePlanning) -> list[tuple[str, str]]:
    """Return what was timed in training, and what epochs gain by it."""
    timing, epochs = planning.timing, planning.epochs
    if timing is None:
        return []
    lines = []
    plain, first, later = timing.plain_s, timing.first_s, timing.later_s
    if plain is None or first is None or later is None:
        lines.append(("epochs", f"what they gain is not known: {timing.why_unknown()}"))
    else:
        text = (
            f"{_seconds(plain)} without a cache; with it {_seconds(first)} for the first"
            f"{', which writes' if timing.first.written else ''}, and {_seconds(later)} from the "
            "second on"
        )
        lines.append(("epochs", text))
    times = timing.speedup
    if times is not None and not timing.why_unknown():
        text = f"{times.mean:.2f} ({times.low:.2f} to {times.high:.2f}) times as fast"
        lines.append(("gain", f"{text} from the second epoch on"))
    saving = timing.saving(epochs)
    if saving is not None:
        text = (
            f"{saving.mean:.0%} ({saving.low:.0%} to {saving.high:.0%}) of the time of "
            f"{plural(epochs, 'epoch')}, if all are as in one of the rounds"
        )
        even = timing.break_even(epochs)
        if even is not None:
            text += f"; it has saved what it cost after {plural(even, 'epoch')}"
        lines.append(("saves", text))
    if timing.rounds:
        text = (
            f"{plural(len(timing.rounds), 'block')} of training each way, in turn, "
            f"{plural(timing.batches, 'batch')} in all; epochs of "
            f"{plural(timing.epoch_batches, 'batch')} are computed from them"
        )
        if timing.start_s:
            text += f", with {duration(timing.start_s * 1e9)} for the start of workers"
        text += ". Intervals are for one further epoch, 95 %"
        lines.append(("timed", text + (f"; {timing.ended}" if timing.ended else "")))
    if timing.over:
        text = "the epoch was over meanwhile: its samples were read again, as in a second epoch"
        lines.append(("timed", text))
    return lines


def _seconds(value: Ratio) -> str:
    mean, low, high = (
        duration(max(each, 0.0) * 1e9) for each in (value.mean, value.low, value.high)
    )
    return f"{mean} ({low} to {high})"


def _hits(planning: CachePlanning, offer: Offer) -> list[tuple[str, str]]:
    """Return how many of an epoch's samples come from the cache, unless all do from epoch 2 on."""
    accesses, sampler = planning.data.accesses, planning.data.loader.sampler
    lines: list[tuple[str, str]] = []
    if accesses is None:
        return lines
    reason = planning.data.not_followed
    if reason is not None:
        text = f"each epoch asks for each sample once; the {sampler} is not followed: {reason}"
        lines.append(("assumed", text))
    if not accesses.once:
        last = planning.epochs
        text = ", ".join(
            f"{share(offer.hits[min(epoch, len(offer.hits)) - 1])} of epoch {epoch}"
            for epoch in sorted({1, 2, 3, last})
            if epoch <= last
        )
        text = (
            f"from the cache come {text}; computed from the order in which such a {sampler} asks "
            "for samples, with other random numbers than in training"
        )
        drawn = len(accesses.accesses)
        if drawn < last:
            text += f"; {plural(drawn, 'epoch')} were drawn, and further ones are taken as the last"
        lines.append(("hits", text))
    elif offer.share < 1 and len(offer.hits) > 1:
        text = (
            f"{share(offer.hits[1])} of an epoch's samples come from the cache, from epoch 2 on: "
            "each epoch asks for each sample once, and a full cache keeps what it has"
        )
        lines.append(("hits", text))
    return lines


def _changes(planning: CachePlanning, offer: Offer) -> list[tuple[str, str]]:
    """Return what would change the choice."""
    lines = []
    if offer.share < 1 and offer.kept_bytes >= 0.99 * offer.place.budget_bytes:
        option = "--ram" if offer.place.kind == RAM else "--disk"
        lines.append(
            ("more room", f"all samples take {size(offer.whole_bytes)}; {option} gives more")
        )
    if offer.cut.number < len(planning.cuts) - 1:
        following = planning.cuts[offer.cut.number + 1]
        if following.draws:
            text = f"{following.name} draws random numbers: the operations after it run every time"
            lines.append(("limit", text))
    return lines


def _span(interval: Interval) -> str:
    mean, low, high = (duration(value) for value in (interval.mean, interval.low, interval.high))
    return f"{mean} ({low} to {high})"
