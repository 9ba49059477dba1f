"""Run: a run directory as documented pandas DataFrames."""

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from lotus.common import notebook
from lotus.common.errors import LotusError
from lotus.common.numbers.array_types import Ints
from lotus.common.text import redaction
from lotus.format import job_ranks, run_claim
from lotus.format.manifest import sound
from lotus.format.run_directory import ATTACHED
from lotus.joining import python_stacks
from lotus.reading import recorded_notes
from lotus.reading.launcher import blocking_table, own_code_table
from lotus.reading.launcher.launcher_tables import LauncherTables
from lotus.reading.logs import process_states, run_json, run_logs
from lotus.reading.logs.event_log import Lost
from lotus.reading.logs.process_tree import Assembly
from lotus.reading.tables import batch_tables as batches
from lotus.reading.tables import (
    counter_tables,
    intervals,
    sample_tables,
    summary_tables,
    table_pieces,
)
from lotus.reading.tables.frame_cache import FrameCache


def load(path: str | os.PathLike[str], trust: bool = False) -> "Run":
    """Read the run directory `path`.

    `trust` is needed only for the samples of a run that somebody else recorded, or that was moved:
    with it, lotus opens the files of this machine that the samples name, and runs perf on perf.data
    where only perf can read it.

    Raises LotusError, with one line that names the next step, if there is no run that this version
    can read. A run in which no DataLoader was iterated has empty tables.
    """
    return Run(path, trust)


class Run(LauncherTables):
    """One recording. Every table is a DataFrame, computed when it is first used.

    Rows that belong to a process begin with rank (0 if the job set none), local_rank (-1 if
    unknown), world_size (if unknown, 1 without ranks and -1 with them), host (category; "" if
    unknown) and pid. A worker has the ranks of the process that started it.

    Times are nanoseconds of CLOCK_MONOTONIC: `*_ns` is a duration, except `start_ns`, `*_start_ns`,
    `end_ns`, `time_ns`, `put_ns`, `ready_ns`, `arrival_ns`, `taken_ns` and `loop_ns`, which are
    points in time. -1 means no worker, loader, epoch, batch, position or sample; NaN (or <NA>)
    means that a number was not measured.
    Loaders are numbered per rank: those of main processes first, then those made inside workers.

    path      the directory
    trusted   whether this user recorded the run and it was not moved, or `trust` was given
    manifest  run.json. `ranks` lists the main processes that recorded, with rank, local_rank,
              world_size, host and pid as in their rows. `hosts`, in a merged run, says how each
              host's clock was converted to the first one: host, clock, at_ns, offset_ns (of the
              first clock at that time), drift_ppb, error_ns (None if unknown), method
    """

    def __init__(self, path: str | os.PathLike[str], trust: bool = False) -> None:
        self.path = Path(path)
        if (self.path / ATTACHED).is_file():
            raise LotusError(
                f"{path} was sampled by lotus attach, and this needs every batch: lotus report "
                "shows what it has; for more, lotus trace -- COMMAND"
            )
        self.manifest, wrong = sound(run_json.read(self.path))
        self.trusted = trust or run_claim.is_ours(self.path, self.manifest)
        self._lost: list[Lost] = []
        if wrong:
            what = f"run.json has fields or values that lotus does not write: {', '.join(wrong)}"
            self._lost.append(Lost(what, -1, len(wrong), 0))
        self._reports = summary_tables.processes(self.path, self._lost)
        logs = run_logs.logs(self.path, self.manifest, self._lost)
        if not logs and not self._lost and self.manifest.get("state") != "ended":
            raise LotusError(
                f"{path} has no events yet: wait until its program has ended, "
                "or record it again with: lotus trace -o DIRECTORY -- COMMAND"
            )
        hosts = job_ranks.names(self.manifest.get("hosts") or ())
        assembly = Assembly(logs, bool(self.manifest.get("merged")), hosts)
        self._lost += summary_tables.losses(assembly)
        self.manifest["ranks"] = assembly.recorded()
        self._frames = FrameCache(assembly)
        self.manifest.setdefault("hosts", [])

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def _repr_html_(self) -> str | None:
        return None if notebook.run_html is None else notebook.run_html(self)

    @property
    def _assembly(self) -> Assembly:
        return self._frames.whole

    @property
    def _outline(self) -> Assembly:
        return self._frames.outline

    @cached_property
    def ops(self) -> pd.DataFrame:
        """One row per operation: first operations in samples by process and time, then the others.

        rank, local_rank, world_size, host, pid, tid, worker, loader, epoch, batch, position (in the
        batch), sample (its index in the data set), operation (category), parent (the container that
        holds the operation, "" if none), index (position in the container), nested (inside another
        operation of its sample or, outside samples, of its thread), start_ns, duration_ns; with
        level op+cpu also cpu_ns, minor_faults, major_faults, read_bytes, run_delay_ns (its thread
        was ready to run, but had no core: duration_ns = cpu_ns + run_delay_ns + blocked time),
        process_cpu_ns (of all threads of its process meanwhile).
        """
        return sample_tables.operations(self._outline, self._with_cpu())

    @cached_property
    def counters(self) -> pd.DataFrame:
        """One row per counted interval, with `lotus trace --counters`; else empty.

        rank, local_rank, world_size, host, pid, tid, worker, loader, epoch, batch, kind (category:
        "operation", "fetch" (all of it), "collate"), operation (category, "" for other kinds),
        nested, row (in `ops`, -1 for other kinds), start_ns, duration_ns, readings (how often the
        counters were read in the interval; their cost is subtracted), enabled_ns, running_ns (below
        enabled_ns if the counters were shared; the counts are then scaled), scaled, helper_ns (CPU
        time of the process's other threads during the fetch, without the feeder; NaN for other
        kinds), and one float column per event: its count on the fetching thread (task_clock in ns),
        NaN if it could not be counted.
        """
        return self._counted[0]

    @cached_property
    def _counted(self) -> tuple[pd.DataFrame, Ints]:
        return counter_tables.counters(self._outline)

    @cached_property
    def functions(self) -> pd.DataFrame:
        """C and C++ functions under each operation, with `lotus trace --perf`; else empty.

        kind (as in `intervals`; for samples outside all intervals, what is known about them),
        operation ("" for kinds other than operations), helper_of (for a helper thread, the
        operation that it worked for), event, library, function, samples, share (of the operation's
        samples of this event), count (of the event, in ns for the clocks: estimated from samples
        and, where the event was counted, from the exact total), low, high (95 % interval of count).
        Raises LotusError if the samples cannot be read.
        """
        from lotus.joining import sample_join  # slow to import

        if not (self.path / sample_join.PERF_DATA).exists():
            columns = "kind operation helper_of event library function samples share count low high"
            return pd.DataFrame(columns=columns.split())
        return sample_join.map_run(self).functions

    @cached_property
    def python_functions(self) -> pd.DataFrame:
        """Python functions and lines under each operation, with `lotus trace --py-spy`; else empty.

        kind ("operation", "collate", "fetch": the data set's own code), operation, function, file,
        line, self_ns (the line itself, or C code that it called, was running), total_ns (the line
        was on the stack; a caller's total includes its callees, so only self_ns adds up), samples.
        Raises LotusError if the recording of py-spy cannot be read.
        """
        return python_stacks.python_functions(self)

    @cached_property
    def counted_events(self) -> list[dict[str, Any]]:
        """The events of `counters`, each once: name, type, config, config1, flags ("u": user
        space, "k": kernel)."""
        return counter_tables.events_of(self._outline)

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """Intervals of each thread: pid, tid, start_ns, end_ns, kind, operation, worker, row.

        One row per interval; those of one thread nest or are disjoint. kind (category):
        "operation", "collate", "fetch", "send", "idle", "start-up", "wait", "step". Time in nested
        intervals belongs to the innermost, so what remains of "fetch" is the data set's own code.
        row: the row in `ops`, for operations.
        """
        return intervals.intervals(
            self._frames.once, self.ops, self.waits, self.epochs, self.workers
        )

    @cached_property
    def other_intervals(self) -> pd.DataFrame:
        """`intervals` without the operations, of which there may be more than fit in memory."""
        none = table_pieces.empty(self).ops
        return intervals.intervals(self._frames.once, none, self.waits, self.epochs, self.workers)

    @cached_property
    def exact(self) -> pd.DataFrame:
        """Exact counts, parallel to `intervals`: one float column per event, and scaled.

        NaN if an interval was not counted. A count includes those of nested intervals.
        """
        counters, batch_rows = self._counted
        names = counter_tables.names_of(self._outline)
        return intervals.exact(self.intervals, counters, batch_rows, names)

    @cached_property
    def samples(self) -> pd.DataFrame:
        """One row per sample.

        rank, local_rank, world_size, host, pid, worker, loader, epoch, batch, position, sample,
        start_ns, duration_ns, ops_ns (its top-level operations), self_ns (the rest), many (the row
        is a whole batch, fetched in one call; its sample is -1).
        """
        return sample_tables.samples(self._outline)

    @cached_property
    def pieces(self) -> table_pieces.Pieces:
        """`samples` and `ops` in pieces that fit in memory: `for piece in run.pieces: piece.ops`.

        A sequence; a piece is read when it is asked for. Raises LotusError then if its log changed.
        """
        return table_pieces.Pieces(self)

    @cached_property
    def batches(self) -> pd.DataFrame:
        """One row per batch that was made or taken, sorted by rank, loader, epoch and batch.

        rank, local_rank, world_size, host, pid and tid (of its maker; -1: not recorded), worker,
        loader, epoch, batch, size (samples; of a data set that yields whole batches by their first
        dimension, or 1 where that does not tell), bytes, flags, idle_ns (the worker waited for its
        index), fetch_start_ns, fetch_ns, samples_ns, collate_start_ns, collate_ns, self_ns (fetch
        less samples and collate), cpu_ns, minor_faults, major_faults, read_bytes,
        voluntary_switches and involuntary_switches (of the thread, during the fetch), run_delay_ns
        (it was ready to run then, but had no core: fetch_ns = cpu_ns + run_delay_ns + blocked
        time), process_cpu_ns (of all threads of its process during the fetch), snapshot_ns (the
        worker's part of a snapshot of a StatefulDataLoader, after the fetch; NaN in older runs),
        put_ns, send_start_ns, pickle_ns, lock_ns, write_ns, send_ns (their sum), send_bytes,
        send_tid, pin_start_ns, pin_ns, ready_ns (pinned, else pickled, else put; without workers:
        fetched), arrival_ns (taken from the workers' queue), wait_start_ns, wait_ns, sampler_ns
        (drawing indices in that `next`), taken_ns
        (`next` returned), delay_ns (taken less ready), step_ns (the training step, until the
        following `next`), device_idle_ns and device_busy_ns (as in `waits`), out_of_order (order is
        "early"), order ("early": arrived before the `next` that returned it, or was returned before
        an earlier batch; "late": a batch requested later arrived or was returned first; "in turn";
        NaN if it was never taken), first (of its epoch).
        """
        return self._made("batches", batches.batches(self._assembly, self._frames.waits))

    @cached_property
    def waits(self) -> pd.DataFrame:
        """One row per `next` that returned a batch or failed.

        rank, local_rank, world_size, host, pid, tid, loader, epoch, batch, start_ns, wait_ns,
        step_ns; during the `next` wait_cpu_ns and wait_run_delay_ns (its thread was ready to run,
        but had no core), wait_process_cpu_ns (of all threads of its process), and the same of the
        step: step_cpu_ns, step_run_delay_ns, step_process_cpu_ns; snapshot_ns (the main process's
        part of snapshots of a StatefulDataLoader, part of wait_ns; NaN in older runs), sampler_ns
        (drawing indices in the `next`; NaN in older runs), arrival_ns, failed. Only where an
        accelerator was timed, by its own clock: device_idle_ns (it had nothing left to do on the
        loop's stream during the `next`), device_busy_ns (at most, in the step; NaN where it had not
        finished it when it was last looked at).
        """
        return self._made("waits", batches.waits(self._assembly, self._frames.waits))

    @cached_property
    def syncs(self) -> pd.DataFrame:
        """One row per backward pass in which DistributedDataParallel averaged gradients on a CPU.

        rank, local_rank, world_size, host, pid, step (how many such passes of this process came
        before, timed or not), start_ns (the pass reaches the model's output), ready_ns (this rank
        has computed all its gradients), end_ns (the gradients are averaged), exposed_ns (end less
        ready: synchronisation that does not overlap with computing gradients, DDP's copying
        included). Models on a GPU, FSDP and compiled DDP are not timed: they have no rows, and,
        except for compiled DDP, a note.
        """
        return summary_tables.syncs(self._outline)

    @cached_property
    def models(self) -> pd.DataFrame:
        """One row per model whose gradients a process averaged by DistributedDataParallel.

        rank, local_rank, world_size, host, pid, parameters (number of trained values), shapes
        (SHA-256 over one line per trained parameter with its name and sizes, sorted by name).
        """
        return summary_tables.models(self._outline)

    @cached_property
    def workers(self) -> pd.DataFrame:
        """One row per worker process.

        rank, local_rank, world_size, host, pid, worker, loader (-1: its parent left no record),
        start_ns (of the process, else of its loop), loop_ns, ready_ns (requested its first index),
        startup_ns (ready less start of `iter()`), startup_cpu_ns and startup_delay_ns (its main
        thread on a core, and ready without one, until then), import_ns and unpickle_ns (of a worker
        that was spawned: from its start until it had imported the program, and from then until it
        had read what was pickled for it; else NaN), end_ns (NaN if killed), batches, samples,
        fetch_ns, idle_ns, cpu_ns (sums), cpus (that it was allowed to use when it was ready, such
        as "0-3,8"; "" if unknown), threads and torch_threads (that its process has, and in which
        torch computes in it, after its first batch; -1 if unknown), reads_worker_info (something in
        it read which worker it is, how many there are or its seed, or worker_init_fn prepared it;
        missing if killed, and in older runs).
        """
        return self._made("workers", summary_tables.workers(self._assembly))

    @cached_property
    def killed_workers(self) -> pd.DataFrame:
        """One row per worker that a signal ended: rank, local_rank, world_size, host, pid (of the
        process that started it), worker, worker_pid, signal."""
        return summary_tables.killed_workers(self._outline)

    @cached_property
    def loaders(self) -> pd.DataFrame:
        """One row per loader and process.

        rank, local_rank, world_size, host, pid, loader, name (the variable, folder or role that
        shows its purpose), call_site (`file:line` that builds it, or iterates it if its
        construction was not seen), iterated_at (`file:line`), class, dataset, dataset_kind,
        dataset_length, length, batch_size, num_workers, prefetch_factor, pin_memory,
        persistent_workers, start_method, drop_last, in_order, sampler, batch_sampler, collate_fn,
        timeout, snapshot_every_n_steps (of torchdata's StatefulDataLoader), threads_set_at
        (`file:line` of a call of `torch.set_num_threads` in the main module or the file that
        iterates it), library_threads_set (`VARIABLE=VALUE at
        file:line` that the program sets, or `file:line` of a call that gives OpenMP, numpy's BLAS
        or cv2 several threads), workers_needed_at (`file:line` of code that works in workers only).
        """
        return summary_tables.loaders(self._outline)

    @cached_property
    def epochs(self) -> pd.DataFrame:
        """One row per iteration of a loader.

        rank, local_rank, world_size, host, pid, loader, epoch, start_ns, startup_ns (`iter()` to
        the end of the first `next`), iter_ns (`iter()` itself), iter_run_delay_ns (its thread was
        ready to run meanwhile, but had no core), iter_sampler_ns (of `iter()`: iterating the
        sampler and drawing from it; NaN in older runs), end_ns (NaN if killed), batches, exhausted,
        shutdown_ns, peak_rss (bytes; the peak of the process until then), ahead (batches that a
        library takes before it yields the first), sanity (whether it was Lightning's sanity check
        before training), cpus (that the iterating thread was allowed to use, such as "0-3,8"; "" if
        unknown), threads (Python threads of the program besides its main thread; -1 if unknown),
        torch_threads (in which torch computes; -1 if unknown), own_ns (CPU time of the tracer's
        work around `next`, in the training steps; NaN if unknown), state_dict_ns (`state_dict()` of
        a StatefulDataLoader, in the training steps; or NaN), callback_ns (a callback of
        lotus.integrations, after this epoch began and before the next).
        """
        return self._made("epochs", summary_tables.epochs(self._assembly))

    @cached_property
    def resources(self) -> pd.DataFrame:
        """One row per process and second.

        rank, local_rank, world_size, host, pid, worker, time_ns, pss, rss (bytes), descriptors, shm
        (bytes). pss and rss are 0 where they were not read.
        """
        return summary_tables.resources(self._outline)

    @cached_property
    def blocking(self) -> pd.DataFrame:
        """The states of threads that made, awaited or used batches, as the launcher observed them
        at most 50 times a second; empty if it did not (`lotus.trace()`, merged runs, older runs).

        pid, worker, operation ("" for the data set's own code, "collate", "(next)"; "(step)": since
        the last batch was taken), reason ("computing", or ready to; "lock", of one process;
        "shared-lock"; "sleep"; "file", "socket", "local-socket" (to a process of this machine) and
        "pipe"; "events", as in poll; "storage"; "page-fault"; "child"; "other"), looks (how many
        observations found this state). Code that runs after an operation in the same sample counts
        as that operation.
        """
        return blocking_table.table(self._launcher_record, self._outline.processes)

    @cached_property
    def places(self) -> pd.DataFrame:
        """Where the threads of `blocking` were blocked, where it is known: pid, operation, reason
        (as there), place (of "file" and "storage": a file, or its directory with "/" at its end; of
        "socket": the peer as address:port), file_system (its type; "" if unknown), looks."""
        return blocking_table.places(self._launcher_record, self._outline.processes)

    @cached_property
    def standing(self) -> pd.DataFrame:
        """Processes that made, awaited or used a batch and stood at one point for 5 s or longer
        until they were last observed: pid, worker, operation, reason (as in `blocking`; `alike` of
        `looks` found it), place (as in `places`; "" if unknown), since_ns, seen_ns."""
        return blocking_table.standing(self._launcher_record, self._outline.processes)

    @cached_property
    def operations(self) -> pd.DataFrame:
        """One row per operation that was found: operation, parent, index, kind, file, first, last
        (the lines of the function that it calls; "", -1, -1 if it is not a Python function)."""
        return summary_tables.operations(self._outline.processes)

    @cached_property
    def own_code(self) -> pd.DataFrame:
        """Python stacks of the data set's own code, collate, the sampler or the training step,
        recorded in one process for two seconds, of one pause between its loops, and of a process
        that stood still; one row per frame.

        part ("fetch", "collate", "sampler", "step", "pause", "standing", "beside": other threads,
        unless they wait), stack, depth (0: the function that the loader calls, otherwise the
        outermost one), function, file, line, text (of the program's innermost line; else ""),
        samples (of its stack). Empty if none of them took much of the time, or if py-spy was not
        installed or not allowed.
        """
        own_code = own_code_table.table(self._launcher_record)
        return own_code_table.outside_operations(own_code, self.operations)

    @cached_property
    def stack_times(self) -> pd.DataFrame:
        """When stacks of `own_code` were taken, of main threads: stack, pid, time_ns, bound_ns (by
        which it may be wrong). Empty in older runs, and of a py-spy before 0.4."""
        return own_code_table.times(self._launcher_record)

    @cached_property
    def paths(self) -> pd.DataFrame:
        """Files of the slowest samples: rank, local_rank, world_size, host, pid, worker, sample,
        path, duration_ns."""
        return summary_tables.paths(self._outline)

    @cached_property
    def first_batches(self) -> pd.DataFrame:
        """Checksums and sizes of the first batch of each worker, and its random generators.

        rank, local_rank, world_size, host, pid, worker, loader, epoch, content (a checksum; missing
        if the batch holds nothing that could distinguish it), generator, state (a checksum of the
        generator's state before it), tensor_bytes, storage_bytes (of its tensors, and of all that
        these are views of), double_bytes (of its tensors of float64), zero_share (of the values of
        large tensors, 0 to 1); NaN in older runs. One row has the generator "", one each it used.
        """
        return summary_tables.first_batches(self._outline)

    @cached_property
    def full_collections(self) -> pd.DataFrame:
        """Full collections of garbage, in the first 200 of each kind and process that had some.

        rank, local_rank, world_size, host, pid, worker, during ("fetch", "next" or "step"), time_ns
        (when that began), count.
        """
        return summary_tables.full_collections(self._outline)

    @cached_property
    def sample_digests(self) -> pd.DataFrame:
        """Smallest checksums of a stream's samples in a worker's first pass, unless too many.

        rank, local_rank, world_size, host, pid, worker, loader, epoch, samples (in all), of
        ("sample", or "series": the labels of twelve in a row), digest.
        """
        return summary_tables.sample_digests(self._outline)

    @cached_property
    def processes(self) -> pd.DataFrame:
        """Every Python process that ran lotus's hook: pid, ppid, time_ns, executable, argv, python,
        torch and torch_ns (its version, and when torch.utils.data was imported; missing if it
        was not)."""
        return self._reports

    @cached_property
    def lost(self) -> pd.DataFrame:
        """Data that was not recorded or cannot be read: what, pid, count, bytes."""
        return summary_tables.lost(self._lost)

    @cached_property
    def notes(self) -> list[str]:
        """Remarks of the tracer, without repetitions; first, which parts of the job are missing."""
        remarks = [redaction.text(event["text"]) for event in self._events("note")]
        return recorded_notes.notes(self.path, self.manifest, remarks, self._launcher_record)

    @cached_property
    def open_waits(self) -> pd.DataFrame:
        """Waits in progress when the run ended (if it was killed), which are not in `waits`: pid,
        loader, epoch, batch, start_ns, wait_ns (until the run's end)."""
        rows = process_states.open_waits(self.path, self.manifest.get("end_ns"))
        columns = ["pid", "loader", "epoch", "batch", "start_ns", "wait_ns"]
        return pd.DataFrame(rows, columns=columns).astype("int64")

    @cached_property
    def unseen(self) -> list[dict[str, Any]]:
        """Everything that could not be observed: {"what": ..., "why": ...}, each once."""
        return recorded_notes.unseen(self._events("unseen"))

    def _made(self, name: str, table: pd.DataFrame) -> pd.DataFrame:
        self._frames.made(name)
        return table

    def _events(self, name: str) -> list[dict[str, Any]]:
        return [event for process in self._outline.processes for event in process.events[name]]

    def _with_cpu(self) -> bool:
        levels = (process.log.header.get("level") for process in self._outline.processes)
        return "op+cpu" in (self.manifest.get("level"), *levels)
