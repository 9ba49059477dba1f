"""Cells of tables that are shown grey, because what they say is not to trust."""


class GreyCell(str):
    """The text of a cell; `why` stands on the page where the cell is pointed at."""

    why: str

    def __new__(cls, text: str, why: str) -> "GreyCell":
        """`why`: a few words."""
        cell = super().__new__(cls, text)
        cell.why = why
        return cell
