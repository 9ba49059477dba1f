"""Imports profiles of other tools, without times and threads, as tables of functions."""

from pathlib import Path

from native_map.errors import UnusableError
from native_map.paper import perf_report, uprof, vtune
from native_map.paper.function_counts import Profile, read_text

__all__ = ["Profile", "load", "loads"]


def load(path: str | Path) -> Profile:
    """Read an export of VTune, AMD uProf or `perf report`, recognised by its content."""
    return loads(read_text(path), str(path))


def loads(text: str, source: str = "the export") -> Profile:
    """Read the same from a text. Raises UnusableError if no importer recognises it."""
    if uprof.detect(text):
        return uprof.parse(text, source)
    if perf_report.detect(text):
        return perf_report.parse(text, source)
    if vtune.detect(text):
        return vtune.parse(text, source)
    raise UnusableError(
        f"{source} is none of VTune's function CSV, uProf's report CSV and perf report's text; "
        "type: perf report --stdio -n > report.txt"
    )
