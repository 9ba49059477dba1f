"""Says what is wrong with words that a verb does not take, and what was probably meant."""

import argparse
import difflib
import re
import shlex
import shutil
from collections.abc import Sequence

from lotus.common.rank_launchers import LAUNCHERS

# Words that begin the program's command: those before are options and their values.
_STARTS = re.compile(rf"(.*/)?(python[\d.]*|{'|'.join(LAUNCHERS)}|bash|sh)|.*\.(py|sh|bash)")


def message(
    verb: str, parser: argparse.ArgumentParser, words: Sequence[str], unknown: Sequence[str]
) -> str:
    """Return the error for options that `lotus verb` does not have, with the line to type.

    `words` are all words after the verb, `unknown` those that argparse did not accept.
    """
    wrong = next((word for word in unknown if word.startswith("-")), unknown[0])
    options = _options(parser)
    text = _no_option(verb, wrong, options)
    own, program_words, command = _sorted_out(words, options)
    line = [
        "lotus",
        *verb.split(),
        *own,
        "--",
        *(command or ["python", "train.py"]),
        *program_words,
    ]
    return f"{text}; an option of the program goes behind it: {shlex.join(line)}"


def plain_message(verb: str, parser: argparse.ArgumentParser, unknown: Sequence[str]) -> str:
    """Return the same for a verb that starts no program, with where its options are listed."""
    wrong = next((word for word in unknown if word.startswith("-")), "")
    what = f"{shlex.join(unknown)} is one word too many for lotus {verb}"
    if wrong:
        what = _no_option(verb, wrong, _options(parser))
    elif len(unknown) > 1:
        what = f"{shlex.join(unknown)} are {len(unknown)} words too many for lotus {verb}"
    return f"{what}; `lotus {verb} --help` lists what it takes"


def _no_option(verb: str, word: str, options: dict[str, argparse.Action]) -> str:
    """Return that there is no such option, and which one is nearly the same."""
    name = word.partition("=")[0]
    near = difflib.get_close_matches(name, options, 1, 0.75)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"{name} is not an option of lotus {verb}{meant}"


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {name: action for action in parser._actions for name in action.option_strings}


def _sorted_out(
    words: Sequence[str], options: dict[str, argparse.Action]
) -> tuple[list[str], list[str], list[str]]:
    """Return the options of lotus, words meant for the program, and the program."""
    before, command = list(words), []
    if "--" in before:
        place = before.index("--")
        before, command = before[:place], before[place + 1 :]
    own: list[str] = []
    program_words: list[str] = []
    positions = iter(range(len(before)))
    for place in positions:
        word = before[place]
        action = options.get(word.partition("=")[0])
        if action is not None:
            own.append(word)
            if action.nargs is None and "=" not in word and place + 1 < len(before):
                own.append(before[next(positions)])
        elif not command and _STARTS.fullmatch(word) and not word.startswith("-"):
            command = before[place:]
            break
        else:
            program_words.append(word)
    if not command:
        # Not a known interpreter: take the first word that the system could run.
        starts = [
            k for k, word in enumerate(program_words) if word[:1] != "-" and shutil.which(word)
        ]
        if starts:
            program_words, command = program_words[: starts[0]], program_words[starts[0] :]
    if command and command[0].endswith(".py") and not shutil.which(command[0]):
        command = ["python", *command]
    return own, program_words, command
