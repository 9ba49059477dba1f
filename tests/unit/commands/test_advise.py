"""The command that `lotus advise` proposes to measure once more."""

import argparse

import pytest

from lotus.commands import advise


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--ceilings", "--json"],
        ["--loader", "2", "--watch", "20", "--only", "A", "--only", "B", "--skip", "C"],
        ["--output", "my file.json", "--force"],
    ],
)
def test_it_has_the_options_that_were_given(options: list[str]) -> None:
    parser = argparse.ArgumentParser()
    advise.add_arguments(parser)
    command = ["python", "a b.py"]
    given = parser.parse_args([*options, "--", *command])
    words = advise.shlex.split(advise._again(given, command))
    assert words[:4] == ["lotus", "advise", "--budget", "5m"]
    again = parser.parse_args(words[2:])
    assert vars(again) | {"budget": 60.0} == vars(given)
