"""Counts of the places at which threads were found blocked: directories, and peers of sockets."""

from collections import Counter

# A data set may have a million files in thousands of directories.
MOST = 1000
_LARGEST = MOST // 4  # that are kept as they are where there are too many
_AFTER = MOST // 2
# pid, operation, reason and directory, which ends in "/", or instead of it a socket's peer
Where = tuple[int, int, str, str]


class PlaceCounts:
    """At most MOST counts. `elsewhere`: looks at places for which `rows` had no room.

    Where there are too many, rare directories are counted as the one that they are in: a data set
    often has a directory for each class.
    """

    def __init__(self) -> None:
        self.elsewhere = 0
        self._new: dict[Where, int] = {}  # with a whole path; taken apart later, many at a time
        self._counts: Counter[Where] = Counter()
        self._files: dict[str, str] = {}  # by directory: the only one that was met there, or ""

    def add(self, pid: int, operation: int, reason: str, place: str) -> None:
        """Count a look at a path (that of a directory ends in "/") or at a peer."""
        where = pid, operation, reason, place
        self._new[where] = self._new.get(where, 0) + 1
        if len(self._new) >= MOST:
            self._take_apart()

    def rows(self) -> list[tuple[Where, str, int]]:
        """Return where, the place and how many looks, the most frequent first."""
        self._take_apart()
        return [
            (where, where[3] + self._files.get(where[3], ""), looks)
            for where, looks in self._counts.most_common()
        ]

    def _take_apart(self) -> None:
        for (pid, operation, reason, place), looks in self._new.items():
            above, slash, name = place.rpartition("/")
            directory = above + slash if slash else place
            self._counts[pid, operation, reason, directory] += looks
            if slash and self._files.setdefault(directory, name) != name:
                self._files[directory] = ""
        self._new.clear()
        if len(self._counts) > MOST:
            self._make_room()

    def _make_room(self) -> None:
        ordered = self._counts.most_common()
        kept, rest = Counter(dict(ordered[:_LARGEST])), Counter(dict(ordered[_LARGEST:]))
        while rest and len(kept) + len(rest) > _AFTER:
            rest = self._one_above(rest)
        self._counts = kept + rest
        named = {directory for *_, directory in self._counts}
        self._files = {each: name for each, name in self._files.items() if each in named}

    def _one_above(self, counts: Counter[Where]) -> Counter[Where]:
        """Return the counts of the directories above; what has none is counted elsewhere."""
        result: Counter[Where] = Counter()
        for (pid, operation, reason, directory), looks in counts.items():
            above, slash, _ = directory.rstrip("/").rpartition("/")
            if above and directory.endswith("/"):
                self._files[above + slash] = ""
                result[pid, operation, reason, above + slash] += looks
            else:
                self.elsewhere += looks
        return result
