"""The layout of an event log: what the recorder writes and the reader outside reads.

A log (``events/*.ltr``) is one file per process, append-only, little-endian:

* file header: ``FILE_MAGIC``, u32 length of the JSON that follows, JSON (UTF-8).
  The JSON repeats the frame descriptions below, so that a log can be read without this file;
  its last member is ``CHECK``, of all that stands before it.
* frames: ``FRAME_HEADER`` (magic, kind, flags, payload length, CRC-32 of those three fields
  and the payload), then the payload: the frame's fixed fields, then its arrays back to back.
  The fixed field ``n_<array>`` is the number of rows of an array.

Times are nanoseconds of CLOCK_MONOTONIC. Field codes are those of :mod:`struct`.
"""

import json
import struct
import zlib

SCHEMA = 1
FILE_MAGIC = b"LTR1"
FILE_HEADER = struct.Struct("<4sI")
FRAME_MAGIC = 0x5246544C  # "LTFR"
FRAME_HEADER = struct.Struct("<IHHII")  # magic, kind, flags, payload length, crc
# Most payload bytes of a frame. A normal batch needs a thousandth of that. For a batch that needs
# more, such as one of millions of samples, the recorder writes the fixed fields only. A reader
# treats longer frames as damaged, so it never needs more memory.
MOST = 64 << 20
MOST_ROWS = 48 << 20  # bytes of the arrays of one batch, or of one wait
_CHECKED = struct.Struct("<HHI")  # the header fields that the CRC covers

CHECK = b', "crc": "%08x"}'
_TAIL = len(CHECK % 0)

# `frames` of the header and the reader are generated from this table.
# kind: (name, fixed fields, arrays in order)
# An array is (name, fields); all its rows have the same width.
CPU = (
    ("cpu_ns", "Q"),  # CPU time of the thread during the operation
    ("minor_faults", "Q"),
    ("major_faults", "Q"),
    ("read_bytes", "Q"),
    ("run_delay_ns", "Q"),  # that thread was ready to run, but had no core; or UNMEASURED
    ("process_cpu_ns", "Q"),  # CPU time of the whole process meanwhile
)
CPU_BYTES = 8 * len(CPU)  # of one row
# An operation outside a sample, on another thread than the fetch, or too long for `ops`.
_LOOSE = (
    ("start_ns", "Q"),
    ("duration_ns", "Q"),
    ("operation", "I"),
    ("tid", "I"),
    ("position", "i"),  # of the sample in its batch; -1: in none
    ("pad", "I"),
)
BATCH, WAIT, LOOSE, RESOURCES, EVENT, COUNTS, SYNC, DEVICE = 1, 2, 3, 4, 5, 6, 7, 8
FRAMES = {
    # One batch made: in a worker, or in the main process at num_workers=0.
    BATCH: (
        "batch",
        (
            ("loader", "i"),  # -1 in a worker, which knows only its pid
            ("epoch", "I"),  # in a worker: how often it was resumed
            ("batch", "Q"),
            ("worker", "i"),  # -1: the main process
            ("tid", "I"),
            ("size", "I"),  # samples
            ("flags", "I"),
            ("idle_start_ns", "Q"),  # the worker asked for an index ...
            ("idle_ns", "Q"),  # ... and waited so long for it
            ("fetch_start_ns", "Q"),
            ("fetch_ns", "Q"),
            ("collate_start_ns", "Q"),
            ("collate_ns", "Q"),
            ("put_ns", "Q"),  # a time: handed to the queue (or returned, in the main process)
            ("cpu_ns", "Q"),  # CPU time of the fetching thread during the fetch
            ("minor_faults", "I"),
            ("major_faults", "I"),
            ("read_bytes", "Q"),  # read from storage by this thread (ru_inblock)
            ("voluntary_switches", "I"),  # it waited for something ...
            ("involuntary_switches", "I"),  # ... or was taken off its core
            ("run_delay_ns", "Q"),  # that thread was ready to run, but had no core
            ("process_cpu_ns", "Q"),  # CPU time of the whole process during the fetch
            ("bytes", "Q"),  # of the batch's tensors and arrays
            ("snapshot_ns", "Q"),  # of the loader's state, by the worker after the fetch
            ("n_samples", "I"),
            ("n_index", "I"),
            ("n_index64", "I"),
            ("n_ops", "I"),
            ("n_ops_cpu", "I"),
            ("n_loose", "I"),
            ("n_loose_cpu", "I"),
            ("n_sends", "I"),
        ),
        (
            # `ops` is how many rows of the array `ops` were complete when the sample ended.
            ("samples", (("start_ns", "Q"), ("duration_ns", "Q"), ("ops", "Q"))),
            # Sample indices, 4 bytes each; or 8 where one does not fit; or neither (unknown).
            ("index", (("sample", "I"),)),
            ("index64", (("sample", "q"),)),
            # Start and end modulo 2^32: each lies less than 2^32 ns after the start of its sample
            # (or the operation is in `loose`). Rows are in order of completion.
            ("ops", (("start_low", "I"), ("end_low", "I"), ("operation", "I"))),
            ("ops_cpu", CPU),  # parallel to `ops`, or empty
            ("loose", _LOOSE),
            ("loose_cpu", CPU),  # parallel to `loose`, or empty
            # What the feeder thread did with earlier batches of this worker.
            (
                "sends",
                (
                    ("epoch", "Q"),
                    ("batch", "Q"),
                    ("start_ns", "Q"),  # pickling starts; its end is when the batch is ready
                    ("pickle_ns", "Q"),
                    ("lock_ns", "Q"),
                    ("write_ns", "Q"),
                    ("bytes", "Q"),  # written to the pipe
                    ("tid", "Q"),
                ),
            ),
        ),
    ),
    # One call of `next` in the training loop.
    WAIT: (
        "wait",
        (
            ("loader", "i"),
            ("epoch", "I"),
            ("batch", "Q"),
            ("tid", "I"),
            ("flags", "I"),
            ("start_ns", "Q"),
            ("end_ns", "Q"),
            ("arrival_ns", "Q"),  # taken from the queue of the workers; 0 without workers
            # At its start and end: CPU time of the thread, how long the thread had been ready to
            # run without a core, CPU time of the process.
            ("start_cpu_ns", "Q"),
            ("start_run_delay_ns", "Q"),
            ("start_process_cpu_ns", "Q"),
            ("end_cpu_ns", "Q"),
            ("end_run_delay_ns", "Q"),
            ("end_process_cpu_ns", "Q"),
            ("snapshot_ns", "Q"),  # of the loader's state, between the two
            ("sampler_ns", "Q"),  # drawing indices, between the two
            ("n_pins", "I"),
            ("n_loose", "I"),
            ("n_loose_cpu", "I"),
        ),
        (
            ("pins", (("batch", "Q"), ("start_ns", "Q"), ("end_ns", "Q"))),
            ("loose", _LOOSE),
            ("loose_cpu", CPU),
        ),
    ),
    # Spans and named callables outside any batch.
    LOOSE: (
        "loose",
        (("n_loose", "I"), ("n_loose_cpu", "I")),
        (("loose", _LOOSE), ("loose_cpu", CPU)),
    ),
    # The process once a second.
    RESOURCES: (
        "resources",
        (
            ("time_ns", "Q"),
            ("worker", "i"),
            ("descriptors", "I"),
            ("pss", "Q"),  # bytes; 0: not read this time
            ("rss", "Q"),  # bytes
            ("shm", "Q"),  # bytes in use in /dev/shm, by anybody
        ),
        (),
    ),
    # Counters of the fetching thread at the edges of the batch whose frame follows.
    COUNTS: (
        "counts",
        (
            ("fetch_start_ns", "Q"),  # of that batch
            ("tid", "I"),
            (
                "words",
                "I",
            ),  # of a reading: per group its events' number, enabled ns, running ns, counts
            ("helper_ns", "Q"),  # CPU time of this process's other threads during the fetch
            ("collate_first", "I"),  # places of the readings around collate; both 0: none
            ("collate_last", "I"),
            ("n_readings", "I"),
            ("n_edges", "I"),
        ),
        (
            # The readings in order, the first at the start of the fetch, the last at its end. One
            # without a number of events could not be made.
            ("readings", (("word", "Q"),)),
            # Places of the readings before and after each row of the batch's `ops`, or UNCOUNTED.
            ("edges", (("first", "I"), ("last", "I"))),
        ),
    ),
    # One backward pass of a DistributedDataParallel model, at whose end gradients were averaged.
    SYNC: (
        "sync",
        (
            ("step", "Q"),  # passes of this process before it
            ("start_ns", "Q"),  # it came to the model's output ...
            ("ready_ns", "Q"),  # ... had computed all gradients of this rank ...
            ("end_ns", "Q"),  # ... and has their averages
            ("tid", "I"),
            ("models", "I"),  # that averaged in it
        ),
        (),
    ),
    # What an accelerator did before and after a batch was handed over, by its own clock.
    DEVICE: (
        "device",
        (
            ("start_ns", "Q"),  # of the `next` that handed the batch over, by the host's clock
            ("idle_ns", "Q"),  # nothing left on the loop's stream, from the asking to the handing
            ("busy_ns", "Q"),  # at most, from there to the asking for the batch after it
        ),
        (),
    ),
    # Something rare, as a JSON object with the key "event".
    EVENT: ("event", (("time_ns", "Q"), ("n_text", "I")), (("text", (("byte", "B"),)),)),
}

UNCOUNTED = 0xFFFFFFFF  # place of a reading that was not made
UNMEASURED = 0xFFFFFFFFFFFFFFFF  # a time that the kernel did not tell

# flags of BATCH and WAIT
FAILED = 1  # an exception came out
MANY = 2  # `__getitems__`: one row of `samples` covers all samples of the batch
STOPPED = 4  # an iterable data set had no (full) batch left
ITEMS = 16  # `size` counts what the data set yields: how many samples that holds is not known
SENDS = 8  # holds no batch, only the last `sends` of a worker

FIXED = {
    kind: struct.Struct("<" + "".join(code for _, code in fixed))
    for kind, (_, fixed, _) in FRAMES.items()
}


def description() -> list[dict[str, object]]:
    """Return FRAMES as JSON-able lists, for the file header."""
    return [
        {
            "kind": kind,
            "name": name,
            "fields": [list(field) for field in fixed],
            "arrays": [[array, [list(field) for field in fields]] for array, fields in arrays],
        }
        for kind, (name, fixed, arrays) in FRAMES.items()
    ]


def file_header(facts: "dict[str, object]") -> bytes:
    """Return the first bytes of a log, which describe its process."""
    text = _checked(json.dumps(facts).encode())
    return FILE_HEADER.pack(FILE_MAGIC, len(text)) + text


def _checked(text: bytes) -> bytes:
    return text[:-1] + CHECK % zlib.crc32(text[:-1])


def is_whole(text: bytes) -> bool:
    """Return whether a header's JSON is unchanged, or was written without a check."""
    body, check = text[:-_TAIL], text[-_TAIL:]
    return not check.startswith(CHECK[:8]) or text == _checked(body + b"}")


def frame(kind: int, payload: bytes, flags: int = 0) -> bytes:
    """Return the bytes of one frame; its CRC-32 is of kind, flags, length and payload."""
    size = len(payload)
    crc = zlib.crc32(payload, zlib.crc32(_CHECKED.pack(kind, flags, size)))
    return FRAME_HEADER.pack(FRAME_MAGIC, kind, flags, size, crc) + payload


def record(kind: int, codes: str, fields: "list[int]", arrays: "tuple[bytes, ...]") -> bytes:
    """Return a frame of fixed fields, whose widths are the `codes` of `struct`, and arrays.

    `record` of `_batch.c` does the same.
    """
    return frame(kind, struct.pack(codes, *fields) + b"".join(arrays))
