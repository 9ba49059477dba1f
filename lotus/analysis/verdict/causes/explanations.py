"""What each kind of cause means, for users: docs/causes.md is written from it (tools/causes.py)."""

from dataclasses import dataclass

_AGAIN = "Trace again with the change, then `lotus compare`."
_SETTING = "The command below the next step (`lotus tune` or `lotus sweep`) tries it."
_FREE = "Trace again while the cores are free, then `lotus compare`."
_NONE = "Trace again: the line is gone."


@dataclass(frozen=True)
class Explanation:
    """`meaning`: of the kind. `measured`: the evidence that it needs. `ruled_out`: when it is not
    named. `advice`: what to try. `test`: how to see whether that helped. All in words.
    """

    meaning: str
    measured: str
    ruled_out: str
    advice: str
    test: str


EXPLANATIONS = {
    "outside": Explanation(
        "most of the run is outside of its loops",
        "start and end of the program and of each loop",
        "All loops together wait longer, or it is under 20 % of the run.",
        "Do less there, or less often: checkpoints, evaluation, loading of data or models.",
        _AGAIN,
    ),
    "standing": Explanation(
        "nothing moved until the program was ended: a worker or the main process stands still",
        "the last observations of each process, and how long nothing had moved",
        "The program came to its end, or that was under 20 % of the loop.",
        "Find out what it waits for: `lotus top --stacks` shows it while it stands.",
        "Run it again: it goes on.",
    ),
    "tracing": Explanation(
        "lotus's own work around each batch",
        "CPU time of its hooks in the main process",
        "Never named first; an untraced run does not have it.",
        "Larger batches make it smaller.",
        "Run without lotus.",
    ),
    "samples-twice": Explanation(
        "samples come several times an epoch, as each worker reads all of the data",
        "checksums and indices of samples, first batches of all workers, length of the data set; "
        "of random samples, whether a worker asks which one it is",
        "The workers' samples differ, and an epoch has as many as the data set.",
        "Divide the data among the workers in `__iter__` (`get_worker_info()`).",
        _AGAIN,
    ),
    "interpreter": Explanation(
        "batches lie ready, while another Python thread holds the interpreter lock",
        "observations of the main thread in `next`, and the number of Python threads",
        "It waits for a lock in under 20 % of the observations, or there is no other thread.",
        "Let that thread do less, or move its work to another process.",
        _AGAIN,
    ),
    "step-held": Explanation(
        "the same in the training step",
        "observations of the main thread in its step, and stack samples of the other threads",
        "As above; also where the other threads stand at one line, or the step is on a device.",
        "As above.",
        _AGAIN,
    ),
    "step-threads": Explanation(
        "the step computes in more threads than there are cores for",
        "run-queue delay of the step's thread, CPU time of its helpers",
        "It lacks a core for under 10 % of its time, or its helpers use under 20 %.",
        "Fewer threads: `OMP_NUM_THREADS`, `torch.set_num_threads`.",
        "The command below the next step; or trace again, then `lotus compare`.",
    ),
    "step-delay": Explanation(
        "the step lacks a core, as the program's other processes use them",
        "run-queue delay of the step's thread, CPU time of workers and other processes",
        "It lacks a core for under 10 % of its time, or cores are free.",
        "Make samples cheaper or ahead of time, or stop what runs beside the workers.",
        _AGAIN,
    ),
    "long-steps": Explanation(
        "some training steps take many times as long, as with a validation or a checkpoint in them",
        "the time of each step, loops over other loaders within it, and stack samples of long ones",
        "Such steps take under 10 % of the loop, or over 35 % of the steps are as long.",
        "Do what they do less often or in less time; a validation has a verdict of its own.",
        _AGAIN,
    ),
    "consumer": Explanation(
        "the training step: what remains of the time between two batches",
        "time between two calls of `next`",
        "Waits take more of the loop: then it comes last.",
        "Speed up the step; loading keeps up.",
        "`lotus advise --ceilings` measures what data that are always ready would gain.",
    ),
    "start-up": Explanation(
        "the time from `iter()` to the first batch, also of a loader that is made anew",
        "times of `iter()`, of the workers' start, and of first batches; how often it is made",
        "Under 2 % of the loop.",
        "`persistent_workers=True`, one loader for all epochs, fewer imports, a smaller data set.",
        _SETTING,
    ),
    "shut-down": Explanation(
        "workers take long to end",
        "time of the end of an epoch",
        "Under 2 % of the loop.",
        "`persistent_workers=True`; end the threads of a worker, and what it writes then.",
        _SETTING,
    ),
    "snapshots": Explanation(
        "a StatefulDataLoader takes snapshots of its state",
        "time of the snapshots in workers and in `next`",
        "The loader takes none.",
        "Raise `snapshot_every_n_steps`.",
        _AGAIN,
    ),
    "send": Explanation(
        "batches are on their way from the workers",
        "pickling, writing, and arrival of each batch; its bytes, and those through the pipe",
        "Under 2 % of the loop; usual times of under 2 ms a batch set no pace.",
        "Smaller types, tensors instead of objects, fewer and larger tensors, or no workers.",
        "`lotus sweep` over num_workers; or trace again, then `lotus compare`.",
    ),
    "pin": Explanation(
        "batches wait for the thread that copies them to pinned memory",
        "times of arrival and of delivery",
        "`pin_memory` is off.",
        "`pin_memory=False`, or smaller batches.",
        _SETTING,
    ),
    "main-process": Explanation(
        "the sampler, or other work of the main process in `next`",
        "time of the sampler in `iter()` and `next`",
        "Under 2 % of the loop.",
        "A sampler that draws many indices at a time, with numpy or torch.",
        _AGAIN,
    ),
    "index": Explanation(
        "a batch was not asked for in time, and a worker had nothing to do",
        "when each index was sent, and the idle time of its worker",
        "The worker was busy.",
        "Raise `prefetch_factor`, or look at the sampler.",
        _SETTING,
    ),
    "swap": Explanation(
        "pages come back from swap, as memory is full",
        "pages swapped in and out, free memory, major faults, bytes read",
        "A fifth of the memory is free, or less was swapped than half of what was read.",
        "Fewer workers, less prefetch, smaller types.",
        _AGAIN,
    ),
    "starved-workers": Explanation(
        "workers of an iterable data set have no data, or far less than others",
        "the samples that each worker made",
        "All workers made about as many.",
        "More or equal shards, or divide the samples of each shard.",
        _AGAIN,
    ),
    "slow-samples": Explanation(
        "a few samples cost far more than a typical one; as batches come in order, later ones wait",
        "the time of each sample, in each epoch; whether it computed or waited",
        "No sample takes over 5 times its worker's median, or slow ones are ordinary here.",
        "Reduce these samples, `in_order=False`, or a larger `prefetch_factor`.",
        "The command below the next step; or trace again, then `lotus compare`.",
    ),
    "prefetch": Explanation(
        "too few batches are made ahead for work of unequal length",
        "a replay of the loop with the measured times and other prefetch factors",
        "No factor saves half of the waits, or the work is even.",
        "The `prefetch_factor` that the next step names.",
        _SETTING,
    ),
    "stalls": Explanation(
        "samples that were slow once, and quick in other epochs",
        "the time of each sample in each epoch, and what it waited for",
        "The same samples are slow each time, or they compute.",
        "Find out who else uses the storage, or holds the lock.",
        _AGAIN,
    ),
    "slow-batches": Explanation(
        "batches that are slow as a whole, or cost far more than others",
        "the time of each batch, and of its samples",
        "Over a quarter of the batches are as slow.",
        "Spread what they do over batches, or a larger `prefetch_factor`.",
        "The command below the next step; or trace again, then `lotus compare`.",
    ),
    "worker-threads": Explanation(
        "a worker computes in more threads than there are cores for",
        "run-queue delay of the fetches, CPU time of the helpers, their number",
        "Fetches lack a core for under 10 % of their time, or helpers use under 20 %.",
        "One thread in each worker.",
        "The command below the next step; or trace again, then `lotus compare`.",
    ),
    "affinity": Explanation(
        "the program, or its workers, may use only some of the cores (affinity, quota)",
        "affinity of each process, CPU quota, throttled time, run-queue delay",
        "It may use all cores, or hardly waits for them.",
        "Allow more cores, or raise the quota.",
        _AGAIN,
    ),
    "slow-worker": Explanation(
        "one worker is slower than the others",
        "the typical time of a sample in each worker",
        "It is less than 1.5 times that of the others.",
        "Look at its shard, its start and its core; shuffle the data.",
        _AGAIN,
    ),
    "cold-files": Explanation(
        "files come from storage, not from the page cache",
        "bytes read, major faults, CPU time of the fetches; the slowing of samples by others",
        "Under 2 % of the loop. Not ruled out where the program fills its cores.",
        "A faster or local disk, memory, fewer and larger files; more workers if they help.",
        "`lotus sweep` over num_workers; or trace again, then `lotus compare`.",
    ),
    "kept-processes": Explanation(
        "processes that the program keeps beside its workers have the cores",
        "CPU time of these processes, and batches that arrive late",
        "They use under half a core, or other programs use more.",
        "Run fewer of them, at another time, or on cores of their own.",
        _AGAIN,
    ),
    "other-programs": Explanation(
        "other programs, or a hypervisor, have the cores",
        "run-queue delay, the cores that the program itself used, steal time",
        "The program itself fills its cores, or hardly waits for them.",
        "Measure when they are free.",
        _FREE,
    ),
    "shared-lock": Explanation(
        "workers take turns at a lock that processes share (a file's, or of multiprocessing)",
        "observations of the workers' threads in their system calls",
        "In under 20 % of the observations they wait for one, or there is one worker.",
        "Hold it for less time, or give each worker a file or connection of its own.",
        _AGAIN,
    ),
    "shared-limit": Explanation(
        "samples wait for something that serves all workers together: a line, a rate limit, a "
        "server that answers one at a time, or storage at its limit. Which of these is not "
        "measured, as bytes and requests are not seen",
        "observations of the workers, and of samples either their ends, which come at even "
        "distances, or their times beside few and many others",
        "Samples take as long beside fewer others; or it does not show, and it is `operation`, "
        "`dataset`, `collate` or `fetch`.",
        "Fewer bytes or requests, several samples at a time, a copy nearby; not more workers.",
        _AGAIN,
    ),
    "latency": Explanation(
        "each sample waits by itself for storage, a server or another process",
        "observations of the workers, and the times of samples beside few and many others",
        "Samples slow each other; or times beside fewer were not seen, and it is `operation`, "
        "`dataset`, `collate` or `fetch`.",
        "More workers, several requests at a time, or a copy nearby.",
        _SETTING,
    ),
    "operation": Explanation(
        "one operation of the pipeline: it computes, or waits as its title says",
        "the time of each call, and observations of its threads",
        "Its share in the table of operations is small.",
        "Make it cheaper or ahead of time; more workers where cores are free.",
        "The command below the next step; `lotus advise` tries other ways to do the same.",
    ),
    "dataset": Explanation(
        "the data set's own code, outside its operations",
        "the time of each sample without its operations, and stack samples",
        "It is little of the time in which batches are made.",
        "As for an operation: the function is named.",
        "The command below the next step; or trace again, then `lotus compare`.",
    ),
    "collate": Explanation(
        "samples are put together into a batch",
        "the time of collate, and stack samples",
        "Under 2 % of the loop.",
        "Stack tensors once; do in the data set what each sample needs.",
        _AGAIN,
    ),
    "fetch": Explanation(
        "the rest of the making of a batch, such as `__getitems__`",
        "the time of a fetch without its samples and collate",
        "It is little of the time in which batches are made.",
        "As for an operation.",
        "The command below the next step; or trace again, then `lotus compare`.",
    ),
    "memory": Explanation(
        "the workers' memory grows: copies of shared pages (copy-on-write), or a leak",
        "each worker's own pages, page faults, and the memory that is left",
        "It grows by under 64 MiB, or will not fill the memory.",
        "Records in arrays instead of lists and dicts; no cache without a limit.",
        _NONE,
    ),
    "limits": Explanation(
        "file descriptors or /dev/shm are nearly used up",
        "the most open descriptors of a process, and the fill of /dev/shm",
        "Less than 80 % of the limit was used, or the limit is not known.",
        "`ulimit -n`, `set_sharing_strategy('file_system')`, `--shm-size`, less prefetch.",
        _NONE,
    ),
    "same-random": Explanation(
        "several workers draw the same random numbers",
        "the state of the generators that their first batches used",
        "The states differ, or were not used.",
        "Seed the generator in each worker, with `torch.utils.data.get_worker_info().seed`.",
        _NONE,
    ),
    "slow-rank": Explanation(
        "the other ranks wait for one; that time is charged to what makes it late, and so it has "
        "none of its own",
        "how long each rank waits for data and is blocked in its step, or when each arrives at a "
        "synchronisation",
        "No rank is last more often than by chance, or waits for data for far longer.",
        "What makes it late; `lotus balance` for ranks of unequal speed.",
        "Record all ranks again, then `lotus compare`.",
    ),
    "unseen": Explanation(
        "waits for batches that have no record",
        "waits without a batch",
        "All batches were recorded.",
        "The report says why there is no record.",
        "Trace again.",
    ),
}
