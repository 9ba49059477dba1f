"""Table cells that are shown grey because their values are unreliable."""


class GreyCell(str):
    """The text of a cell; a page shows `why` when the pointer is on the cell."""

    why: str

    def __new__(cls, text: str, why: str) -> "GreyCell":
        """Make a cell; `why` is a few words."""
        cell = super().__new__(cls, text)
        cell.why = why
        return cell
