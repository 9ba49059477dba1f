"""Work on batches whose time is spent in the kernel: as evidence, in words, and what helps."""

from lotus.analysis.machine.kernel_time import KernelTime
from lotus.analysis.verdict.causes.cause_row import Charge, Evidence
from lotus.common.formatting import amount, share

_MUCH = 0.25  # of the CPU time
_MOST = 0.5  # of the making of batches: less may not be what the kernel works for
_LITTLE = 0.25  # of the kernel's time
_MANY = 1000  # page faults a batch
SHARE, OF_COPIES, FAULTS = "kernel_share", "copies_share", "page_faults"
KERNEL_FACTS = {
    SHARE: "The kernel's part of the CPU time of the processes that make batches, 0 to 1.",
    OF_COPIES: "The part of the kernel's time that reading and writing takes at most, 0 to 1.",
    FAULTS: "Page faults a batch, without those for the memory in which it is sent.",
}
# glibc's malloc then maps no array by itself, and returns memory only above 16 GiB.
# What that gains: docs/gains.md.
KEEPS_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(16 << 30)}


def kernel_evidence(kernel: KernelTime, fetch_share: float) -> dict[str, float]:
    """Return evidence of work that takes `fetch_share` (0 to 1) of the making of batches.

    Empty where the kernel has little of the time, or where that may be for other work.
    """
    if not (kernel.share >= _MUCH and fetch_share >= _MOST):
        return {}
    return {SHARE: kernel.share, OF_COPIES: kernel.of_copies, FAULTS: kernel.faults}


def kernel_reason(evidence: Evidence) -> str:
    """Return a sentence on the kernel's part of the work, after a space; "": it has little."""
    if not evidence.has(SHARE):
        return ""
    text = f" {share(evidence[SHARE])} of the CPU time of making batches was in the kernel"
    if evidence[FAULTS] >= _MANY:
        text += f", with {amount(evidence[FAULTS])} page faults a batch"
    if evidence[OF_COPIES] <= _LITTLE:
        return f"{text}; reading and writing was {share(evidence[OF_COPIES])} of that at most."
    return f"{text}."


def obtains_memory(evidence: Evidence) -> bool:
    """Return True if most of what the kernel does can only be to provide new memory."""
    return evidence[OF_COPIES] <= _LITTLE and evidence[FAULTS] >= _MANY


def against_new_memory(charge: Charge) -> str:
    """Return advice where memory is obtained anew for each sample, "" where it is not known to be.

    What else the kernel may do for a process that computes: start threads and processes, which is
    seen as such.
    """
    if not obtains_memory(Evidence(charge.evidence)):
        return ""
    variables = " ".join(f"{name}={value}" for name, value in KEEPS_MEMORY.items())
    return (
        "Memory is obtained anew for each sample, and the kernel clears it page by page: try "
        f"{variables}, with which malloc keeps what is freed, or reuse arrays (NumPy's out=). "
    )
