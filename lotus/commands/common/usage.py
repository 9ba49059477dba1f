"""The parser of the command line: its errors are one line that ends with a command to type."""

import argparse
import difflib
import re
from typing import NoReturn

_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)$", re.DOTALL)


class UsageParser(argparse.ArgumentParser):
    """argparse's parser; an error is followed by an example of the verb, not by its usage."""

    def error(self, message: str) -> NoReturn:
        option = re.search(r"--[a-z][\w-]+", message)
        example = self._example(option[0] if option else "")
        text = f"{self.prog}: {_with_near(message)}"
        text += f"; try: {example}" if example else f"; `{self.prog} --help` shows what it takes"
        self.exit(2, text.replace("\n", "\\n") + "\n")

    def _example(self, option: str) -> str:
        """Return the first example with this option, else the first; "" if there is none."""
        lines = [line.strip() for line in (self.epilog or "").splitlines()]
        lines = [line for line in lines if line.startswith(f"{self.prog} ") and "`" not in line]
        having = [line for line in lines if option and option in line.split()]
        return re.split(" {3,}", next(iter([*having, *lines]), ""))[0]


def _with_near(message: str) -> str:
    """Return the message, with the choice that is nearly the same."""
    found = _CHOICE.search(message)
    if found is None:
        return message
    choices = [choice.strip().strip("'") for choice in found[2].split(",")]
    near = difflib.get_close_matches(found[1], choices, n=1)
    return f"{message} (did you mean {near[0]}?)" if near else message
