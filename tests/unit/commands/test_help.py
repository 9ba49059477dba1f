"""What `lotus COMMAND --help` promises, on a terminal of 80 columns."""

import argparse
import re

import pytest

from tests.documented import PARSER, VERBS, commands, examples

TOLD = list(VERBS)


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def text_of(verb: str) -> str:
    return str(VERBS[verb].epilog)


def test_the_overview_fits() -> None:
    assert max(map(len, PARSER.format_help().splitlines())) <= 80


@pytest.mark.parametrize("verb", TOLD)
def test_help_fits_and_says_all_there_is_to_say(verb: str) -> None:
    parser = VERBS[verb]
    wide = [line for line in parser.format_help().splitlines() if len(line) > 80]
    assert wide == []
    for action in parser._actions:
        if action.dest != "command" or action.option_strings:
            assert action.help, action.dest
    for heading in ("examples:\n", "\nexit codes: ", "\nsee also: "):
        assert heading in f"\n{text_of(verb)}", heading
    assert re.search(r"\bwrites\b", text_of(verb)), "what it writes, and where"


def test_no_help_refers_to_a_file_that_an_installed_lotus_does_not_have() -> None:
    for parser in (PARSER, *VERBS.values()):
        assert re.findall(r"\b(?:docs|tools|tests)/\S+", parser.format_help()) == []


@pytest.mark.parametrize("verb", TOLD)
def test_examples_can_be_typed_and_say_what_one_sees(verb: str) -> None:
    lines = examples(verb)
    assert any(line.startswith(f"lotus {verb}") for line in lines)
    assert re.search(r"^  lotus .*\n      \S", text_of(verb), re.M), "what one sees"
    for line in lines:
        for words in commands(line):
            PARSER.parse_args(words)  # ends the test where it is refused


@pytest.mark.parametrize("verb", TOLD)
def test_see_also_names_verbs_and_options_that_exist(verb: str) -> None:
    _, _, rest = text_of(verb).partition("\nsee also: ")
    for name in " ".join(rest.split()).split(", "):
        words = name.removeprefix("lotus ").split()
        named = next((verb for verb in (" ".join(words[:2]), words[0]) if verb in VERBS), None)
        if named is None:
            assert words == ["--help"], name
            continue
        assert named != verb or len(words) > len(verb.split())
        options = VERBS[named]._option_string_actions
        assert all(word in options for word in words if word.startswith("-")), name


@pytest.mark.parametrize("verb", TOLD)
def test_defaults_are_told(verb: str) -> None:
    for action in VERBS[verb]._actions:
        if action.default in (None, False, argparse.SUPPRESS, (), []):
            continue
        if action.option_strings:
            known = f"{action.default:g}" if isinstance(action.default, float) else action.default
            assert f"default: {known}" in " ".join(str(action.help).split()), action.option_strings


def test_the_same_option_has_the_same_letter_everywhere() -> None:
    letters: dict[str, str] = {}
    for parser in VERBS.values():
        for action in parser._actions:
            short = [option for option in action.option_strings if not option.startswith("--")]
            for option in short:
                assert letters.setdefault(option, action.dest) == action.dest
