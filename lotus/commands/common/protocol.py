"""The protocol of a verb: what each file of lotus/commands/ defines."""

import argparse
from typing import Protocol


class Command(Protocol):
    """A module of lotus/commands/.

    The file is named after the verb, with "_" between two words. Importing it, and `add_arguments`,
    import nothing heavy: `lotus --help` does both for every verb.
    """

    @property
    def NAME(self) -> str:
        """The verb, as typed."""

    @property
    def HELP(self) -> str:
        """One line for the overview."""

    @property
    def EPILOG(self) -> str:
        """The rest of the help: examples, what is written, exit codes, related verbs."""

    @property
    def add_arguments(self) -> "AddArguments":
        """Add the options of the verb to its parser."""

    @property
    def run(self) -> "RunCommand":
        """Run the verb and return the exit code. Raises LotusError with one line for the user."""


class AddArguments(Protocol):
    """The type of `add_arguments`."""

    def __call__(self, parser: argparse.ArgumentParser) -> None: ...


class RunCommand(Protocol):
    """The type of `run`."""

    def __call__(self, args: argparse.Namespace) -> int: ...
