"""Programs that use other libraries' loaders, plain and traced: `make test-extras`.

Where a library is not installed its tests are skipped: `make test` has none of them.
"""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from tests.integration.conftest import LOTUS, PYTHON, Ended, Start, Traced, traced_as

PROGRAMS = Path(__file__).resolve().parent / "programs"
# Nothing is asked for over the network; one thread adds up in the same order every time.
ALONE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], tuple[Ended, Traced]]:
    """both(library, program): a program of `programs/` without and with `lotus trace -q`.

    Each runs in an empty directory of the same name, for what it makes there and prints of it.
    """

    def run(library: str, program: str) -> tuple[Ended, Traced]:
        try:
            version(library)
        except PackageNotFoundError:
            pytest.skip(f"{library} is not installed: make test-extras")
        ended = []
        for name in ("plain", "traced"):
            folder = tmp_path_factory.mktemp(name)
            (folder / "work").mkdir()
            words = [PYTHON, str(PROGRAMS / program)]
            if name == "traced":
                words = [*LOTUS, "trace", "-q", "-o", str(folder / "R"), "--", *words]
            own = {**ALONE, "HOME": str(folder), "HF_HOME": str(folder / "hf")}
            ended.append(Start(words, folder / "work", name, own).end())
        plain, traced = ended
        return plain, traced_as(traced, folder / "R")

    return run
