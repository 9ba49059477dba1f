"""`lotus advise --ceilings` on programs whose stalls are sleeps: what it says, and how it ends."""

import json
import re

import pytest

from tests.integration.conftest import LOTUS, WARM, WARM_VISION, Start

# Each step damages its batch; the next one that it gets must be whole.
PROGRAM = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

words = dict(word.split("=") for word in sys.argv[1:])
READ, MAKE, SEND, STEP = (float(words.get(name, 0)) for name in ("read", "make", "send", "step"))
read = set()

def sample(index):
    if READ and index not in read:
        time.sleep(READ)
        read.add(index)
    time.sleep(MAKE)
    return torch.full((4,), float(index)), index

class Parcel:
    def __reduce__(self):  # the main process waits for it when it takes a batch
        return time.sleep, (SEND,)

def collate(samples):
    return [*default_collate(samples), Parcel()]

class Numbers(Dataset):
    def __len__(self):
        return int(words.get("samples", 100_000))

    def __getitem__(self, index):
        return sample(index)

class Stream(IterableDataset):
    def __iter__(self):
        return map(sample, range(int(words["stream"])))

if __name__ == "__main__":
    data, workers = Stream() if "stream" in words else Numbers(), int(words.get("workers", 0))
    kept = {"persistent_workers": True} if "kept" in words else {}
    if SEND:
        kept["collate_fn"] = collate
    loader = DataLoader(data, batch_size=4, num_workers=workers, **kept)
    trained = 0
    try:
        for _ in range(int(words.get("epochs", 1))):
            for number, (images, labels, *_) in enumerate(loader, 1):
                if not torch.equal(images[:, 0], labels.float()):
                    print("damaged", flush=True)
                images.zero_()
                labels.zero_()
                time.sleep(STEP)
                trained += 1
                if number == int(words.get("leave", -1)):
                    break
    finally:
        print("finally", trained, flush=True)
    sys.exit(3)
"""
WORDS = {
    "stalls": ["read=0.03", "make=0.002", "step=0.01", "workers=1"],
    "step": ["make=0.0002", "step=0.02"],
    "epochs": ["make=0.005", "step=0.02", "samples=24", "epochs=1000"],
    "left": ["make=0.01", "step=0.02", "leave=10", "epochs=10000", "workers=1", "kept=1"],
    "stream": ["make=0.005", "step=0.02", "stream=120", "epochs=100"],
    "short": ["make=0.001", "samples=24", "epochs=1"],
    "both": ["make=0.0005", "send=0.03", "step=0.02", "workers=1"],
}


# Decodes much larger pictures than it keeps, so that its loop waits for them.
PICTURES = """
import sys, torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

if __name__ == "__main__":
    steps = [transforms.Resize((32, 32)), transforms.ToTensor()]
    data = datasets.ImageFolder(sys.argv[1], transforms.Compose(steps))
    data.samples *= 100
    for epoch in range(100):
        for images, labels in DataLoader(data, batch_size=4, num_workers=int(sys.argv[2])):
            images.mean()
"""


@pytest.fixture(scope="module")
def results(torch, tmp_path_factory):
    """For each of `WORDS`: (exit code, document or None, all that was printed)."""
    folder = tmp_path_factory.mktemp("advise")
    script = folder / "train.py"
    script.write_text(PROGRAM)

    def start(name, budget):
        only = [] if name == "both" else ["--ceilings"]
        advise = [*LOTUS, "advise", "--budget", budget, "--json", *only]
        command = [*advise, "--", WARM, str(script), *WORDS[name]]
        return Start(command, folder / name, f"{name}-{budget}", {})

    for name in WORDS:
        (folder / name).mkdir()
    starts = {name: start(name, "8s") for name in WORDS}
    made = {name: outcome(one.end()) for name, one in starts.items()}
    for name, (_, document, _) in made.items():
        if name != "short" and not is_enough(document):  # the machine is slow, or busy
            made[name] = outcome(start(name, "60s").end())
    return made


def outcome(done):
    text = done.out.decode()
    document = json.loads(text[text.index("{") :]) if "{" in text else None
    return done.code, document, text + done.err.decode()


def is_enough(document):
    """Whether there was time for blocks of all kinds: at least two, for an interval."""
    if document is None or document["ceiling"] is None:
        return False
    return not any("the time was too short" in note for note in document["notes"])


def test_the_ceiling_is_what_the_sleeps_say(results):
    """The worker takes 128 ms for a batch, or 8 once it has read it; the step takes 10."""
    code, document, text = results["stalls"]
    assert (code, "damaged" in text, "finally" in text) == (0, False, False), text
    ceiling = document["ceiling"]
    assert ceiling["low"] <= ceiling["mean"] <= ceiling["high"]
    assert ceiling["pairs"] == len(document["rounds"]) >= 1
    assert ceiling["mean"] > 2
    rates = document["samples_per_s"]
    assert rates["real"] < rates["same"]
    shares = {each["stall"]: each["mean"] for each in document["shares"]}
    assert sum(shares.values()) == pytest.approx(1)
    assert max(shares, key=shares.get) == "storage"
    assert document["loader"]["dataset"] == "Numbers"
    assert document["setting"]["num_workers"] == 1


def test_sentences_say_what_was_measured(results):
    for name in ("stalls", "step", "epochs", "left", "stream"):
        _, document, text = results[name]
        assert "with data always ready this loop would be at most" in document["sentence"].lower()
        assert re.search(r"\d rounds? of blocks", text), text


def test_sending_is_told_from_making(results):
    """The main process takes 30 ms to unpickle a batch, its worker 2 to make it."""
    code, document, text = results["both"]
    assert (code, "damaged" in text, "finally" in text) == (0, False, False), text
    shares = {each["stall"]: each["mean"] for each in document["shares"]}
    assert shares["delivery"] > shares["making"]
    assert document["samples_per_s"]["unsent"] > document["samples_per_s"]["same"]
    assert results["epochs"][1]["samples_per_s"]["unsent"] is None  # there is no worker


def test_a_step_that_binds_has_the_most_of_the_time(results):
    code, document, text = results["step"]
    assert code == 0, text
    shares = {each["stall"]: each["mean"] for each in document["shares"]}
    assert max(shares, key=shares.get) == "step"


def test_making_is_told_from_storage(results):
    code, document, text = results["epochs"]
    assert (code, "damaged" in text) == (0, False), text
    shares = {each["stall"]: each["mean"] for each in document["shares"]}
    assert shares["making"] > 0.3  # 20 ms of 40
    assert shares["storage"] < shares["making"] / 2
    assert any("the epoch was over meanwhile" in note for note in document["notes"])


def test_epochs_that_are_left_and_streams_go_on(results):
    for name in ("left", "stream"):
        code, document, text = results[name]
        assert (code, "damaged" in text, "finally" in text) == (0, False, False), text
        assert document["ceiling"]["mean"] > 1.2, text
    _, stream, _ = results["stream"]
    assert [each["stall"] for each in stream["shares"]] == ["waiting", "interference", "step"]
    assert any("storage cannot be separated" in note for note in stream["notes"])


def test_without_ceilings_the_program_is_started_again_for_other_ways(results):
    code, document, text = results["both"]
    assert (code, "finally" in text) == (0, False), text
    assert document["ceiling"]["mean"] > 1.2
    assert document["alternatives"]["tried"] == []  # it has no transforms
    assert "alternatives" not in results["step"][1]
    assert "is started again" in text


def test_a_program_that_ends_by_itself_keeps_its_exit_code(results):
    code, document, text = results["short"]
    assert (code, document) == (3, None)
    assert "finally 6" in text
    assert "before enough could be watched" in text
    assert "--watch" in text or "exhausted after 6 batches" in text


@pytest.mark.parametrize("workers", [0, 2])
def test_alternatives_are_measured_in_the_loop(torch, tmp_path, workers):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("torchvision")
    (tmp_path / "pictures" / "0").mkdir(parents=True)
    rows = bytes(place * 7 % 251 for place in range(800 * 600 * 3))
    for number in range(4):
        image.frombytes("RGB", (800, 600), rows).save(tmp_path / f"pictures/0/{number}.jpg")
    script = tmp_path / "train.py"
    script.write_text(PICTURES)
    command = [WARM_VISION, str(script), str(tmp_path / "pictures"), str(workers)]
    output = tmp_path / "advice.json"
    words = [*LOTUS, "advise", "--budget", "8s", "-o", str(output), "--json", "--", *command]
    done = Start(words, tmp_path, "advise", {}).end()
    assert done.code == 0, done.err.decode()
    document = json.loads(done.out.decode())
    by_name = {each["name"]: each for each in document["alternatives"]["tried"]}
    tensors = by_name["uint8_tensors"]
    assert (tensors["applicable"], tensors["exact"]) == (True, False)
    assert tensors["output"]["largest"] < 4 / 255
    # Normalize is missing, so nothing that changes no value fits.
    assert list(document["alternative_speedups"]) == ["all"]
    assert document["samples_per_s"]["exact"] is None
    assert b"put in" not in done.err  # of these, which nobody asked for
    shown = document["alternative_speedups"]["all"]
    helped = shown is not None and shown["low"] > 1 and shown["mean"] >= 1.02
    assert document["output"] == (str(output) if helped else None)
    assert output.exists() == helped
