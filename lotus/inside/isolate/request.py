"""What lotus asked to be isolated, and how."""

from __future__ import annotations

import json


class Settings:
    """What lotus asked for: JSON in LOTUS_ISOLATE."""

    def __init__(self, text: str) -> None:
        asked = json.loads(text)
        self.exchange: str = asked["exchange"]  # folder of the pipes `ready` and `go`
        self.samples: int = asked["samples"]
        self.runs: int = asked["runs"]
        self.needed: int = asked["needed"]  # calls until a short function is caught
        self.gap_ns: int = asked["gap_ns"]
        self.budget_ns: int = asked["budget_ns"]  # for each operation
        self.loader: int | None = asked["loader"]  # by first `iter()`; None: the largest
