"""Work whose time is spent in the kernel, on batches or in steps: evidence, words and advice."""

from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.kernel_time import KernelTime, making_kernel_time, step_kernel_time
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.remedy import NOTHING, Remedy
from lotus.analysis.verdict.causes.cause_row import Charge, Evidence
from lotus.analysis.verdict.causes.making.waiting import looked
from lotus.common.text.formatting import amount, share

_MUCH = 0.25  # of the CPU time
_MOST = 0.5  # of the making of batches: less may not be what the kernel works for
_LITTLE = 0.25  # of the kernel's time
_MANY = 100  # page faults a batch or step
# Of the kernel's time in steps, which may wait for a device in it. Several threads that fault at a
# time take eight times the least that a page fault takes.
_PART = 0.05
_BY_KERNEL = ("socket", "local-socket", "events", "pipe", "child")
_ELSEWHERE = 0.1  # of the observations: what it waits for is the kernel's work, too
SHARE, OF_COPIES, OF_FAULTS = "kernel_share", "copies_share", "page_faults_share"
FAULTS, REPLACED = "page_faults", "malloc_replaced"
KERNEL_FACTS = {
    SHARE: "The kernel's part of the CPU time of the processes that do this work, 0 to 1.",
    OF_COPIES: "The part of the kernel's time that reading and writing takes at most, 0 to 1.",
    OF_FAULTS: "The part of the kernel's time that page faults take at most, 0 to 1.",
    FAULTS: "Page faults a batch or step; of a batch, without those for the memory that is sent.",
    REPLACED: "1 if the program was started with another malloc than the system's, else 0.",
}
# It keeps what is freed. glibc's would do so with MALLOC_MMAP_MAX_=0 and a large
# MALLOC_TRIM_THRESHOLD_, but with torch's aligned arrays its heap grows (docs/gains.md).
OTHER_MALLOC = {"LD_PRELOAD": "libtcmalloc_minimal.so.4"}


def of_making(scope: Scope, fetch_share: float) -> dict[str, float]:
    """Return evidence of work that takes `fetch_share` (0 to 1) of the making of batches.

    Empty where the kernel has little of the time, or where that may be for other work.
    """
    return _evidence(scope, making_kernel_time(scope)) if fetch_share >= _MOST else {}


def of_steps(scope: Scope) -> dict[str, float]:
    """Return evidence of training steps; empty where the kernel has little of their time."""
    kernel = step_kernel_time(scope)
    return _evidence(scope, kernel) if kernel.least_of_faults >= _PART else {}


def _evidence(scope: Scope, kernel: KernelTime) -> dict[str, float]:
    if not kernel.share >= _MUCH:
        return {}
    return {
        SHARE: kernel.share,
        OF_COPIES: kernel.of_copies,
        OF_FAULTS: kernel.most_of_faults,
        FAULTS: kernel.faults,
        REPLACED: float("malloc" in scope.preloaded),  # tcmalloc, jemalloc, mimalloc
    }


def kernel_reason(evidence: Evidence, work: str = "making batches", unit: str = "batch") -> str:
    """Return a sentence on the kernel's part of the work; "" if it has little."""
    if not evidence.has(SHARE):
        return ""
    text = f"{share(evidence[SHARE])} of the CPU time of {work} was in the kernel"
    if evidence[FAULTS] >= _MANY:
        text += f", with {amount(evidence[FAULTS])} page faults a {unit}"
    if evidence[OF_COPIES] <= _LITTLE:
        return f"{text}; reading and writing was {share(evidence[OF_COPIES])} of that at most."
    return f"{text}."


def against_new_memory(charge: Charge, unit: str = "sample") -> Advice:
    """Return advice where memory is obtained anew for each `unit`; no words where it is not known.

    Where the kernel can only provide memory: it copies little, the thread is hardly seen to wait
    for other processes, and page faults may take most of the kernel's time.
    """
    evidence = Evidence(charge.evidence)
    looks = looked(charge)
    elsewhere = sum(looks.shares.get(reason, 0.0) for reason in _BY_KERNEL)
    provides = evidence[OF_COPIES] <= _LITTLE and evidence[OF_FAULTS] >= _MOST
    if not (provides and evidence[FAULTS] >= _MANY and elsewhere < _ELSEWHERE):
        return Advice("", NOTHING)
    why = f"Memory is obtained anew for each {unit}, and the kernel clears it page by page"
    reuse = "reuse arrays" + (" (out= of NumPy and torch)" if unit == "sample" else "")
    if evidence[REPLACED]:
        return Advice(f"{why}: {reuse}. ")
    variables = " ".join(f"{name}={value}" for name, value in OTHER_MALLOC.items())
    text = (
        f"{why}: try another malloc, which keeps what is freed, with {variables} (package "
        f"libtcmalloc-minimal4 of Debian and Ubuntu, gperftools-libs of Fedora), or {reuse}. "
    )
    return Advice(text, Remedy(environment=OTHER_MALLOC))
