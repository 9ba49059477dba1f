"""The table of causes: a new one is a row in one of the modules here, and its place in CAUSES.

Each row takes its time from what the rows before it have left, so their order matters: what is out
of the ordinary comes before the ordinary, and what nothing explains comes last. Threads beyond the
cores, and too few cores, come before a slow worker: while threads compete for cores, it is chance
which worker is slower.
"""

from lotus.analysis.verdict.causes.cause_row import CauseRow
from lotus.analysis.verdict.causes.cores.crowded_workers import WORKER_THREADS
from lotus.analysis.verdict.causes.cores.few_cores import AFFINITY
from lotus.analysis.verdict.causes.cores.other_programs import OTHERS
from lotus.analysis.verdict.causes.cores.step_delay import KEPT_PROCESSES, STEP_DELAY
from lotus.analysis.verdict.causes.cores.step_threads import STEP_THREADS
from lotus.analysis.verdict.causes.limits import LIMITS
from lotus.analysis.verdict.causes.making.blocked_work import LATENCY, SHARED_LIMIT, SHARED_LOCK
from lotus.analysis.verdict.causes.making.costly_batches import SLOW_BATCHES
from lotus.analysis.verdict.causes.making.outliers import SLOW_SAMPLES, SLOW_WORKER, STALLS
from lotus.analysis.verdict.causes.making.prefetch import PREFETCH, PREFETCH_OF_REST
from lotus.analysis.verdict.causes.making.storage import COLD_FILES, SWAPPED_OUT
from lotus.analysis.verdict.causes.making.work import COLLATE, DATASET, FETCH, OPERATION
from lotus.analysis.verdict.causes.memory import MEMORY
from lotus.analysis.verdict.causes.randomness import SAME_RANDOM
from lotus.analysis.verdict.causes.repetition import SAMPLES_TWICE, STARVED, UNEVEN
from lotus.analysis.verdict.causes.run.edges import REST, SHUTDOWN, STARTUP
from lotus.analysis.verdict.causes.run.loader_state import SNAPSHOTS
from lotus.analysis.verdict.causes.run.outside import OUTSIDE
from lotus.analysis.verdict.causes.run.slow_rank import SLOW_RANK
from lotus.analysis.verdict.causes.run.standing import STANDING
from lotus.analysis.verdict.causes.step.interpreter import INTERPRETER, STEP_HELD
from lotus.analysis.verdict.causes.step.training_step import TRACING, TRAINING_STEP
from lotus.analysis.verdict.causes.step.uneven_steps import LONG_STEPS
from lotus.analysis.verdict.causes.transport import HANDOVER, INDEX, PINNING, SENDING

CAUSES: tuple[CauseRow, ...] = (
    OUTSIDE,
    STANDING,
    TRACING,
    SAMPLES_TWICE,
    INTERPRETER,
    STEP_HELD,
    STEP_THREADS,
    STEP_DELAY,
    LONG_STEPS,
    TRAINING_STEP,
    STARTUP,
    SHUTDOWN,
    SNAPSHOTS,
    SENDING,
    PINNING,
    HANDOVER,
    INDEX,
    SWAPPED_OUT,
    STARVED,
    SLOW_SAMPLES,
    PREFETCH,
    STALLS,
    SLOW_BATCHES,
    PREFETCH_OF_REST,
    WORKER_THREADS,
    AFFINITY,
    SLOW_WORKER,
    UNEVEN,
    COLD_FILES,
    KEPT_PROCESSES,
    OTHERS,
    SHARED_LOCK,
    SHARED_LIMIT,
    LATENCY,
    OPERATION,
    DATASET,
    COLLATE,
    FETCH,
    MEMORY,
    LIMITS,
    SAME_RANDOM,
    SLOW_RANK,
    REST,
)
BY_KIND = {row.kind: row for row in CAUSES}
