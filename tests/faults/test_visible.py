"""A traced program can see of lotus what docs/tracing.md lists, and nothing else."""

import json
import sys

from tests.launching import SMALL_TORCH

HOOKED = {
    "DataLoader._get_iterator",
    "_DatasetKind.create_fetcher",
    *(
        f"_MultiProcessingDataLoaderIter.{name}"
        for name in ("_next_data", "_reset", "_shutdown_workers", "_try_get_data")
    ),
    "_SingleProcessDataLoaderIter._next_data",
    "pin_memory._pin_memory_loop",
    "worker.ExceptionWrapper",
    "worker._worker_loop",
}


def test_a_program_sees_of_lotus_what_the_documentation_lists(pair):
    plain, traced = pair("visible.py", env=SMALL_TORCH)
    assert (plain.code, plain.err, traced.code, traced.err) == (0, "", 0, "")
    alone, beside = json.loads(plain.out), json.loads(traced.out)
    differing = {name for name in alone if alone[name] != beside[name]}

    # The environment and the path
    of_environment = beside["environment"].items() ^ alone["environment"].items()
    names = {name for name, _ in of_environment}
    assert {name for name in names if not name.startswith("LOTUS_")} == {"PYTHONPATH"}
    (entry,) = set(beside["path"]) - set(alone["path"])
    assert [path for path in beside["path"] if path != entry] == alone["path"]
    assert entry.endswith("sitecustomize")

    # Modules: its own, and those of Python that they import
    assert set(alone["modules"]) <= set(beside["modules"])
    more = set(beside["modules"]) - set(alone["modules"])
    foreign = {name.partition(".")[0] for name in more} - set(sys.stdlib_module_names)
    assert foreign == {"_lotus_inside", "sitecustomize"}
    assert [finder for finder in beside["finders"] if finder != "Watcher"] == alone["finders"]
    assert beside["finders"].count("Watcher") == 1

    # torch's functions, and what they make
    functions = {**alone["functions"], **beside["functions"]}
    hooked = {
        function
        for function in functions
        if beside["functions"].get(function) != alone["functions"].get(function)
    }
    assert hooked == HOOKED
    for name in ("iterator", "iterator with workers"):
        assert set(beside[name]) ^ set(alone[name]) == {"_lotus_iteration"}
    assert (beside["fetcher"], beside["data set of the fetcher"]) == (
        "TimedFetcher",
        alone["data set of the fetcher"],
    )

    # A function among the transforms is a stand-in: equal, not the same, pickled as the function
    assert (alone["is"], beside["is"], beside["equal"]) == (True, False, True)
    assert not beside["same bytes"]

    # One descriptor, of the log
    assert beside["descriptors"] == alone["descriptors"] + 1
    assert differing == {
        "environment", "path", "modules", "finders", "functions", "iterator",
        "iterator with workers", "fetcher", "is", "same bytes",
        "descriptors",
    }  # fmt: skip
