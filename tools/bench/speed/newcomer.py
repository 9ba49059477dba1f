"""Follows the README's "Five minutes" literally in an empty environment, and times each step.

    PYTHONPATH=. python tools/bench/speed/newcomer.py [--keep DIRECTORY]

The commands are those of the section, in its order, and no others. They run in a fresh clone of
this checkout's last commit, with an empty HOME and only the variables PATH, LANG, TERM and those of
pip. What the section takes for granted is made first, and timed as well: an environment with torch,
and a training script. Printed are wall seconds, which depend on the network and on the load of the
machine. It stops at the first step that fails, with exit code 1.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.bench import provenance

SECTION = "## Five minutes"
# Someone's own script: pictures of a usual size, a small model, the loader as torch makes it.
TRAIN = """\
import torch
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import FakeData

pipeline = transforms.Compose([
    transforms.RandomResizedCrop(224),
    transforms.RandomHorizontalFlip(),
    transforms.ToTensor(),
    transforms.Normalize([0.5] * 3, [0.5] * 3),
])
data = FakeData(size=600, image_size=(3, 400, 400), num_classes=10, transform=pipeline)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 7, stride=4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
    torch.nn.Flatten(), torch.nn.Linear(128, 10),
)
optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
for images, labels in DataLoader(data, batch_size=16, shuffle=True):
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
print(f"loss {loss.item():.3f}")
"""


def steps(readme: str) -> list[str]:
    """Return the commands of the section: its indented lines, without their remarks."""
    section = readme.split(SECTION, 1)[1].split("\n## ", 1)[0]
    lines = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    commands = [shlex.join(shlex.split(line, comments=True)) for line in lines if line]
    return [command for command in commands if command]


def environment(home: Path, programs: Path) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    path = f"{programs}:/usr/local/bin:/usr/bin:/bin"
    return {**variables, "HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "TERM": "dumb"}


def take(command: list[str], where: Path, environ: dict[str, str]) -> float:
    """Run one step, show what it says; returns its seconds."""
    begin = time.perf_counter()
    completed = subprocess.run(
        command, cwd=where, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    print(completed.stdout.rstrip())
    if completed.returncode:
        sys.exit(f"\nfailed with exit code {completed.returncode}: {shlex.join(command)}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keep", type=Path, help="a directory to work in, and to leave")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        follow(Path(folder) if args.keep is None else args.keep)


def follow(folder: Path) -> None:
    home, clone, programs = folder / "home", folder / "lotus", folder / "env"
    home.mkdir(parents=True)
    environ = environment(home, programs / "bin")
    commit = provenance.commit()
    subprocess.run(["git", "clone", "--quiet", str(provenance.ROOT), str(clone)], check=True)
    pip = [str(programs / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    torch = ["--constraint", "constraints.txt", "torch", "torchvision"]
    durations = {
        "(an environment)": take([sys.executable, "-m", "venv", str(programs)], clone, environ)
    }
    durations["(torch, torchvision)"] = take([*pip, *torch], clone, environ)
    (clone / "train.py").write_text(TRAIN)
    durations["(python train.py)"] = take(["bash", "-c", "python train.py"], clone, environ)
    for command in steps((clone / "README.md").read_text()):
        print(f"\n$ {command}", flush=True)
        durations[command] = take(["bash", "-c", command], clone, environ)
    print(f"\n{provenance.cpus()}, Linux {provenance.machine()['kernel']}")
    print(f"commit {commit}")
    for command, seconds in durations.items():
        print(f"{seconds:8.1f} s  {command}")


if __name__ == "__main__":
    main()
