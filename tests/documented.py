"""The commands of lotus that the documentation and the help show, for tests that try them."""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lotus import cli

ROOT = Path(__file__).parents[1]
# Made by `make docs`, from the commands' help and from docstrings.
_MADE = ("commands", "reference")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(each for each in (ROOT / "docs").rglob("*.md") if each.parent.name not in _MADE),
]
PARSER = cli.parser()
_SUBPARSERS: Any = PARSER._subparsers
VERBS: dict[str, argparse.ArgumentParser] = _SUBPARSERS._group_actions[0].choices


def typed(page: Path) -> list[str]:
    """What a page shows to be typed: the lines of code blocks that begin with `lotus`, and whole
    commands in the text."""
    text = page.read_text("utf-8")
    blocks = re.findall(r"^ {4,}((?:[A-Z_]+=\S+ )*lotus .*)$", text, re.M)
    inline = re.findall(r"`((?:[A-Z_]+=\S+ )*lotus [^`\n]*(?: -- | my-run)[^`\n]*)`", text)
    return [line for line in [*blocks, *inline] if not re.match(r"lotus [\w ]+:", line)]


def examples(verb: str) -> list[str]:
    """The lines under "examples:" of a verb's help; what they show is indented further."""
    _, _, rest = str(VERBS[verb].epilog).partition("examples:\n")
    section = rest.partition("\n\n")[0]
    return [line.strip() for line in section.splitlines() if re.match(r"  \S", line)]


def commands(line: str) -> Iterator[list[str]]:
    """The commands of lotus in a shell's line, each as its verb and its arguments.

    One that another command starts, as in `lotus run -- lotus trace -- ...`, is part of that.
    """
    words: list[str] = []
    split = shlex.shlex(line, posix=True, punctuation_chars=True)
    split.whitespace_split = True
    for word in [*split, ";"]:
        if set(word) <= set(";|&><"):
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):  # a variable of its environment
                del words[0]
            if words[:1] == ["lotus"]:
                size = 2 if " ".join(words[1:3]) in VERBS else 1
                yield [" ".join(words[1 : 1 + size]), *words[1 + size :]]
            words = []
        else:
            words.append(word)
