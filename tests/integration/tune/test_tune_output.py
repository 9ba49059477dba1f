"""`lotus tune` where its file cannot be written in the end, or nothing was found to be written."""

import re
from pathlib import Path

from lotus.settings import tuned_file
from tests.integration.conftest import LOTUS, WARM, Start, command_of

TRAIN = ["wait=0.005", "batches=200", "epochs=1", "exit=3"]


def tuned(folder, *words, env=None):
    return Start([*LOTUS, "tune", *words], folder, "tune", {"COLUMNS": "300", **(env or {})})


def test_a_result_that_cannot_be_written_is_shown_and_kept_elsewhere(torch, tmp_path):
    """The folder goes while the program runs, as a disk may fill up."""
    started = []
    for name, more in (("ended", []), ("applied", ["--apply"])):
        folder = tmp_path / name
        (folder / "gone").mkdir(parents=True)
        (folder / "tmp").mkdir()
        env = {"TMPDIR": str(folder / "tmp")}
        script = [
            "sh",
            "-c",
            'rmdir gone; exec "$@"',
            "-",
            *command_of("tune/tune_train.py", TRAIN),
        ]
        words = ["--budget", "3s", "-o", "gone/tuned.json", *more, "--", *script]
        started.append((name, tuned(folder, *words, env=env)))
    ended = {name: start.end() for name, start in started}
    for name, code in (("ended", 1), ("applied", 3)):
        message = ended[name].err.decode()
        assert ended[name].code == code, message
        assert "Trials: " in message
        assert "cannot write gone/tuned.json: No such file or directory" in message
        match = re.search(r"the settings are in (\S+tuned\.json); keep them with: cp", message)
        assert match is not None, message
        assert tuned_file.read(Path(match[1])).loaders[0].loader.dataset == "Far"


def test_a_loader_that_raises_leaves_no_file_and_says_why(torch, tmp_path):
    script = tmp_path / "raises.py"
    script.write_text(
        "import sys\n"
        "from torch.utils.data import DataLoader\n"
        "class Broken(list):\n"
        "    def __getitem__(self, index):\n"
        "        if index == 30:\n"
        "            raise ValueError('sample 30 is broken')\n"
        "        return index\n"
        "if __name__ == '__main__':\n"
        "    for batch in DataLoader(Broken(range(64)), batch_size=2):\n"
        "        pass\n"
    )
    ended = tuned(tmp_path, "-f", "--budget", "3s", "--", WARM, str(script)).end()
    message = ended.err.decode()
    assert ended.code == 1, message
    assert "not even of its own setting: ValueError: sample 30 is broken" in message
    assert "Trials: " not in message
    assert not (tmp_path / "tuned.json").exists()


SHORT = """
import sys
from torch.utils.data import DataLoader
if __name__ == "__main__":
    for epoch in range(3):
        for number, batch in enumerate(DataLoader(range(64), batch_size=2)):
            if number == 2 and sys.argv[1] == "breaks":
                sys.exit(9)
            if number == 2 and sys.argv[1] == "raises":
                raise ValueError("of the program")
    sys.exit(7)
"""


def test_what_is_advised_where_too_little_was_watched_does_help(torch, tmp_path):
    script = tmp_path / "short.py"
    script.write_text(SHORT)
    plan = {
        "breaks": (["breaks"], [], 9, "could be watched; --watch 2 makes do with these"),
        "helped": (["breaks"], ["--watch", "2", "-f", "--check", "0s"], 0, "Trials: "),
        "raises": (["raises"], [], 1, "could be watched\n"),
        "other": (["goes"], ["--loader", "Other"], 7, "--loader can name the loader of range"),
    }
    started = {}
    for name, (args, options, _, _) in plan.items():
        folder = tmp_path / name
        folder.mkdir()
        command = [WARM, str(script), *args]
        started[name] = tuned(folder, "--budget", "1s", *options, "--", *command)
    for name, (_, _, code, words) in plan.items():
        ended = started[name].end()
        message = ended.err.decode()
        assert ended.code == code, message
        assert words in message
        assert ("lotus: no loader iterated so far matches --loader" in message) == (name == "other")
