"""Measures how well `lotus plan` predicts pipelines of operations that it knows from other ones.

    PYTHONPATH=. python tools/bench/accuracy/library_costs.py [--rounds 3]

Some pipelines are planned with an empty library of costs, each once a round; then others, whose
operations are known in part. Of these, the prediction was made before their plan has measured them.
Printed are how many operations were known, the CPU time of a sample that was predicted for these
with its range, what was measured, and the error; then the same for each operation. The pictures are
those of the demos: 500x375 (`jpegs`), and of many sizes (`coco`).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lotus.workloads.catalogue import WORKLOADS
from tools.bench import provenance

PROGRAM = """
import sys
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
data = ImageFolder(sys.argv[1], T.Compose(eval(sys.argv[2])))
for batch in DataLoader(data, batch_size=8, shuffle=True):
    pass
"""
_END = "T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)]"
# Name: data, operations.
LEARNT = {
    "validation": ("jpegs", f"[T.Resize(256), T.CenterCrop(224), {_END}"),
    "training": ("jpegs", f"[T.RandomResizedCrop(224), T.RandomHorizontalFlip(), {_END}"),
    "colour": ("jpegs", f"[T.Resize(128), T.ColorJitter(0.4, 0.4, 0.4), {_END}"),
    "squares": ("coco", f"[T.Resize((300, 300)), T.RandomHorizontalFlip(), {_END}"),
    "large crop": ("coco", f"[T.CenterCrop(384), T.ColorJitter(0.4, 0.4, 0.4), {_END}"),
}
PREDICTED = {
    "validation again": LEARNT["validation"],
    "resize, flip": (
        "jpegs", f"[T.Resize(256), T.CenterCrop(224), T.RandomHorizontalFlip(), {_END}",
    ),
    "training, colour": (
        "jpegs", "[T.RandomResizedCrop(224), T.RandomHorizontalFlip(), "
        f"T.ColorJitter(0.4, 0.4, 0.4), {_END}",
    ),
    "validation, coco": ("coco", f"[T.Resize(256), T.CenterCrop(224), {_END}"),
    "training, coco": ("coco", f"[T.RandomResizedCrop(224), T.RandomHorizontalFlip(), {_END}"),
    "squares, jpegs": ("jpegs", f"[T.Resize((300, 300)), T.ColorJitter(0.4, 0.4, 0.4), {_END}"),
    "gray": ("jpegs", f"[T.Resize(256), T.Grayscale(3), T.CenterCrop(224), {_END}"),
}  # fmt: skip


def costs(folder: Path, data: Path, operations: str) -> dict[str, Any]:
    """Plan a pipeline; return what was predicted and measured of its operations."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "lotus", "plan", "--json", "--ram", "0", "--disk", "1GB"]
    command += ["--budget", "0s", "-f", "-o", str(folder / "plan.json")]
    command += ["--", sys.executable, str(program), str(data), operations]
    environ = {**os.environ, "XDG_CACHE_HOME": str(folder / "caches")}
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout)["costs"])


def row(name: str, found: dict[str, Any]) -> str:
    """Return the row of a pipeline or an operation; times in ms."""
    predicted, measured = found["predicted"], found["measured_ns"]
    if predicted is None:
        return f"{name:40} {found.get('why') or 'nothing is known'}"
    ms, low, high = (predicted[key] / 1e6 for key in ("ns", "low_ns", "high_ns"))
    error = ms / (measured / 1e6) - 1
    within = "in" if low <= measured / 1e6 <= high else "out"
    spans = f"{ms:6.3f} ({low:.3f} to {high:.3f}) {measured / 1e6:6.3f}"
    return f"{name:40} {spans} {error:+7.1%} {within}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=1, help="plans of each learnt pipeline")
    args = parser.parse_args()
    print(provenance.header(), flush=True)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lotus"
    folders = {}
    for workload in WORKLOADS.values():
        folders[workload.maker] = cache / workload.folder(workload.count)
    errors = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A folder without the one of annotations, which has no pictures.
        (folder / "coco").mkdir()
        (folder / "coco" / "train2017").symlink_to(folders["coco"] / "train2017")
        folders["coco"] = folder / "coco"
        for _ in range(args.rounds):
            for data, operations in LEARNT.values():
                costs(folder, folders[data], operations)
        library = folder / "caches" / "lotus" / "costs"
        learnt = {path.name: path.read_bytes() for path in library.iterdir()}
        print(
            f"learnt: {', '.join(LEARNT)}, {args.rounds} times each; load {os.getloadavg()[0]:.1f}"
        )
        for pipeline, (data, operations) in PREDICTED.items():
            for path in library.iterdir():  # each knows only what was learnt
                path.unlink()
            for path, content in learnt.items():
                (library / path).write_bytes(content)
            found = costs(folder, folders[data], operations)
            known = [each for each in found["operations"] if each["predicted"] is not None]
            title = f"{pipeline}: {len(known)} of {len(found['operations'])} known"
            print(f"{row(title, found)}; waited {found['waited_share']:.0%}", flush=True)
            if known:
                errors.append(abs(found["predicted"]["ns"] / found["measured_ns"] - 1))
            for each in found["operations"]:
                print(row(f"    {each['name']}", each), flush=True)
    print(f"error of a pipeline: median {statistics.median(errors):.1%}, at most {max(errors):.1%}")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
