"""How much is recorded: --level, --batches, --every, --max-log, and what the log costs."""

import pytest

from tests.launching import SMALL_TORCH

PRINTED = b"4096.0\n"  # the sum of 2 x + 1 over 0..63


@pytest.fixture(scope="module")
def at(traced):
    def run(*options):
        got = traced("plain_numbers.py", options=options, env=SMALL_TORCH)
        assert (got.code, got.out, got.err) == (0, PRINTED, b"")
        return got.run

    return run


def test_batch_level_keeps_batches_only(at):
    run = at("--level", "batch")
    assert (len(run.batches), len(run.waits), len(run.samples), len(run.ops)) == (8, 8, 0, 0)
    assert run.batches["size"].sum() == 64
    assert (run.batches["fetch_ns"] > 0).all()


def test_sample_level_adds_samples(at):
    run = at("--level", "sample")
    assert (len(run.batches), len(run.samples), len(run.ops)) == (8, 64, 0)
    assert run.samples["sample"].tolist() == list(range(64))


def test_op_level_adds_operations_and_is_the_default(at):
    run, explicit = at(), at("--level", "op")
    assert run.ops["operation"].value_counts().to_dict() == {"Scale": 64, "Shift": 64}
    assert len(explicit.ops) == len(run.ops)
    assert "cpu_ns" not in run.ops.columns


def test_op_cpu_level_adds_what_the_kernel_tells(at):
    ops = at("--level", "op+cpu").ops
    assert len(ops) == 128
    assert (ops["cpu_ns"] > 0).all()
    # CPU time of a thread cannot pass wall time by more than two readings of the clocks; but a
    # virtual machine that stands still between these may count that for the thread's.
    assert (ops["cpu_ns"] <= ops["duration_ns"] + 100_000).mean() > 0.95
    assert (ops["minor_faults"] >= 0).all()


def test_batches_bounds_what_is_recorded_in_detail(traced):
    got = traced("plain.py", options=("--batches", "2:5"))
    assert (got.code, got.out, got.err) == (0, b"12288.0\n", b"")
    run = got.run
    assert sorted(run.samples["batch"].unique()) == [2, 3, 4]
    assert sorted(run.ops["batch"].unique()) == [2, 3, 4]
    # The consumer's side of the others is there, and not taken for a loss.
    assert run.waits["batch"].tolist() == list(range(8))
    assert run.batches["fetch_ns"].notna().tolist() == [False] * 2 + [True] * 3 + [False] * 3
    assert run.lost.empty


def test_every_takes_one_batch_in_n(at):
    run = at("--every", "3")
    assert sorted(run.samples["batch"].unique()) == [0, 3, 6]


def test_max_log_stops_recording_and_says_so(tmp_path, trace_command):
    # GIVEN a run that would write far more than it may
    script = tmp_path / "long.py"
    script.write_text(
        "import time\n"
        "from torch.utils.data import DataLoader\n"
        "total = 0\n"
        "for batch in DataLoader(list(range(40_000)), batch_size=1000, num_workers=1):\n"
        "    total += sum(batch)\n"
        "    time.sleep(0.1)\n"
        "print(total)\n"
    )
    from tests.integration.conftest import PYTHON

    got = trace_command(PYTHON, script, options=("-q", "--max-log", "200kB"), env=SMALL_TORCH)
    # THEN the program is whole, the log is bounded (it is looked at once a second) and it is said
    assert (got.code, got.out, got.err) == (0, b"799980000\n", b"")
    size = sum(path.stat().st_size for path in (got.path / "events").iterdir())
    assert 150_000 < size < 900_000
    assert 0 < len(got.run.samples) < 40_000
    assert any("max-log" in str(what) for what in got.run.lost["what"])


def test_a_hundred_bytes_an_image(tmp_path, trace_command):
    # GIVEN torchvision's image pipeline: a loader and four operations
    script = tmp_path / "images.py"
    script.write_text(
        "from torch.utils.data import DataLoader, Dataset\n"
        "class Operation:\n"
        "    def __call__(self, value):\n"
        "        return value\n"
        "class Compose:\n"
        "    def __init__(self):\n"
        "        self.transforms = [Operation() for _ in range(4)]\n"
        "    def __call__(self, value):\n"
        "        for transform in self.transforms:\n"
        "            value = transform(value)\n"
        "        return value\n"
        "class Images(Dataset):\n"
        "    def __init__(self):\n"
        "        self.loader = int\n"
        "        self.transform = Compose()\n"
        "    def __len__(self):\n"
        "        return 12_800\n"
        "    def __getitem__(self, index):\n"
        "        return self.transform(self.loader(index))\n"
        "for _ in DataLoader(Images(), batch_size=128, num_workers=1):\n"
        "    pass\n"
    )
    from tests.integration.conftest import PYTHON

    got = trace_command(PYTHON, script, env=SMALL_TORCH)
    assert got.code == 0
    assert len(got.run.ops) == 5 * 12_800
    size = sum(path.stat().st_size for path in (got.path / "events").iterdir())
    assert size <= 100 * 12_800
