"""Every verb follows the protocol of lotus/commands/common/protocol.py."""

import argparse
import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

import lotus.commands
from lotus.commands.common import protocol

VERBS = [
    importlib.import_module(f"lotus.commands.{module.name}")
    for module in pkgutil.iter_modules(lotus.commands.__path__)
    if not module.ispkg
]
MEMBERS = [name for name in vars(protocol.Command) if not name.startswith("_")]


@pytest.fixture(params=VERBS, ids=lambda verb: verb.NAME)
def verb(request: pytest.FixtureRequest) -> ModuleType:
    assert isinstance(request.param, ModuleType)
    return request.param


def test_a_verb_has_every_member(verb: ModuleType) -> None:
    assert {"NAME", "HELP", "EPILOG", "add_arguments", "run"} == set(MEMBERS)
    for name in MEMBERS:
        assert hasattr(verb, name), name
    for name in ("NAME", "HELP", "EPILOG"):
        assert isinstance(getattr(verb, name), str), name


def test_the_signatures_are_those_of_the_protocol(verb: ModuleType) -> None:
    for name, kind in (("add_arguments", protocol.AddArguments), ("run", protocol.RunCommand)):
        expected = inspect.signature(kind.__call__)
        own = inspect.signature(getattr(verb, name))
        assert list(own.parameters.values()) == list(expected.parameters.values())[1:]
        assert own.return_annotation == expected.return_annotation


def test_the_file_is_named_after_the_verb(verb: ModuleType) -> None:
    assert verb.__name__.rpartition(".")[2] == verb.NAME.replace(" ", "_")
    assert str(verb.__doc__).startswith(f"`lotus {verb.NAME}`: ")


def test_the_help_is_one_line_and_the_epilog_ends_with_related_verbs(verb: ModuleType) -> None:
    assert "\n" not in verb.HELP
    assert not verb.HELP.endswith(".")
    assert verb.EPILOG.rpartition("\n\n")[2].startswith("see also: ")


def test_the_command_after_the_hyphens_is_split_off_in_one_place(verb: ModuleType) -> None:
    assert "args.command" not in inspect.getsource(verb)


def test_every_type_of_an_argument_is_shared_and_says_what_it_accepts(verb: ModuleType) -> None:
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    for action in parser._actions:
        if action.type is not None and getattr(action.type, "__name__", "") != "Path":
            module = inspect.getmodule(action.type)
            assert module is not None
            assert module.__name__ == "lotus.commands.common.arguments", action.dest
