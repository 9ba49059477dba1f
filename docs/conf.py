"""Builds the documentation as a site: `make docs`.

Sphinx with the theme furo, as memray and pyinstrument have it: it documents the Python interface
from its docstrings, and a link that leads nowhere ends the build. The pages are plain Markdown
(MyST), to be read in the source as well; those of the commands are made from their help.
"""

import argparse
import os
import re
import textwrap
from pathlib import Path
from typing import Any

os.environ["COLUMNS"] = "90"  # of the commands' help

from lotus import cli

DOCS = Path(__file__).parent

project = "lotus"
root_doc = "README"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
smartquotes_action = "qe"  # not dashes: an option is written --perf
html_theme = "furo"
html_title = "lotus"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "none"
default_role = "code"  # `name` in docstrings

_SECTION = re.compile(r"^## ([A-Z][\w ]+)\n\n((?:- .+\n(?:  .+\n)*)+)", re.M)
_PAGE = re.compile(r"\]\(([\w/-]+)\.md\)")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([\w/]+\.md)(?:#[\w-]+)?\)")
# A list of names, each with its meaning beside it, as docstrings have them.
_LIST = re.compile(r"[\w`().*,]+ {2,}\S")
_REFERENCE = {
    "Recording and reading": ["lotus.load", "lotus.trace", "lotus.span", "lotus.Run"],
    "Sweeps": ["lotus.Sweep"],
    "Tuning": ["lotus.tune.Result"],
}


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", keep_lists)


def write_pages(app: Any) -> None:
    """Write the pages that are made from the code: commands/ and reference/."""
    verbs = next(
        action for action in cli.parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    for name, verb in verbs.choices.items():
        text = f"# lotus {name}\n\n```text\n{verb.format_help().rstrip()}\n```\n"
        _write(f"commands/{name.replace(' ', '-')}.md", text)
    for title, names in _REFERENCE.items():
        parts = "\n".join(map(_documented, names))
        text = f"# {title}\n\n```{{eval-rst}}\n{parts}\n```\n"
        _write(f"reference/{title.lower().replace(' ', '-')}.md", text)


def add_navigation(app: Any, name: str, source: list[str]) -> None:
    """Make the lists of the first page the contents of the site, and those of a folder its own."""
    # Pages outside docs/ are not part of the site.
    source[0] = _OUTSIDE.sub(r"\1 (`\2` in the source of lotus)", source[0])
    if name == root_doc:
        for caption, links in _SECTION.findall(source[0]):
            source[0] += _contents(_PAGE.findall(links), caption)
        source[0] += _contents(["commands/*"], "Commands")
        source[0] += _contents(["reference/*"], "Reference")
    elif name.endswith("/README"):
        source[0] += _contents(_PAGE.findall(source[0]) or ["*"])


def keep_lists(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Show the lists of names in docstrings as they are written."""
    paragraphs = "\n".join(lines).split("\n\n")
    for place, text in enumerate(paragraphs):
        if _LIST.match(text):
            paragraphs[place] = ".. code-block:: text\n\n" + textwrap.indent(text, "    ")
    lines[:] = "\n\n".join(paragraphs).split("\n")


def _contents(pages: list[str], caption: str = "") -> str:
    options = f":hidden:\n:glob:\n:caption: {caption}\n" if caption else ":hidden:\n:glob:\n"
    listed = "\n".join(pages)
    return f"\n```{{toctree}}\n{options}\n{listed}\n```\n"


def _documented(name: str) -> str:
    is_class = name.rpartition(".")[2][0].isupper()
    if not is_class:
        return f".. autofunction:: {name}\n"
    # Also of its own base classes, but none of what all errors have.
    return f".. autoclass:: {name}\n   :members:\n   :inherited-members: Exception\n"


def _write(name: str, text: str) -> None:
    file = DOCS / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, "utf-8")
