"""Which frames are the program's own, and what it calls its loaders; without torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from lotus.inside.common.loaders import code_origin, loader_origin
from lotus.inside.distributed.share_applier import ShareApplier
from lotus.inside.tune.observation.loader_choice import LoaderChoice

# Walks from inside a package: prints the place that is shown.
WALK = """
import sys
sys.path.insert(0, {root!r})
from lotus.inside.common.loaders import code_origin as places
del sys.path[0]
def walk():
    print(places.place(places.nearest(sys._getframe(1))), places.is_program(sys._getframe(1)))
"""
ROOT = str(Path(__file__).resolve().parents[5])


def package(folder: Path, name: str, code: str, records: list[str] | None = None) -> None:
    """A distribution as pip writes it, with a module."""
    (folder / f"{name}-1.0.dist-info").mkdir(parents=True)
    (folder / f"{name}.py").write_text(code)
    lines = [f"{record},sha256=x,3\n" for record in records or [f"{name}.py"]]
    lines.append(f"{name}-1.0.dist-info/RECORD,,\n")
    (folder / f"{name}-1.0.dist-info" / "RECORD").write_text("".join(lines))


def shown(tmp_path: Path, *paths: Path, words: tuple[str, ...] = ()) -> str:
    (tmp_path / "walker").mkdir(exist_ok=True)
    (tmp_path / "walker" / "walker.py").write_text(WALK.format(root=ROOT))
    ended = subprocess.run(
        [sys.executable, *(words or (str(tmp_path / "own" / "train.py"),))],
        env={"PYTHONPATH": ":".join(map(str, [*paths, tmp_path / "walker"]))},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


CALL = "def call(walk):\n    walk()\n"
TRAIN = "import walker, bar\nbar.call(walker.walk)\n"


def own(tmp_path: Path, code: str = TRAIN) -> Path:
    (tmp_path / "own").mkdir(exist_ok=True)
    (tmp_path / "own" / "train.py").write_text(code)
    return tmp_path / "own"


def test_a_package_on_pythonpath_is_no_place_of_the_program(tmp_path):
    """As `pip install --target` lays it out, wherever that is."""
    own(tmp_path)
    package(tmp_path / "elsewhere", "bar", CALL)
    assert shown(tmp_path, tmp_path / "elsewhere") == "train.py:2 False"


def test_a_package_installed_into_the_folder_of_the_program_is_told_from_it(tmp_path):
    folder = own(tmp_path, "import walker, mine\nmine.go(walker.walk)\n")
    package(folder, "bar", CALL)
    (folder / "mine.py").write_text("import bar\ndef go(walk):\n    bar.call(walk)\n")
    assert shown(tmp_path) == "mine.py:3 False"


def test_a_helper_beside_the_program_is_the_program(tmp_path):
    (own(tmp_path) / "bar.py").write_text(CALL)
    assert shown(tmp_path) == "bar.py:2 True"


def test_an_editable_install_is_the_program(tmp_path):
    """Its RECORD names only what points at the folder."""
    own(tmp_path)
    package(tmp_path / "site", "bar", "", ["__editable__.bar-1.0.pth"])
    (tmp_path / "site" / "bar.py").unlink()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "bar.py").write_text(CALL)
    assert shown(tmp_path, tmp_path / "site", tmp_path / "src") == "bar.py:2 True"


@pytest.mark.parametrize("name", ["my-packages", "site-packages-of-mine"])
def test_a_folder_with_a_name_like_theirs_is_the_program(tmp_path, name):
    own(tmp_path)
    (tmp_path / name).mkdir()
    (tmp_path / name / "bar.py").write_text(CALL)
    assert shown(tmp_path, tmp_path / name) == "bar.py:2 True"


def test_a_folder_of_packages_needs_no_record(tmp_path):
    own(tmp_path)
    folder = tmp_path / "lib" / "site-packages"
    folder.mkdir(parents=True)
    (folder / "bar.py").write_text(CALL)
    assert shown(tmp_path, folder) == "train.py:2 False"


def test_where_all_is_installed_it_is_the_package_that_was_started(tmp_path):
    folder = tmp_path / "lib" / "python3" / "site-packages"
    package(folder, "bar", CALL)
    (folder / "foo.py").write_text("import walker, bar\ndef main():\n    bar.call(walker.walk)\n")
    command = tmp_path / "bin" / "train"
    command.parent.mkdir()
    command.write_text("import foo\nfoo.main()\n")
    assert shown(tmp_path, folder, words=(str(command),)) == "foo.py:3 False"
    (folder / "foo.py").write_text(
        "import walker, bar\nif __name__ == '__main__':\n    bar.call(walker.walk)\n"
    )
    assert shown(tmp_path, folder, words=("-m", "foo")) == "foo.py:3 False"


def test_code_of_the_command_line_is_the_program_and_what_libraries_compile_is_not(tmp_path):
    code = "exec(compile('def call(walk): walk()', '<made>', 'exec'))\n"
    own(tmp_path)
    package(tmp_path / "elsewhere", "bar", code)
    assert shown(tmp_path, tmp_path / "elsewhere") == "train.py:2 False"
    origin = shown(tmp_path, tmp_path / "elsewhere", words=("-c", TRAIN))
    assert origin == "<string>:2 False"


def test_records_are_read_once(tmp_path, monkeypatch):
    """And a folder of very many files is not read to its end."""
    for number in range(50):
        (tmp_path / f"{number}.txt").touch()
    monkeypatch.setattr(code_origin, "_MOST_ENTRIES", 10)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    folders = []
    real = code_origin.os.scandir
    monkeypatch.setattr(
        code_origin.os, "scandir", lambda folder: folders.append(folder) or real(folder)
    )
    for _ in range(3):
        assert not code_origin.is_installed(str(tmp_path / "train.py"))
    read = [folder for folder in folders if str(folder).rstrip("/") == str(tmp_path)]
    assert read in ([], [folders[0]])


# ── names ────────────────────────────────────────────────────────────────────────────────────


class Data:
    def __init__(self, **held):
        vars(self).update(held)


class Loader:
    """Stands for torch's: tells its name as it is made."""

    def __init__(self, dataset=None, into=None):
        self.dataset = dataset
        self.name = loader_origin.name_of(self, sys._getframe(1))


def helper(train=None, split="x"):
    return Loader()


def through_a_variable(train):
    loader = Loader()
    loader.extra = 1
    return loader


def get_val_loader():
    return Loader()


def one_of_two(flag):
    loader = Loader()
    if flag:
        return loader
    return Loader()


def get_loaders():
    train_loader = Loader()
    val_loader = Loader()
    return train_loader, val_loader


def test_the_variable_is_the_name():
    train_loader = Loader()
    assert train_loader.name == "train_loader"
    holder = Data()
    holder.val_dl = Loader()
    assert holder.val_dl.name == "val_dl"
    holder.by = {}
    holder.by["dev"] = Loader()
    assert holder.by["dev"].name == "dev"
    both = cifar = Loader()
    assert both.name == cifar.name == "both"
    first, second = get_loaders()
    assert (first.name, second.name) == ("train_loader", "val_loader")
    kept = Loader()
    assert (lambda: kept)().name == "kept"  # a cell


def test_the_variable_that_gets_it_from_a_helper_is_the_name():
    train_loader = helper()
    assert train_loader.name == "train_loader"
    val_batches = through_a_variable(False)
    assert val_batches.name == "val_batches"


def test_a_helper_tells_the_role():
    assert get_val_loader().name == "val"
    assert helper(train=True).name == "train"
    assert helper(split="val").name == "val"
    assert helper(split="RGB").name == ""
    loader = through_a_variable(True)
    assert loader.name == "train"
    assert helper(train=False).name == ""


def test_nothing_is_guessed():
    loader = Loader()
    dl = Loader()
    x = [Loader(), Loader()]
    assert {module.name for module in (loader, dl, *x)} == {""}
    test_loader = len([Loader(Data(split="train"))])  # not what the variable gets
    assert test_loader == 1
    mixed_test_loader = one_of_two(True)
    assert mixed_test_loader.name == ""


@pytest.mark.parametrize(
    ("held", "name"),
    [
        ({"split": "train"}, "train"),
        ({"mode": "RGB", "root": "/data/coco/val2017"}, "val2017"),
        ({"root": Path("/data/imagenette/train")}, "train"),
        ({"root": "/data/train/images"}, "train"),
        ({"root": "/data/imagenet-train/"}, "imagenet-train"),
        ({"root": "/tmp/test_places0/data", "train": True}, "train"),
        ({"root": "/tmp/test_places0/cats"}, ""),
        ({"root": "/tmp/test_places0"}, ""),
        ({"root": "/data", "train": False}, ""),
        ({"dataset": Data(split="train")}, ""),
        ({"split": 3, "root": b"/train"}, ""),
    ],
)
def test_the_data_tells(held, name):
    loader = Loader(Data(**held))
    assert loader.name == name


def test_no_code_of_the_data_set_runs():
    class Sly(str):
        def __len__(self):
            raise AssertionError

    class Hostile:
        def __getattr__(self, name):
            raise AssertionError

    hostile = Hostile()
    vars(hostile)["split"] = Sly("train")
    loader = Loader(hostile)
    assert loader.name == ""


def test_shares_are_for_a_loader_that_is_iterated_where_an_old_run_says():
    loader = Data(dataset=Data(), batch_sampler=None, sampler=[])
    balance = ShareApplier.__new__(ShareApplier)
    balance.over = False
    balance.target = {"call_site": f"test_code_origin.py:{sys._getframe().f_lineno + 1}"}
    assert balance._meant_now(loader, 0)
    assert not balance._meant_now(loader, 0)
    balance.target["dataset"] = "Data"
    assert not balance._meant_now(loader, 0)


@pytest.mark.parametrize("which", ["Data", "train.py:3", "old.py:9", "val_loader", "here"])
def test_a_loader_to_tune_is_chosen_by_any_of_its_names(which):
    known = Data(site="train.py:3", once="old.py:9", name="val_loader")
    applier = Data(loaders=Data(find=lambda loader: known))
    wanted = f"test_code_origin.py:{sys._getframe().f_lineno + 2}" if which == "here" else which
    choice = LoaderChoice(wanted, applier)
    assert choice.is_chosen(Data(dataset=Data()))
    assert not LoaderChoice("other", applier).is_chosen(Data(dataset=3))
