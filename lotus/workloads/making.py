"""Makes the data sets of the demos, each once and with the same bytes each time.

    python -m lotus.workloads.making volumes DIRECTORY --count 24

The modules named in `catalogue.py` define the contents.
"""

import argparse
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def make(
    directory: Path,
    count: int,
    save: Callable[[Path, int], object],
    finish: Callable[[Path, int], object] = lambda directory, count: None,
) -> Iterator[int]:
    """Make a data set unless it exists; yields the number of its `count` samples that exist so far.

    `save(directory, number)` writes sample `number`, in several threads at once;
    `finish(directory, count)` writes what concerns all samples. The folder appears when it is
    complete, so concurrent calls do not disturb each other. Raises OSError if it cannot be
    written.
    """
    if directory.is_dir():
        yield count
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for done, _ in enumerate(pool.map(lambda n: save(beside, n), range(count)), 1):
                yield done
        finish(beside, count)
        beside.chmod(0o755)
        try:
            beside.rename(directory)
        except OSError:
            if not directory.is_dir():  # else somebody else was faster
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def show(directory: Path, count: int, noun: str, made: Iterator[int]) -> None:
    """Run the iterator of `make` with a progress bar; exits if the data set cannot be made."""
    if directory.is_dir():
        return
    from rich.console import Console
    from rich.progress import Progress

    try:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(f"making {count} {noun}", total=count)
            for done in made:
                progress.update(task, completed=done)
    except OSError as error:
        sys.exit(f"{directory}: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit(130)


def main() -> None:
    """Make the data set of the command line."""
    from lotus.workloads.catalogue import WORKLOADS

    nouns = {workload.maker: workload.noun for workload in WORKLOADS.values()}
    parser = argparse.ArgumentParser(description="Make the data set of a demo.")
    parser.add_argument("maker", choices=nouns)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--count", type=int, required=True, help="how many samples")
    args = parser.parse_args()
    maker = importlib.import_module(f"lotus.workloads.{args.maker}")
    made = maker.make(args.directory, args.count)
    show(args.directory, args.count, nouns[args.maker], made)


if __name__ == "__main__":
    # Started as a file, also where lotus lies beside the program and is not installed.
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    main()
