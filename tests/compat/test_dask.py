"""A report that the workers of a dask cluster read is that of one process."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import lotus
from lotus.analysis.common import reduction_backends
from lotus.analysis.summary import summarise
from lotus.reading.tables import table_pieces
from lotus.reporters.run import run_document
from tests.integration.conftest import LOTUS
from tests.simulation import simulate

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("dask") / "run"
    return simulate(path, workers=2, batches=40, batch_size=16, epochs=3)


@pytest.fixture(scope="module")
def address():
    """The scheduler of a cluster of two worker processes."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


def test_the_report_is_that_of_one_process(path, address, monkeypatch) -> None:
    monkeypatch.setattr(table_pieces, "ROWS", 200)
    documents = []
    for partials in (reduction_backends.one_process, reduction_backends.of_cluster(address)):
        run = lotus.load(path)
        documents.append(json.dumps(run_document.document(summarise(run, partials=partials))))
        assert len(run.pieces) > 20
    assert documents[0] == documents[1]


def test_the_command_uses_the_cluster_and_says_where_there_is_none(path, address) -> None:
    words = [*LOTUS, "report", str(path), "--json"]
    alone = subprocess.run(words, capture_output=True, check=True)
    words += ["--backend", "dask", "--scheduler"]
    by_cluster = subprocess.run([*words, address], capture_output=True)
    assert by_cluster.returncode == 0, by_cluster.stderr
    assert by_cluster.stdout == alone.stdout
    nowhere = subprocess.run(
        [*words, "tcp://127.0.0.1:1"], capture_output=True, text=True,
        env={**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "2s"},
    )  # fmt: skip
    assert nowhere.returncode == 2
    assert "no scheduler of dask answers at tcp://127.0.0.1:1" in nowhere.stderr
    assert "Traceback" not in nowhere.stderr
