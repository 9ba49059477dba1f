"""Finds the program that a command runs, behind interpreters and launchers."""

import contextlib
import os
import re
import shlex
from collections.abc import Sequence

from lotus.common.rank_launchers import LAUNCHERS


def program_of(command: Sequence[str]) -> str:
    """Return the script or module that a command runs, without launcher and arguments."""
    if os.path.basename(command[0]) == "lotus" and "--" in command[:-1]:  # as lotus trace
        command = command[list(command).index("--") + 1 :]
    if os.path.basename(command[0]) in ("sh", "bash", "dash", "zsh") and "-c" in command[:-1]:
        at = list(command).index("-c") + 1
        with contextlib.suppress(ValueError):  # quotes that do not end
            inner = [*shlex.split(command[at]), *command[at + 1 :]]
            command = [word for word in inner if word != "exec"] or command
    if command[0] in ("-m", "-c"):  # of the python on PATH
        return _of_python(command)
    for at, word in enumerate(command):
        if re.fullmatch(r"python[\d.]*", os.path.basename(word)):
            return _of_python(command[at + 1 :])
    is_launcher = os.path.basename(command[0]) in LAUNCHERS
    return (_launched(command[1:]) if is_launcher else "") or _script(command) or command[0]


def _of_python(words: Sequence[str]) -> str:
    """Return the script, module (-m) or code (-c) that Python runs; -W and -X have values."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        option, value = words[at], "".join(words[at + 1 : at + 2])
        if option == "-m" and re.search(r"(^|\.)(run|launch)$", value):
            return _launched(words[at + 2 :]) or f"-m {value:.100}"
        if option in ("-m", "-c"):
            return f"{option} {value:.100}"
        at += 2 if option in ("-W", "-X", "--check-hash-based-pycs") else 1
    return os.path.normpath(words[at]) if at < len(words) else "python"


def _launched(words: Sequence[str]) -> str:
    """Return the script or module that a launcher of ranks runs; "" if that is not clear."""
    script = _script(words)
    before = words[: list(words).index(script)] if script in words else words
    if "-m" in before[:-1]:
        return f"-m {before[list(before).index('-m') + 1]:.100}"
    return script


def _script(words: Sequence[str]) -> str:
    """Return the first word that is a script by its name, or ""."""
    return next((os.path.normpath(word) for word in words if _IS_SCRIPT(word)), "")


_IS_SCRIPT = re.compile(r"\.(py|sh|bash)$").search
