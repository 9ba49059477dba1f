"""Several files of settings as one: the results of lotus tune, advise and plan for a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lotus.common.errors import LotusError
from lotus.settings.tuned_file import Entry, Target, Tuned


def combined(documents: Mapping[Path, Tuned]) -> Tuned:
    """Return one document whose entries are those of all files, one for each loader.

    Of the files with an entry for a loader, one may change its settings, one may cache samples, and
    they may have alternatives. Raises LotusError where two files change the same thing.
    """
    entries: list[tuple[Path, Entry]] = []
    for path, document in documents.items():
        earlier_files = len(entries)
        for entry in document.loaders:
            places = (
                place
                for place, (_, each) in enumerate(entries[:earlier_files])
                if _is_same(each.loader, entry.loader)
            )
            place = next(places, None)
            if place is None:
                entries.append((path, entry))
            else:
                first, earlier = entries[place]
                entries[place] = first, _joined(first, earlier, path, entry)
    first_document = next(iter(documents.values()), Tuned(()))
    return replace(first_document, loaders=tuple(entry for _, entry in entries))


def _is_same(one: Target, other: Target) -> bool:
    """Return True if two files mean the same loader: no field that both have differs."""
    if one.call_site is None or other.call_site is None:
        return one == other
    fields = ("number", "call_site", "dataset", "sampler")
    pairs = [(getattr(one, name), getattr(other, name)) for name in fields]
    return all(a == b for a, b in pairs if a is not None and b is not None)


def _joined(first: Path, one: Entry, second: Path, other: Entry) -> Entry:
    def refuse(what: str) -> LotusError:
        return LotusError(
            f"{first} and {second} both {what} {one.loader.words()}; apply one of them"
        )

    if _changes_setting(one) and _changes_setting(other) and one.setting != other.setting:
        raise refuse("change the setting of")
    if one.cache is not None and other.cache is not None and one.cache != other.cache:
        raise refuse("cache samples of")
    cache = one.cache or other.cache
    alternatives = tuple(dict.fromkeys((*one.alternatives, *other.alternatives)))
    source = other if _changes_setting(other) else one
    return replace(source, cache=cache, alternatives=alternatives)


def _changes_setting(entry: Entry) -> bool:
    """Return True if a file changes how the loader runs, not only how its samples are made."""
    return entry.before is None or entry.setting.normal() != entry.before.normal()
