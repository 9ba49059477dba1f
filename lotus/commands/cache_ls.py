"""`lotus cache ls`: the samples that runs with a plan have cached."""

import argparse

from lotus.commands.common import options, output

NAME = "cache ls"
HELP = "list the samples that `lotus run` has cached on this machine"
EPILOG = """\
examples:
  lotus cache ls
      each cache: how many samples it has, its size, when it was used last, of
      which data set and operations, whether it was dropped and why, its folder
  lotus cache ls --json | jq .bytes

It looks in the user's cache folder ($XDG_CACHE_HOME or ~/.cache, there in
lotus/samples) and in memory (/dev/shm), changes nothing and writes nothing.

exit codes: 0 listed, also if there is none

see also: lotus cache rm, lotus run, lotus schema cache
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_json(parser, "cache")


def run(args: argparse.Namespace) -> int:
    from lotus.reporters.advise import cache_list_report
    from lotus.reporters.base import console
    from lotus.settings import sample_caches

    caches = sample_caches.listed()
    if args.json:
        output.print_document(cache_list_report.document(caches))
        return 0
    output.replace_unprintable()
    cache_list_report.write(console.plain_console(), caches)
    return 0
