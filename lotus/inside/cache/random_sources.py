"""The random generators that every sample may draw from: those of Python, numpy and torch."""

from __future__ import annotations

import random
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

NAMES = ("python", "numpy", "torch")


def states(names: Collection[str] = NAMES) -> dict[str, Any]:
    """Return the state of each generator in `names` that there is, by its name."""
    by_name: dict[str, Any] = {}
    if "python" in names:
        by_name["python"] = random.getstate()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and "numpy" in names:
        name, keys, *rest = numpy.random.get_state()
        by_name["numpy"] = (name, keys.tobytes(), *rest)
    if torch is not None and "torch" in names:
        by_name["torch"] = torch.get_rng_state().numpy().tobytes()
    return by_name


def drawn(before: dict[str, Any]) -> set[str]:
    """Return the names of the generators that were drawn from since `before`."""
    now = states(before)
    return {name for name, state in before.items() if now[name] != state}


class RandomSources:
    """The program's generators; `put_back` gives those in `names` their first states again."""

    def __init__(self, names: Collection[str] = NAMES) -> None:
        self._own = states(names)

    def drawn(self) -> set[str]:
        """Return the names of the generators that were drawn from since then."""
        return drawn(self._own)

    def seed(self, seed: int) -> dict[str, Any]:
        """Seed all generators; return their states."""
        random.seed(seed)
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None:
            numpy.random.seed(seed)
        if torch is not None:
            torch.default_generator.manual_seed(seed)  # those of accelerators stay as they are
        return states()

    def put_back(self) -> None:
        """Give each generator the state that it had when this object was made."""
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if "python" in self._own:
            random.setstate(self._own["python"])
        if numpy is not None and "numpy" in self._own:
            name, keys, *rest = self._own["numpy"]
            numpy.random.set_state((name, numpy.frombuffer(keys, numpy.uint32), *rest))
        if torch is not None and "torch" in self._own:
            state = bytearray(self._own["torch"])
            torch.set_rng_state(torch.frombuffer(state, dtype=torch.uint8))
