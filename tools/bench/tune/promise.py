"""Compares the gain that `lotus tune` promises with that of whole epochs, on real scripts.

    PYTHONPATH=. python tools/bench/tune/promise.py --data FOLDER [--rounds 3] [--only NAME ...]
        [--lotus CHECKOUT] [-o FILE]

The scripts are those of `lotus demo` and of speed/newcomer.py as a first version would be written:
without workers, with torch's default number of threads; some also with one thread of torch, which
leaves the other cores to workers, or with one long epoch, most of which follows the trials.
`small_cnn` is threads_train.py, whose threads compete with workers. Each is tuned once. Then
it trains whole epochs in turn with its own setting, with the tuned one, and with a worker per core,
with torch's default threads and with one. Printed are the median seconds of its own loops, as the
script prints them, the speed-ups, median and range, and the promised one: that of the program's own
steps or, marked "in trials", that of the trials. A promise holds if its interval overlaps the range
of the rounds. `--lotus` names another checkout to tune with. Takes about 40 minutes on two free
cores.
"""

import argparse
import dataclasses
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from lotus.settings import tuned_file
from lotus.settings.space import Setting
from lotus.workloads.catalogue import WORKLOADS
from tools.bench import provenance
from tools.bench.overhead.comparison import data_of, loop_of
from tools.bench.speed.newcomer import TRAIN

SAMPLES = {
    "image_classification": 320,
    "segmentation": 24,
    "detection": 128,
    "audio": 128,
    "text": 2500,
    "tiny_images": 8000,
}
EPOCHS = 3
NEWCOMER = "newcomer"
SINGLE = ", 1 thread"
SMALL = "small_cnn"
CASES = [NEWCOMER, *SAMPLES, SMALL]
CASES += [name + SINGLE for name in (NEWCOMER, "image_classification", "audio")]
LONG = ", 3,000 pictures"  # an epoch of 188 batches, not 38
CASES += [NEWCOMER + LONG, NEWCOMER + SINGLE + LONG]


def newcomer(folder: Path, threads: str, epochs: int) -> list[str]:
    """Return the newcomer's script, printing its epochs as the others do; its command.

    With one epoch, that has five times as many pictures.
    """
    text = TRAIN if epochs > 1 else TRAIN.replace("size=600,", "size=3000,")
    before, _, after = text.partition("for images")
    loop = "for images" + after.partition("\nprint")[0]
    lines = [
        "import time",
        before,
        threads,
        f"for epoch in range({epochs}):",
        "    begun = time.time()",
    ]
    lines += ["    " + line for line in loop.splitlines()]
    lines += ["    took = time.time() - begun"]
    lines += ["    print(f'epoch {epoch}: loss {loss.item():.3f}, {len(data)} images '"]
    lines += ["          f'in {took:.1f} s, {len(data) / took:.1f} images/s')"]
    script = folder / "newcomer_train.py"
    script.write_text("\n".join(lines) + "\n")
    return [sys.executable, str(script)]


def command(name: str, folder: Path, data: Path) -> list[str]:
    epochs = 1 if name.endswith(LONG) else EPOCHS
    name, _, threads = name.removesuffix(LONG).partition(", ")
    if name == NEWCOMER:
        return newcomer(folder, "torch.set_num_threads(1)" if threads else "", epochs)
    if name == SMALL:
        return [sys.executable, str(Path(__file__).with_name("threads_train.py"))]
    data_made = data_of(name, SAMPLES[name], data)
    script = str(WORKLOADS[name].script)
    return [
        sys.executable, script, "--data", str(data_made), "--workers", "0", "--epochs", str(EPOCHS),
        *(["--threads", "1"] if threads else []),
    ]  # fmt: skip


def lotus(checkout: Path, *words: str) -> list[str]:
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from lotus.cli import main; main()"
    return [sys.executable, "-c", code, str(checkout), *words]


def output(words: list[str]) -> str:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    completed = subprocess.run(words, capture_output=True, text=True, env=environment)
    if completed.returncode:
        raise SystemExit(
            f"{' '.join(words)}: exit code {completed.returncode}\n{completed.stderr[-2000:]}"
        )
    return completed.stdout


def per_core(tuned: Path, threads: int | None) -> Path:
    """Return the same file with a worker a core instead, and so many threads of torch."""
    plan = tuned_file.read(tuned)
    cores = len(os.sched_getaffinity(0))
    setting = Setting(cores, persistent_workers=True, torch_threads=threads)
    entries = tuple(dataclasses.replace(loader, setting=setting) for loader in plan.loaders)
    path = tuned.with_name(f"cores-{threads}.json")
    tuned_file.write(path, dataclasses.replace(plan, loaders=entries))
    return path


def words_of(setting: dict) -> str:
    threads = f", {setting['torch_threads']} thread" if setting.get("torch_threads") else ""
    if not setting["num_workers"]:
        return f"no workers{threads}"
    return f"{setting['num_workers']} x {setting['prefetch_factor'] or 2}{threads}"


def promise(name: str, folder: Path, options: argparse.Namespace) -> str:
    """Tune a script, train with each setting; a line of the table."""
    program = command(name, folder, options.data)
    tuned = folder / "tuned.json"
    words = lotus(options.lotus, "tune", "--json", "-o", str(tuned), "--", *program)
    result = json.loads(output(words))
    ways = {"own": program}
    if result["benefit"]:
        ways["tuned"] = lotus(options.lotus, "run", "-q", "--settings", str(tuned), "--", *program)
    for way, threads in (("cores", None), ("cores, 1 thread", 1)):
        path = str(per_core(tuned, threads))
        ways[way] = lotus(options.lotus, "run", "-q", "--settings", path, "--", *program)
    durations: dict[str, list[float]] = {way: [] for way in ways}
    chance = random.Random(name)
    for _ in range(options.rounds):
        for way in chance.sample(list(ways), len(ways)):
            durations[way].append(loop_of(output(ways[way]))[0])
    line = f"{name:37} {words_of(result['best']):20}"
    checked = result["checked"]
    speedup = result["speedup"] if checked is None else checked["speedup"]
    if result["benefit"] or checked is not None:
        line += f" {speedup['mean']:5.2f} ({speedup['low']:.2f} to {speedup['high']:.2f})"
        line += "" if checked is not None else " in trials"
    line = f"{line:91} "
    if result["benefit"]:
        gains = [own / mine for own, mine in zip(durations["own"], durations["tuned"], strict=True)]
        meets = speedup["low"] <= max(gains) and speedup["high"] >= min(gains)
        line += f"{shown(gains):22} {'held' if meets else 'MISSED'}"
    else:
        line += f"{'-':22} {'-'}"
    line = f"{line:121}"
    for way in ("cores", "cores, 1 thread"):
        gains = [own / mine for own, mine in zip(durations["own"], durations[way], strict=True)]
        line += f" {shown(gains):22}"
    line += f" {statistics.median(durations['own']):5.1f} s"
    begins = ("a step takes", "not checked with")
    slowed = [note for note in result["notes"] if note.startswith(begins) or " in trials, " in note]
    return "\n".join([line, *(f"    {note}" for note in slowed)])


def shown(gains: list[float]) -> str:
    return f"{statistics.median(gains):5.2f} ({min(gains):.2f} to {max(gains):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder for the made data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="NAME")
    parser.add_argument("--lotus", type=Path, default=provenance.ROOT, help="checkout to tune with")
    parser.add_argument("-o", "--output", type=Path, help="file to write as well")
    options = parser.parse_args()
    lines = [
        *provenance.header(torch).splitlines(),
        f"each script tuned in 60 s, then {options.rounds} rounds of {EPOCHS} epochs each "
        "(small_cnn: one), in turn",
        "",
        f"{'script':37} {'best':20} {'said, times as fast':32} {'measured':22} {'':6} "
        f"{'a worker a core':22} {'the same, 1 thread':22} as written",
    ]
    print("\n".join(lines), flush=True)
    for name in options.only or CASES:
        with tempfile.TemporaryDirectory(prefix="lotus-bench-") as folder:
            lines.append(promise(name, Path(folder), options))
            print(lines[-1], flush=True)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
