"""The public Python API: what is promised is there, and nothing heavy is imported for a name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lotus
import lotus.sweep
import lotus.tune
from lotus.settings.space import Setting
from lotus.sweep import sweep_record
from tests.simulation import simulate
from tests.unit.sweep.test_sweep_record import sweep_content

ROOT = Path(lotus.__file__).parents[1]


def test_every_name_is_there() -> None:
    for name in lotus.__all__:
        assert getattr(lotus, name) is not None
    assert lotus.tune.Result.__name__ == "Result"
    assert lotus.sweep.Sweep is lotus.Sweep


def test_what_loading_gives_and_raises_has_a_name(tmp_path: Path) -> None:
    run = simulate(tmp_path / "run", workers=1, batches=2)
    recorded = [{"setting": 0, "repeat": 0, "directory": "run", "state": "done"}]
    made = sweep_content([Setting(1).as_json()], ["num_workers"], recorded)
    sweep_record.write(tmp_path, made)
    assert isinstance(lotus.load(run), lotus.Run)
    assert isinstance(lotus.load(tmp_path), lotus.Sweep)
    assert isinstance(lotus.Recording(run).load(), lotus.Run)
    with pytest.raises(lotus.LotusError):
        lotus.load(tmp_path / "nothing")


def test_a_copied_run_is_trusted_only_on_demand(tmp_path: Path) -> None:
    # GIVEN a sweep that was copied, and so its run
    simulate(tmp_path / "S" / "run", workers=1, batches=2)
    recorded = [{"setting": 0, "repeat": 0, "directory": "run", "state": "done"}]
    made = sweep_content([Setting(1).as_json()], ["num_workers"], recorded)
    sweep_record.write(tmp_path / "S", made)
    shutil.copytree(tmp_path / "S", tmp_path / "C")
    # WHEN both are loaded, THEN the run's samples are resolved only if its user says so
    for trust in (False, True):
        run, sweep = (lotus.load(tmp_path / "C" / name, trust=trust) for name in ("run", ""))
        assert isinstance(run, lotus.Run)
        assert isinstance(sweep, lotus.Sweep)
        assert [each.trusted for each in (run, *sweep.loaded(Setting(1)))] == [trust, trust]


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
