"""`lotus schema`: the JSON Schemas of documents and files for programs."""

import argparse

NAME = "schema"
HELP = "print the JSON Schema of a document of --json, or of a file that lotus writes"
EPILOG = """\
examples:
  lotus schema
      all names, each with the command or file that its schema describes
  lotus schema report
      the schema of `lotus report RUN --json`: each field, its unit
  lotus schema run.json
      that of the file in a run directory
  lotus schema report | jq '.properties.run.properties | keys'

A schema (draft 2020-12) describes every field with its unit, and says which may
be null: not measured, or not known. It prints to standard output and writes no
file.

exit codes: 0 printed, 2 there is no such schema

see also: lotus report --json, lotus compare --json, lotus top --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="name of the schema (default: list all)"
    )


def run(args: argparse.Namespace) -> int:
    from lotus.schemas import documents

    if args.name is not None:
        print(documents.text(args.name), end="")
        return 0
    titles = {name: documents.schema(name)["title"] for name in documents.names()}
    widest = max(map(len, titles))
    for name, title in titles.items():
        print(f"{name:{widest}}  {title}")
    return 0
