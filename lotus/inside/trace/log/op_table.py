"""Numbers the operations of this process, and tracks which of them are in the log."""

from __future__ import annotations

import itertools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

_MOST_OPERATIONS = 10_000  # limit for programs that name spans after their data
_REST = ("(other)", 0, 0, "span")
_LONGEST = 1000  # characters of a name


class Definitions:
    """Operations by their ids, which count from 1. Any thread may define one at any time."""

    def __init__(self) -> None:
        self._operations: list[dict[str, object]] = []
        self._by_id: dict[int, dict[str, object]] = {}
        self._numbers = itertools.count(1)
        self._ids: dict[tuple[str, int, int, str], int] = {}
        self._written = 0
        # By class of transforms that apply others by name: the operation that one is, its name.
        self.augmenters: dict[str, tuple[int, str]] = {}

    def define(self, name: str, parent: int = 0, index: int = 0, kind: str = "transform") -> int:
        """Return the id of an operation, the same one for the same description."""
        key = (name[:_LONGEST], parent, index, kind)
        operation_id = self._ids.get(key)
        if operation_id is None and len(self._operations) >= _MOST_OPERATIONS:
            key = _REST
            operation_id = self._ids.get(key)
        if operation_id is None:
            name, parent, index, kind = key
            number = next(self._numbers)
            operation: dict[str, object] = {
                "id": number, "name": name, "parent": parent, "index": index, "kind": kind,
            }  # fmt: skip
            self._by_id[number] = operation
            self._operations.append(operation)
            # It is complete before another thread can see it; the first thread assigns the number.
            operation_id = self._ids.setdefault(key, number)
        return operation_id

    def locate(self, number: int, code: CodeType) -> None:
        """Record the file and lines of the code of an operation."""
        operation = self._by_id[number]
        if "file" not in operation and number <= _MOST_OPERATIONS:
            lines = [line for _, _, line in code.co_lines() if line]
            operation["file"], operation["first"] = code.co_filename, code.co_firstlineno
            operation["last"] = max(lines, default=code.co_firstlineno)

    def name_function(self, number: int, function: str) -> None:
        """Record the function that an operation calls, if its name does not tell."""
        operation = self._by_id[number]
        several = operation.get("function", function) != function
        operation["function"] = "loader" if several else function

    def shown_name(self, number: int) -> str:
        """Return the display name of an operation."""
        operation = self._by_id[number]
        if operation["kind"] == "loader":
            return f"decode ({operation.get('function', 'loader')})"
        return str(operation["name"])

    def unwritten(self) -> list[dict[str, object]]:
        """Return operations that are not yet in the log, and count them as written from now on."""
        count = len(self._operations)
        if count == self._written:
            return []
        first, self._written = self._written, count
        return self._operations[first:count]

    def forget_written(self) -> None:
        """Define all operations again, as the log may have none of them."""
        self._written = 0
