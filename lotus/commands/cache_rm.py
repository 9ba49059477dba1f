"""`lotus cache rm`: remove samples that runs with a plan have cached."""

import argparse

from lotus.commands.common import arguments
from lotus.common.errors import LotusError

NAME = "cache rm"
HELP = "remove samples that `lotus run` has cached on this machine"
EPILOG = """\
examples:
  lotus cache rm --all
      removes every cache, and says how many bytes that freed
  lotus cache rm --unused-for 30d
      those that no program has opened for 30 days
  lotus cache rm 3f9a0c11d2 /data/samples/of-train
      caches by the name of their folder, or by its path

A cache only saves time: its samples are made again when they are needed, so
lotus does not ask for confirmation. A program that is using one goes on without
it. It writes nothing, follows no symbolic link, and refuses a folder that is
not a cache of lotus.

exit codes: 0 removed, or there was none; 2 a folder is not a cache, or cannot
be removed

see also: lotus cache ls, lotus run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="folders of caches, by name or path")
    add("--all", action="store_true", help="remove all caches that `lotus cache ls` lists")
    add(
        "--unused-for",
        type=arguments.age,
        metavar="TIME",
        help="only those not used for this long, such as 12h, 30d or 8w",
    )


def run(args: argparse.Namespace) -> int:
    from lotus.common.text.formatting import plural, size
    from lotus.settings import sample_caches

    if args.names and args.all:
        raise LotusError("names and --all contradict each other: give one of them")
    if not args.names and not args.all and args.unused_for is None:
        raise LotusError(
            "no cache is named: give names, --all or --unused-for; lotus cache ls lists the names"
        )
    caches = sample_caches.chosen(sample_caches.listed(), args.names, args.unused_for)
    freed = sum(sample_caches.remove(cache) for cache in caches)
    print(f"removed {plural(len(caches), 'cache')}: {size(freed)}" if caches else "removed nothing")
    return 0
