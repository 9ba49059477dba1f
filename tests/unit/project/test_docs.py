"""Documentation: links resolve, commands can be typed, README and CONTRIBUTING stay short."""

import re
import shlex
from pathlib import Path
from urllib.parse import unquote

import pytest

from lotus import cli
from tests import documented
from tests.documented import PAGES, ROOT
from tests.unit.benches import bench

README = ROOT / "README.md"
# `[text](target)`, also of a picture; code is left out before.
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)
# Pages that others link to, and the records behind them.
LINKING = [
    *PAGES,
    *sorted((ROOT / "tools" / "bench").rglob("*.md")),
    *sorted((ROOT / "tests").rglob("*.md")),
]
MOST_WORDS = {"README.md": 900, "CONTRIBUTING.md": 700}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: Path) -> list[str]:
    return LINK.findall(CODE.sub("", page.read_text("utf-8")))


def anchors(page: Path) -> set[str]:
    """The fragments by which GitHub reaches the page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_relative_links_resolve(page: Path) -> None:
    broken = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = unquote(link).partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    named = re.findall(r"`((?:lotus|native_map|tests|tools|traces|notebooks)/[\w./-]*)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", MOST_WORDS)
def test_it_is_short_enough_to_be_read(name: str) -> None:
    assert len((ROOT / name).read_text("utf-8").split()) <= MOST_WORDS[name]


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in links(index)}
    assert set((ROOT / "docs").glob("*.md")) - {index} <= listed


def test_the_readme_lists_every_command() -> None:
    listed = re.findall(r"^\| `([a-z]+)` \|", README.read_text("utf-8"), re.M)
    assert len(listed) == len(set(listed))
    assert set(listed) == {name.partition("_")[0] for name in cli._names()}


def test_the_newcomers_tool_finds_its_commands_in_the_readme() -> None:
    steps = bench("speed.newcomer").steps(README.read_text("utf-8"))
    assert [shlex.split(step)[:2] for step in steps] == [
        ["pip", "install"],
        *(["lotus", verb] for verb in ("doctor", "trace", "report", "report", "tune", "run")),
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_can_be_typed(page: Path) -> None:
    for line in documented.typed(page):
        for words in documented.commands(line.replace("...", "command")):
            documented.PARSER.parse_args(words)  # ends the test where it is refused
