"""LICENSES.md names all that lotus needs, with what the installed packages say of themselves."""

import importlib.metadata
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "LICENSES.md").read_text()
LISTED = {
    name: licence
    for names, licence in re.findall(r"^\| ([a-z][\w, -]*?) \| (.*?) \|", TEXT, re.MULTILINE)
    for name in names.split(", ")
    if name != "package"
}


def needed():
    """The packages in pyproject.toml that a user installs."""
    text = (ROOT / "pyproject.toml").read_text()
    always = re.search(r"^dependencies = (\[.*?\])$", text, re.MULTILINE | re.DOTALL)
    extras = re.findall(r"^(dask|demo|notebooks|parquet|perf) = (\[.*?\])$", text, re.MULTILINE)
    assert len(extras) == 5
    lists = [always[1], *(names for _, names in extras)]
    return {name for text in lists for name in re.findall(r'"([a-z][\w-]*)', text)}


def test_every_dependency_is_listed():
    assert needed() <= set(LISTED)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_the_licence_is_that_of_the_installed_package(name):
    try:
        metadata = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    kinds = metadata.get_all("Classifier") or []
    words = " ".join(
        [metadata.get("License-Expression") or "", (metadata.get("License") or "")[:100], *kinds]
    )
    family = {
        "BSD": "BSD",
        "MPL": "MPL|Mozilla",
        "MIT": "MIT",
        "Apache": "Apache",
        "a licence": "matplotlib|Python",
    }
    expected = next(pattern for start, pattern in family.items() if LISTED[name].startswith(start))
    if not re.search("BSD|MIT|MPL|Mozilla|Apache|matplotlib|Python Software", words):
        pytest.skip(f"{name} does not tell its licence")
    assert re.search(expected, words, re.IGNORECASE), words
