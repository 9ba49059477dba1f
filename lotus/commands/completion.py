"""`lotus completion`: what a shell needs to complete the command line of lotus."""

import argparse

NAME = "completion"
HELP = "print a script by which a shell completes lotus's verbs and options"
EPILOG = """\
examples:
  lotus completion bash > ~/.local/share/bash-completion/completions/lotus
  lotus completion zsh > ~/.zfunc/_lotus      (with fpath+=~/.zfunc before compinit)
"""
SHELLS = ("bash", "zsh", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    from lotus import cli
    from lotus.errors import LotusError

    try:
        import shtab
    except ImportError:
        raise LotusError(
            "completion needs shtab, which is not installed; type: pip install shtab"
        ) from None
    print(shtab.complete(cli.parser(), args.shell))
    return 0
