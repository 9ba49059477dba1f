"""Operations of two sides are paired in time that grows with their number, not its square."""

import pandas as pd

from lotus.compare.pairing import PairedOperations, SideOperations


class Name(str):
    """A name that counts how often any is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = str.__hash__


def side(count: int) -> SideOperations:
    names = [f"Op{number}" for number in range(count)]
    keys = pd.MultiIndex.from_tuples([("", name) for name in names])
    counted = [("operation", Name(name)) for name in names]
    return SideOperations(pd.Series(1.0, index=keys), counted, ["cycles"])


def test_counted_operations_are_not_each_compared_with_each() -> None:
    Name.compared = 0
    paired = PairedOperations(side(1000), side(1000), "AB", [])
    assert len(paired.wanted[0].counted) == 60
    assert Name.compared < 20 * 1000
