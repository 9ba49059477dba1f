"""Installs the wheels of dist/ into empty environments and tries them there, away from this tree.

    python tools/wheel_check.py [--torch PYTHON=VERSION ...] [--python VERSION ...]

`make dist-check` runs it after `make dist`. Each Python from 3.10 on that the machine has gets an
environment of its own, with the wheel that fits it: it must print its version and its help, look
at the machine (`lotus doctor`) and report on a run of traces/. Those named by --torch get torch
first (`=newest`: what the index has), and then `lotus demo` and a verdict on a small training of
its own. It prints the seconds of each, and ends with 1 where anything failed. An environment with
torch takes 6 GB while it is tried, and some minutes.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = [f"3.{minor}" for minor in range(10, 15)]
# What fits a torch that is not the newest. It was built for numpy 1, which pandas would replace.
BESIDE = {"2.2.2": ["torchvision==0.17.2", "numpy<2"]}
TRAIN = """\
import time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.ones(16)

model = torch.nn.Linear(16, 1)
for batch in DataLoader(Slow(), batch_size=16):
    model(batch).sum().backward()
"""
# Where lotus lies, and whether it has the hooks in C.
WHERE = """\
import lotus, sys
from lotus.inside.trace.native import native_hooks
sys.exit(lotus.__file__.split("/lib/")[0] != sys.prefix or (native_hooks.MODULE is None) != {pure})
"""


class CheckFailedError(Exception):
    """A step that did not do what it should, with what it printed."""


class Environment:
    """An empty environment of one Python, whose commands run as by somebody who just came."""

    def __init__(self, python: str, folder: Path) -> None:
        self.folder, self.programs = folder, folder / "env" / "bin"
        variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        path = f"{self.programs}:/usr/local/bin:/usr/bin:/bin"
        self.environ = {**variables, "HOME": str(folder), "PATH": path, "LANG": "C.UTF-8"}
        subprocess.run([python, "-m", "venv", str(folder / "env")], check=True)

    def run(self, program: str, *words: str, shows: str = "") -> float:
        """Run a program of the environment that prints `shows`; return its seconds."""
        begin = time.perf_counter()
        completed = subprocess.run(
            [str(self.programs / program), *words], cwd=self.folder, env=self.environ,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if completed.returncode or shows not in completed.stdout:
            command = " ".join([program, *words])
            raise CheckFailedError(
                f"{command} (exit code {completed.returncode}):\n{completed.stdout[-3000:]}"
            )
        return time.perf_counter() - begin

    def pip(self, *words: str) -> float:
        return self.run("python", "-m", "pip", "install", "--quiet", *words)


def found(version: str) -> str | None:
    """Return a Python of that version that runs."""
    candidates = [
        shutil.which(f"python{version}"),
        *map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))),
    ]
    for python in filter(None, candidates):
        completed = subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True)
        if completed.returncode == 0:
            return python
    return None


def wheel_for(version: str) -> Path:
    """Return the wheel with hooks in C where there is one for this Python, else the pure one."""
    wheels = {path.name.split("-")[2]: path for path in (ROOT / "dist").glob("*.whl")}
    fitting = wheels.get(f"cp{version.replace('.', '')}", wheels.get("py3"))
    if fitting is None:
        sys.exit(f"dist/ has no wheel for Python {version}: run `make dist`")
    return fitting


def check(version: str, python: str, torch: str | None, folder: Path) -> str:
    """Try the wheel under one Python; returns the line about it."""
    wheel, durations = wheel_for(version), {}
    pure = wheel.name.endswith("-none-any.whl")
    environment = Environment(python, folder)
    if torch is not None:
        pinned = "torch" if torch == "newest" else f"torch=={torch}"
        durations["torch"] = environment.pip(pinned, *BESIDE.get(torch, ["torchvision"]))
    numpy_words = [word for word in BESIDE.get(torch or "", []) if word.startswith("numpy")]
    durations["pip install"] = environment.pip(str(wheel), *numpy_words)
    environment.run("python", "-c", WHERE.format(pure=pure))
    environment.run("lotus", "--version", shows=f"lotus {wheel.name.split('-')[1]}\n")
    durations["--help"] = environment.run("lotus", "--help", shows="report")
    durations["doctor"] = environment.run("lotus", "doctor")
    shutil.copytree(ROOT / "traces" / "classification" / "runs" / "workers0-0", folder / "run")
    durations["report"] = environment.run("lotus", "report", "run", shows="INPUT-BOUND")
    if torch is not None:
        (folder / "train.py").write_text(TRAIN)
        traced = ["trace", "-o", "own", "--", "python", "train.py"]
        durations["trace, to its verdict"] = environment.run("lotus", *traced, shows="-BOUND")
        durations["demo"] = environment.run("lotus", "demo", shows="-BOUND")
        says = "import torch; print(torch.__version__)"
        torch = subprocess.check_output([environment.programs / "python", "-c", says], text=True)
    beside = f", torch {torch.strip()}" if torch else ""
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in durations.items())
    return f"Python {version}{beside}, hooks in {'Python' if pure else 'C'}: {seconds}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--torch", nargs="*", default=["3.11=2.2.2", "3.13=newest"])
    parser.add_argument("--python", nargs="*", default=PYTHONS)
    args = parser.parse_args()
    torches = dict(pair.split("=") for pair in args.torch)
    failed, tried = False, set()
    for version in args.python:
        python = found(version)
        if python is None:
            print(f"Python {version}: this machine has none")
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                line = check(version, python, torches.get(version), Path(folder))
                tried.add(version)
            except CheckFailedError as error:
                failed, line = True, f"Python {version} FAILED: {error}"
        print(line, flush=True)
    print(f"load {os.getloadavg()[0]:.1f}, {len(os.sched_getaffinity(0))} CPUs")
    missing = set(torches) - tried
    if missing:
        print(f"not tried beside torch: Python {', '.join(sorted(missing))}")
    return int(failed or bool(missing))


if __name__ == "__main__":
    sys.exit(main())
