"""The phases of threads in a sampled program."""

# Of a main process.
WAIT = "wait"  # blocked in the queue of batches
RECEIVE = "receive"  # reading and unpickling a batch
SAMPLER = "sampler"  # drawing indices
DRAW = "draw"  # work of a sampler before an epoch's first batch
STATE = "state"  # its part of a snapshot of the loader's state
NEXT = "next"  # other work in `next`
STEP = "step"
OUTSIDE = "outside"  # of all loops
IMPORTS = "imports"
SHUTDOWN = "shut-down"
# Of a process that makes batches.
OPERATION, DATASET, COLLATE = "operation", "dataset", "collate"
SNAPSHOT = "snapshot"  # of the loader's state, in a worker
# Of a worker.
IDLE = "idle"  # it has nothing to do
SEND = "send"  # pickling and writing a batch; of its feeder thread as well
# Of both.
STARTUP = "start-up"
# Of other threads.
FEEDER_IDLE, HELPER_IDLE, HELPER, PIN = "feeder-idle", "helper-idle", "helper", "pin"

TENSORS = "tensors"  # the name of what is sent or received, where it is that

MAKING = (OPERATION, DATASET, COLLATE, SNAPSHOT)
IN_NEXT = (WAIT, RECEIVE, SAMPLER, DRAW, STATE, NEXT, *MAKING)
ALL = (
    *IN_NEXT, STEP, OUTSIDE, IMPORTS, SHUTDOWN, IDLE, SEND, STARTUP,
    FEEDER_IDLE, HELPER_IDLE, HELPER, PIN,
)  # fmt: skip
