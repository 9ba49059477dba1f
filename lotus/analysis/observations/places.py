"""The places at which threads were blocked: the one that most looks tell."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from lotus.analysis.common.columns import int_column
from lotus.common.text.formatting import plain, share

LEAST_LOOKS = 3  # at places: fewer do not tell one
MOST = 0.5  # of the looks
_DEEPEST = 64  # directories within each other; a damaged record may tell any


@dataclass(frozen=True)
class BlockedPlace:
    """`name`: a file, a directory (with "/" at its end) or a peer (address:port).

    `share`: of all looks with this reason, 0 to 1, also of those whose place is not known.
    `file_system`: its type; "" if not known, or for a peer.
    """

    reason: str
    name: str
    file_system: str
    share: float

    @property
    def words(self) -> str:
        """The place as it is shown, such as "/data/train/ (ext4)"."""
        kind = f" ({self.file_system})" if self.file_system else ""
        return plain(self.name + kind)

    def __str__(self) -> str:
        return f"{share(self.share)} at {self.words}"


def most_frequent(
    places: pd.DataFrame, operation: str, reason: str, looks: float
) -> BlockedPlace | None:
    """Return where threads in an operation were blocked most often for this reason.

    `places`: as `Run.places`. `looks`: how many found this reason. None: not known. Where no
    place has most of the looks, the deepest directory in which most of them were is taken: a data
    set often has a directory for each class.
    """
    if not len(places):
        return None
    mine = places[(places["operation"] == operation) & (places["reason"] == reason)]
    at: Counter[str] = Counter()
    within: Counter[str] = Counter()
    kinds: dict[str, set[str]] = {}
    for name, kind, count in zip(
        mine["place"], mine["file_system"], int_column(mine, "looks").tolist(), strict=True
    ):
        at[name] += count
        for place in (name, *_above(name)):
            within[place] += count
            kinds.setdefault(place, set()).add(kind)
    if at.total() < LEAST_LOOKS:
        return None
    found = max(at, key=lambda place: (at[place], place))
    if within[found] < MOST * at.total():
        large = (place for place, count in within.items() if count >= MOST * at.total())
        found = max(large, key=lambda place: (place.count("/"), place), default=found)
    kind = next(iter(kinds[found])) if len(kinds[found]) == 1 else ""
    return BlockedPlace(reason, found, kind, min(within[found] / max(looks, 1.0), 1.0))


def _above(name: str) -> Iterator[str]:
    """Yield the directories that a path is in, without the root."""
    parts = name.rstrip("/").split("/")[:_DEEPEST]
    if name.startswith("/"):
        for end in range(len(parts) - 1, 1, -1):
            yield "/".join(parts[:end]) + "/"
