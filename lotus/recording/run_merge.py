"""Merges the runs that the hosts of a job recorded into one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lotus.common.errors import LotusError
from lotus.common.storage import files, sparse_files
from lotus.format import clock_offsets, job_ranks, manifest, run_directory
from lotus.reading.run import Run, load

_FREE = 60_000_000_000  # ns by which wall clocks of a job's hosts may differ


def merge(paths: Sequence[Path], output: Path, force: bool = False) -> Run:
    """Merge the runs at `paths` into the run directory `output`, and return it.

    Logs are copied unchanged. `hosts` in run.json has the conversion of their times to the first
    host's clock; `merged` has each run's run.json and what of it was not copied. Raises LotusError
    if the runs are not of one job, or cannot be read or written.
    """
    runs = [load(path) for path in paths]
    _refuse_others(runs)
    if any(output.resolve() == path.resolve() for path in paths):
        raise LotusError(f"{output} is one of the runs to merge; choose another directory with -o")
    hosts = clocks(runs)
    run_directory.make(output, force)
    (output / "events").mkdir(mode=0o700)
    ended = [run.manifest.get("end_ns") for run in runs]
    for number, run in enumerate(runs):
        _copy(run, output, number)
    first = runs[0].manifest
    record = {
        **first,
        "state": "ended",
        "end_ns": max((time_ns for time_ns in ended[:1] if isinstance(time_ns, int)), default=None),
        "memory_kills": _killed([run.manifest for run in runs]),
        "exit_code": _worst([run.manifest.get("exit_code") for run in runs]),
        "ranks": [],
        "recorders": None,  # what they left is not here
        "hosts": hosts,
        "merged": [
            {**run.manifest, "path": run.path.name, "not_merged": _left(run)} for run in runs
        ],
    }
    manifest.write(output, {**record, "ranks": job_ranks.recorded(output, job_ranks.names(hosts))})
    return load(output)


def _killed(manifests: Sequence[Mapping[str, Any]]) -> int | None:
    """Return how many processes were killed on all hosts; None: they were not counted.

    Runs on one host may have counted the same ones.
    """
    most: dict[object, int] = {}
    for each in manifests:
        if isinstance(count := each.get("memory_kills"), int):
            most[each.get("host")] = max(most.get(each.get("host"), 0), count)
    return sum(most.values()) if most else None


def _worst(codes: Sequence[Any]) -> Any:
    return next((code for code in codes if code), codes[0] if codes else None)


_BESIDE = {
    "perf.data": job_ranks.SAMPLES,
    "py-spy/*.json": "py-spy's stacks",
}


def _left(run: Run) -> list[str]:
    """Return the parts of a run that are not merged, as they have pids and times of their host."""
    left = [what for name, what in _BESIDE.items() if any(run.path.glob(name))]
    return left + ["the waits in which it ended"] * bool(len(run.open_waits))


def _copy(run: Run, output: Path, number: int) -> None:
    """Copy a run's logs and lines; names stay, but for those that another host gave as well."""
    try:
        for log in sorted((run.path / "events").glob("*.ltr")):
            if log.is_symlink() or not log.is_file():
                continue
            target = output / "events" / log.name
            if target.exists():
                target = target.with_name(f"{log.stem}-{number}.ltr")
            target.touch(0o600)  # whatever the umask
            with log.open("rb") as source, target.open("r+b") as copy:
                sparse_files.copy(source, copy)
        lines = run.path / "processes.jsonl"
        if lines.is_file() and not lines.is_symlink():
            (output / "processes.jsonl").touch(0o600)
            with open(output / "processes.jsonl", "ab") as file:
                file.write(files.read(lines, 64 << 20))
    except OSError as error:
        raise LotusError(
            f"cannot copy {run.path} to {output}: {error.strerror or error}; "
            "make room or choose another directory with -o, then merge again with -f"
        ) from None


def _refuse_others(runs: Sequence[Run]) -> None:
    """Raise LotusError if the runs cannot be parts of one job."""
    if len(runs) < 2:
        raise LotusError("merging takes two runs or more: lotus merge A B ... -o R")
    first = runs[0]
    if merged := [run for run in runs if run.manifest.get("merged")]:
        raise LotusError(
            f"{merged[0].path} is merged already: merge the runs of the hosts, all at once"
        )
    for run in runs:
        if not any(len(process.log.events) for process in run._assembly.processes):
            raise LotusError(f"{run.path} holds no recorded process; merge the others without it")
        if all(rank["world_size"] == 1 for rank in run.manifest["ranks"]):
            raise LotusError(
                f"{run.path} was not recorded in a job of several ranks; to compare runs, "
                "type: lotus compare A B"
            )
    for run in runs[1:]:
        for name, what in (("job", "job"), ("world", "size of the job")):
            ours, theirs = _facts(first)[name], _facts(run)[name]
            if ours and theirs and not ours & theirs:
                raise LotusError(
                    f"{first.path} and {run.path} are of different jobs ({what}: "
                    f"{_words(ours)} and {_words(theirs)}); {_HINT}"
                )
    owners: dict[Any, Run] = {}
    for run in runs:
        for place in _facts(run)["places"]:
            if place in owners:
                raise LotusError(
                    f"rank {place[1]} is in {owners[place].path} and in {run.path}: they are of "
                    f"different jobs, or twice the same; {_HINT}"
                )
            owners[place] = run
    if not all(_facts(run)["job"] for run in runs):
        spans = [_wall(run) for run in runs]
        for run, (begin, end) in zip(runs[1:], spans[1:], strict=True):
            if begin > spans[0][1] + _FREE or end < spans[0][0] - _FREE:
                raise LotusError(
                    f"{first.path} and {run.path} are of different jobs: one had ended when the "
                    f"other began; {_HINT}"
                )


_HINT = "merge the runs of one job: lotus merge A B ... -o R; lotus compare A B compares two"


def _words(values: set[Any]) -> str:
    return ", ".join(sorted(str(value)[:40] for value in values))


def _facts(run: Run) -> dict[str, set[Any]]:
    """Return facts about the job: its name (drawn by rank 0), worlds, (restart, rank) pairs."""
    processes = run._assembly.processes
    names = {event["job"] for process in processes for event in process.events["clock"]}
    worlds = {rank["world_size"] for rank in run.manifest["ranks"]} - {-1}
    places = {
        (str(process.log.header.get("restart") or 0), process.rank)
        for process in processes
        if not process.is_worker and process.place.rank is not None
    }
    return {"job": names, "world": worlds, "places": places}


def _wall(run: Run) -> tuple[int, int]:
    """Return when a run began and ended, by the wall clock (ns)."""
    begin = run.manifest.get("start_wall_ns") or 0
    start, end = run.manifest.get("start_ns"), run.manifest.get("end_ns")
    took = end - start if isinstance(start, int) and isinstance(end, int) else 1 << 60
    return begin, begin + took


def clocks(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the manifest's `hosts`: for each clock how it stands to that of the first run.

    Each is a dictionary with host, clock (its name in the logs), at_ns (on it), offset_ns (of the
    first clock there), drift_ppb, error_ns (None: not known), method, cpu and memory_bytes.
    """
    by_clock: dict[str, dict[str, Any]] = {}
    for run in runs:
        for process in run._assembly.processes:
            name = job_ranks.clock_of(process.log.header) or process.host
            host = by_clock.setdefault(
                name, {"host": process.host, "begin": process.start_ns, "run": run, "events": []}
            )
            end = run.manifest.get("end_ns")
            last = [event["time_ns"] for event in process.events["clock"]]
            host["end"] = max(end if isinstance(end, int) else 0, process.start_ns, *last)
            host["begin"] = min(host["begin"], process.start_ns)
            host["events"] += process.events["clock"]
    common = next(
        (event["reference"] for host in by_clock.values() for event in host["events"]),
        next(iter(by_clock)),
    )
    to_common = {name: _estimate(name, host, common) for name, host in by_clock.items()}
    first = next(iter(by_clock))
    _name_apart(by_clock)
    return [
        _entry(name, host, to_common[name], first, by_clock[first], to_common[first])
        for name, host in by_clock.items()
    ]


def _name_apart(by_clock: dict[str, dict[str, Any]]) -> None:
    """Number hosts of the same name, as each has its own clock, error and ranks."""
    taken: set[str] = set()
    for host in by_clock.values():
        name, number = host["host"], 1
        while host["host"] in taken:
            number += 1
            host["host"] = f"{name} ({number})"
        taken.add(host["host"])


def _estimate(name: str, host: dict[str, Any], common: str) -> clock_offsets.Clock | None:
    """Return a clock relative to that of the job's rank 0; None if they were not compared."""
    if name == common:
        return clock_offsets.Clock(at_ns=host["begin"])
    events = [event for event in host["events"] if event["reference"] == common]
    if not events:
        return None
    times, offsets, trips = (
        [event[key] for event in events] for key in ("time_ns", "offset_ns", "round_trip_ns")
    )
    return clock_offsets.estimate(times, offsets, trips, host["begin"], host["end"])


def _entry(
    name: str,
    host: dict[str, Any],
    clock: clock_offsets.Clock | None,
    first: str,
    origin: dict[str, Any],
    base: clock_offsets.Clock | None,
) -> dict[str, Any]:
    """Return an entry of `hosts`, from two clocks against a third."""
    at = host["begin"]
    if name == first:
        offset, drift, error, method = 0, 0.0, 0, "same clock"
    elif clock is not None and base is not None:
        # The time of both on rank 0's clock: t -> t + clock -> back by base.
        common = at + clock.offset_ns
        # A first host without rank 0: its own time when the common clock showed that.
        own = common - base.offset_ns
        own = base.at_ns + round((own - base.at_ns) / (1 + base.drift_ppb * 1e-9))
        offset, drift = own - at, clock.drift_ppb - base.drift_ppb
        error = clock.error_ns + base.error_ns
        method = clock.method if clock.method != "same clock" else base.method
    else:
        # Not compared: use the hosts' wall clocks, whose error is not known.
        walls = [_wall_less_own(side["run"]) for side in (host, origin)]
        offset, drift, error = walls[0] - walls[1], 0.0, None
        method = "the hosts' wall clocks"
    return {
        "host": host["host"],
        "clock": name,
        "at_ns": at,
        "offset_ns": offset,
        "drift_ppb": drift,
        "error_ns": error,
        "method": method,
        "cpu": host["run"].manifest.get("cpu"),
        "memory_bytes": host["run"].manifest.get("memory_bytes"),
    }


def _wall_less_own(run: Run) -> int:
    wall, own = (run.manifest.get(name) for name in ("start_wall_ns", "start_ns"))
    return int(wall or 0) - int(own or 0)


def sentences(run: Run) -> list[str]:
    """Describe a merged run in a line per host."""
    lines = []
    for host in run.manifest.get("hosts") or ():
        ranks = [rank["rank"] for rank in run.manifest["ranks"] if rank["host"] == host["host"]]
        name = json.dumps(str(host["host"]))[1:-1]
        error = host["error_ns"]
        bound = "an unknown error" if error is None else f"an error of at most {error / 1e3:.0f} us"
        exact = host["method"] == "same clock"
        clock = "the run's clock" if exact else f"clock by {host['method']}, with {bound}"
        lines.append(f"host {name}: ranks {', '.join(map(str, sorted(set(ranks))))}; {clock}")
    return lines
