"""Crops and resizes that come after other operations, which could do less work after them."""

import re
from collections.abc import Container

import pandas as pd

from lotus.analysis.common.columns import int_column
from lotus.analysis.common.scope import Scope

# Names of transforms of the usual libraries, after which a picture mostly has fewer pixels.
_CROP = re.compile(r"Crop|Resize|SmallestMaxSize|LongestMaxSize|Thumbnail|Downs(?:ampl|cal)", re.I)


def later_crops(scope: Scope) -> dict[str, str]:
    """Return the first crop or resize behind each operation in its `Compose`, by its name.

    Operations have none that are crops themselves, or whose place is not the same in all data sets.
    """
    return crops_by_order(scope.operations, set(scope.calls.outermost))


def crops_by_order(operations: pd.DataFrame, called: Container[str]) -> dict[str, str]:
    """Return the same from `Run.operations`, for the operations in `called`."""
    if not len(operations):
        return {}
    operations = operations[(operations["kind"] == "transform").to_numpy()]  # not decoding
    names, parents = operations["operation"].astype(str), operations["parent"].astype(str)
    places: dict[str, set[int]] = {}
    for name, parent, index in zip(names, parents, int_column(operations, "index"), strict=True):
        if not parent and name in called:
            places.setdefault(name, set()).add(int(index))
    rows: dict[str, list[tuple[int, str]]] = {}  # of one attribute each: `t:Resize` is of `t`
    for name, indices in places.items():
        if len(indices) == 1:
            rows.setdefault(name.rpartition(":")[0], []).append((min(indices), name))
    found = {}
    for row in rows.values():
        crop = ""
        for _, name in sorted(row, reverse=True):
            if _CROP.search(name.rpartition(":")[2]):
                crop = name
            elif crop:
                found[name] = crop
    return found
