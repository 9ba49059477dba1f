"""The public Python API: what is promised is there, and nothing heavy is imported for a name."""

import subprocess
import sys
from pathlib import Path

import pytest

import lotus
import lotus.sweep
import lotus.tune

ROOT = Path(lotus.__file__).parents[1]


def test_every_name_is_there() -> None:
    for name in lotus.__all__:
        assert getattr(lotus, name) is not None
    assert lotus.tune.Result.__name__ == "Result"
    assert lotus.sweep.Sweep.__name__ == "Sweep"


@pytest.mark.parametrize("package", [lotus, lotus.sweep, lotus.tune])
def test_another_name_is_an_attribute_error(package: object) -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        package.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def test_the_package_alone_imports_nothing_heavy() -> None:
    script = (
        "import sys; import lotus, lotus.sweep, lotus.tune;"
        "sys.exit(bool({'numpy', 'pandas', 'torch', 'typing'} & set(sys.modules)))"
    )
    words = [sys.executable, "-S", "-c", script]
    assert subprocess.run(words, cwd=ROOT, check=False).returncode == 0
