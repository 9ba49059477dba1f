"""Starts `lotus`. Named as the distribution, so that it is found where Python finds another package
called lotus first, and can say so."""

import importlib.util
import os
import sys


def main() -> int:
    """Run the command line; 2 and a line on stderr where `lotus` is another package."""
    other = another_package()
    if other:
        sys.stderr.write(
            f"lotus: Python finds another package called lotus first, {other}; take its folder out "
            "of PYTHONPATH, or install lotus-profiler in an environment of its own\n"
        )
        return 2
    from lotus.cli import main

    return main()


def another_package() -> str:
    """The path of the package that `import lotus` finds if that is not this one; else ""."""
    spec = importlib.util.find_spec("lotus")
    if spec is None:
        return ""  # the import says it
    folders = spec.submodule_search_locations or ()
    if any(os.path.exists(os.path.join(folder, "cli.py")) for folder in folders):
        return ""
    return spec.origin or next(iter(folders), "")
