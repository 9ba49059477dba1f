"""The titles by which a person recognises a loader: its name, if known, and its place."""

from collections.abc import Mapping
from typing import Any


def title_of(loader: Mapping[str, Any], iterated: bool = True) -> str:
    """Return the title of a loader of these parameters; "" if they do not tell what it is.

    As "train_loader (train.py:88, iterated at engine.py:12)", or by its data set's class where
    the program has no name for it. `iterated`: say also where it is iterated.
    """
    keys = ("name", "dataset", "call_site", "iterated_at")
    name, dataset, built, used = (str(loader.get(key) or "") for key in keys)
    where = built + (f", iterated at {used}" if iterated and used not in ("", built) else "")
    if name:
        return f"{name} ({where})" if where else name
    return " at ".join(part for part in (dataset, where) if part)
