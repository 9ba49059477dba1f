"""`lotus completion`: a script for a shell that completes the command line of lotus."""

import argparse

NAME = "completion"
HELP = "print a script that lets a shell complete the verbs and options of lotus"
EPILOG = """\
examples:
  lotus completion bash > ~/.local/share/bash-completion/completions/lotus
      then, in a new shell: lotus tr<Tab>
  lotus completion zsh > ~/.zfunc/_lotus
      with fpath+=~/.zfunc before compinit in ~/.zshrc

It prints to standard output and writes no file.

exit codes: 0 printed, 2 shtab is not installed

see also: lotus --help
"""
SHELLS = ("bash", "zsh", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell that the script is for")


def run(args: argparse.Namespace) -> int:
    from lotus.common.errors import LotusError

    try:
        import shtab
    except ImportError:
        raise LotusError(
            "completion needs shtab, which is not installed; type: pip install shtab"
        ) from None
    print(shtab.complete(args.every_verb(), args.shell))
    return 0
