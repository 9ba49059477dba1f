"""What is counted of a run, in the form in which a test writes down what it expects."""

from collections import Counter
from typing import Any

from lotus.reading.run import Run
from tests.integration.conftest import Ended, Traced


def same(plain: Ended, traced: Traced) -> None:
    """Assert that tracing changed nothing that the program or its user could see."""
    assert (plain.code, plain.out != b"") == (0, True), plain.err.decode()
    assert (traced.code, traced.out.splitlines()) == (0, plain.out.splitlines())
    assert traced.err.splitlines() == plain.err.splitlines()


def epochs(run: Run) -> dict[int, list[tuple[int, int]]]:
    """Loader -> (batches, samples) that the program took in each of its epochs."""
    sizes: dict[int, list[tuple[int, int]]] = {}
    taken = run.batches[run.batches["wait_ns"].notna()]
    for row in run.epochs.sort_values(["loader", "epoch"]).itertuples():
        of = taken[(taken["loader"] == row.loader) & (taken["epoch"] == row.epoch)]
        assert len(of) == row.batches
        sizes.setdefault(row.loader, []).append((len(of), int(of["size"].sum())))
    return sizes


def operations(run: Run) -> dict[int, dict[str, float]]:
    """Loader -> operation -> how often it ran for one sample that was fetched."""
    ops = run.ops[run.ops["position"] >= 0]
    sizes = run.batches[run.batches["fetch_ns"].notna()].groupby("loader")["size"].sum()
    counts: dict[int, dict[str, float]] = {}
    for (loader, name), count in Counter(zip(ops["loader"], ops["operation"], strict=True)).items():
        counts.setdefault(loader, {})[name] = count / sizes[loader]
    return counts


def workers(run: Run) -> dict[int, list[set[int]]]:
    """Loader -> the workers (-1: the main process) that made the batches of each epoch."""
    numbers: dict[int, list[set[int]]] = {}
    for (loader, _), rows in run.batches.groupby(["loader", "epoch"]):
        numbers.setdefault(loader, []).append(set(rows["worker"]))
    return numbers


def sound(run: Run, but: tuple[int, ...] = ()) -> None:
    """Assert that every batch taken was measured, that times are times, and books close.

    `but`: loaders whose workers are not seen.
    """
    taken = run.batches[run.batches["wait_ns"].notna() & ~run.batches["loader"].isin(but)]
    assert (taken["fetch_ns"] > 0).all()
    assert (run.waits["wait_ns"] > 0).all()
    assert (run.samples["duration_ns"] > 0).all()
    assert (run.samples["self_ns"] >= 0).all()
    assert (run.ops["duration_ns"] > 0).all()
    # A persistent worker that is killed at the end does not tell of its last sending.
    assert set(run.lost["what"]) <= {"send times of a batch"}
    assert run.notes == []
    made = run.batches[run.batches["worker"] >= 0][["pid", "worker"]].drop_duplicates()
    assert set(made.itertuples(index=False, name=None)) <= set(
        run.workers[["pid", "worker"]].itertuples(index=False, name=None)
    )


def counts_noted(ended: Ended) -> "Counter[tuple[int, int]]":
    """(worker, pid) -> how many samples the program itself says that it made there."""
    rows = [line.split() for line in ended.truth.read_text().splitlines()]
    return Counter((int(worker), int(pid)) for _, worker, pid in rows)


def fetched(run: Run) -> "Counter[Any]":
    """The same of the run: (worker, pid) -> samples."""
    rows = run.batches[run.batches["fetch_ns"].notna()]
    sizes = rows.groupby(["worker", "pid"])["size"].sum()
    return Counter({key: int(size) for key, size in sizes.items()})
