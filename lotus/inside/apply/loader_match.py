"""Matches loaders to entries of the settings by place, class, sampler and length.

An entry matches if all its facts are true of the loader. If only the length of the data set
differs, the data set has grown, or the settings were tuned on a part of it. The exception is a
place where the program makes loaders of several lengths, such as a function that is used for
training and validation: there the length distinguishes them. The number of lengths is only known
when a loader is iterated, not yet when it is made.
"""

from ..common.loaders import loader_description

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

NAMES = ("call_site", "dataset", "sampler")
FACTS = (*NAMES, "dataset_length")  # the length may take time to compute


class Matching:
    """The entries of the settings, as dicts, and the lengths of loaders that may match them.

    There is one for each process.
    """

    def __init__(self, entries: "list[dict[str, Any]]") -> None:
        self.entries = entries
        self.lengths: dict[int, list[Any]] = {}  # by entry: lengths of the loaders with its names

    def made(self, loader: "Any", *sites: str) -> int | None:
        """Return the first entry that matches a loader which is being made.

        Its place may be any of `sites`.
        """
        return self._first(loader, sites, self.lengths)

    def exact(self, loader: "Any", *sites: str) -> int | None:
        """Return the first entry that matches a loader which was made earlier."""
        return self._first(loader, sites, {})

    def _first(
        self, loader: "Any", sites: "tuple[str, ...]", lengths: "dict[int, list[Any]]"
    ) -> int | None:
        facts = _names(loader, sites)
        first = None
        for index, entry in enumerate(self.entries):
            target = entry["loader"]
            if target.get("every") is True:
                return index if first is None else first
            names = [name for name in FACTS if target.get(name) is not None]
            if not names or not _fits(facts, target, [name for name in names if name in NAMES]):
                continue
            if "dataset_length" in names:
                length = facts.setdefault("dataset_length", loader_description.length(loader))
                if _tell_by_names(target) and length not in lengths.setdefault(index, []):
                    lengths[index].append(length)
                if length != target["dataset_length"]:
                    continue
            first = index if first is None else first
        return first

    def iterated(self, loader: "Any", site: str) -> tuple[int | None, str]:
        """Return (the entry that matches a loader except for its length, a message about that).

        The entry is None if there is none, or if there are several, which the message then says.
        """
        facts = _names(loader, (site,))
        matches = [
            index
            for index, entry in enumerate(self.entries)
            if _tell_by_names(entry["loader"]) and _fits(facts, entry["loader"], NAMES)
        ]
        if not matches:
            return None, ""
        lengths = self.lengths.get(matches[0], [])
        before = [self.entries[index]["loader"]["dataset_length"] for index in matches]
        # Loaders whose length matches got their setting when they were made.
        free = [
            index for index, length in zip(matches, before, strict=True) if length not in lengths
        ]
        others = [length for length in lengths if length not in before]
        if not free or not others:
            return None, ""
        words = loader_description.words(loader, site)
        samples = f"{_listed([length for length in before if length not in lengths])} samples"
        if len(free) == len(others) == 1:
            return free[0], f"{words} gets the setting that was found on {samples}"
        return None, (
            f"{words} keeps its own settings: loaders of {_listed(others)} samples are made there, "
            f"the settings were found on {samples}, and only the length tells which is meant; find "
            "them again with: lotus tune -f -- COMMAND"
        )


def _names(loader: "Any", sites: "tuple[str, ...]") -> "dict[str, Any]":
    facts: dict[str, Any] = {"call_site": sites, "dataset": type(loader.dataset).__name__}
    facts["sampler"] = loader_description.sampler(loader)
    return facts


def _fits(facts: "dict[str, Any]", target: "dict[str, Any]", names: "Iterable[str]") -> bool:
    """Return whether these facts of an entry are true; the place may be any of several."""
    return all(
        target[name] in facts[name] if name == "call_site" else target[name] == facts[name]
        for name in names
    )


def _tell_by_names(target: "dict[str, Any]") -> bool:
    """Return whether an entry has all names, and a length."""
    return all(target.get(name) is not None for name in FACTS)


def _listed(lengths: "list[Any]") -> str:
    shown = [str(length) for length in lengths[:4]]
    return ", ".join(shown[:-1]) + (" and " if shown[1:] else "") + shown[-1]
