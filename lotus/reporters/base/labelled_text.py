"""Paragraphs that begin with a label."""


class LabelledText(str):
    """A paragraph `label: words`; a page shows the label in bold, and a command as code."""

    label: str
    is_command: bool

    def __new__(cls, label: str, words: str, is_command: bool = False) -> "LabelledText":
        """Make a paragraph."""
        text = super().__new__(cls, f"{label}: {words}")
        text.label, text.is_command = label, is_command
        return text

    @property
    def words(self) -> str:
        """What follows the label."""
        return self.removeprefix(f"{self.label}: ")
