"""Writes the table in docs/causes.md from that of the causes, in lotus/analysis/verdict/causes/.

    python tools/causes.py

A test fails if the page is not as this tool writes it.
"""

from pathlib import Path

from lotus.analysis.verdict.causes import CAUSES
from lotus.analysis.verdict.causes.explanations import EXPLANATIONS

PAGE = Path(__file__).parents[1] / "docs" / "causes.md"
_TITLES = "cause", "measured from", "ruled out when", "what to try", "how to test it"


def page(text: str) -> str:
    """Return the text of the page, whose last part is the table, with the table as it is now."""
    rows = [f"| {' | '.join(_TITLES)} |\n", "|---" * len(_TITLES) + "|\n"]
    before = text.partition(rows[0])[0]
    for kind in dict.fromkeys(row.kind for row in CAUSES):
        each = EXPLANATIONS[kind]
        cells = (
            f"`{kind}`: {each.meaning}",
            each.measured,
            each.ruled_out,
            each.advice,
            each.test,
        )
        rows.append(f"| {' | '.join(cells)} |\n")
    return before + "".join(rows)


def main() -> None:
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
