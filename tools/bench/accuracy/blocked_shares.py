"""Compares the share of its time in which a thread was blocked by looks with that by CPU clocks.

    PYTHONPATH=. python tools/bench/accuracy/blocked_shares.py RUN ...

Of the making of batches, of `next` and of the training step, each with 20 looks or more, of each
run's first loader. Printed are how many 95 % intervals hold what the clocks say, with the number of
looks that the report takes for independent and with other numbers, and where they do not.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import lotus
from lotus.analysis.common.remade_loaders import merged
from lotus.analysis.common.scope import scopes
from lotus.analysis.observations import looked_parts
from lotus.analysis.observations.blocked_time import LEAST_LOOKS
from lotus.analysis.observations.looks import COMPUTING, NEXT, STEP
from lotus.common.errors import LotusError
from lotus.common.numbers.statistics import wilson
from tools.bench import provenance


class Compared(NamedTuple):
    name: str
    looks: int
    share: float  # by looks
    clocks: float

    def is_held(self, worth: float) -> bool:
        """Return whether the interval holds it, if a look is worth so many independent ones."""
        low, high = wilson(self.share, self.looks * worth)
        return low <= self.clocks <= high


def compared(path: Path) -> Iterator[Compared]:
    run = merged(lotus.load(path))
    for scope in scopes(run)[:1]:
        made, used = looked_parts.making(run, scope), looked_parts.loop(run, scope)
        for name, part, operations in (
            ("making", made, list(made.counts)),
            ("next", used, [NEXT]),
            ("step", used, [STEP]),
        ):
            states = [part.counts.get(operation, {}) for operation in operations]
            looks = sum(sum(each.values()) for each in states)
            clocks = [part.clocks.get(operation, float("nan")) for operation in operations]
            known = [clock for clock in clocks if clock >= 0]
            if looks >= LEAST_LOOKS and known and not part.elsewhere:
                blocked = looks - sum(each.get(COMPUTING, 0) for each in states)
                yield Compared(f"{path.name} {name}", looks, blocked / looks, known[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    rows = []
    for path in parser.parse_args().runs:
        try:
            rows += compared(path)
        except LotusError as error:
            print(f"{path}: {error}", file=sys.stderr)
    print(provenance.header())
    for worth in (1.0, 0.5, 1 / 3):
        held = sum(row.is_held(worth) for row in rows)
        print(f"a look counts as {worth:.2f}: {held} of {len(rows)} intervals hold it")
    for row in rows:
        if not row.is_held(0.5):
            print(f"  {row.name}: {row.looks} looks, {row.share:.1%}; clocks {row.clocks:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
