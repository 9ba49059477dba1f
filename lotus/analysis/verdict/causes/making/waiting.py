"""The reasons for which threads were seen blocked: as evidence, in words, and what helps."""

from lotus.analysis.observations.looks import LOCAL_SOCKET, SHARED_LOCK, Looks
from lotus.analysis.observations.places import BlockedPlace
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.causes.cause_row import Charge

# The reasons for which a thread may be blocked: in words, and what helps.
OVERLAPS = "more workers overlap these waits without using more cores. "
_BY_LIMIT = "more workers overlap these waits, unless all of them share one limit. "
_BY_PROCESS = "more workers overlap these waits, if that process leaves cores free. "
_BY_LINE = "more workers overlap these waits, as long as there is bandwidth left. "
_BY_ANSWERS = "more workers overlap these waits, if that process answers several at a time. "
REASONS = {
    SHARED_LOCK: ("waits for a lock that processes share", ""),
    "lock": ("waits for other threads of its process", "find out what they do. "),
    "sleep": ("sleeps", _BY_LIMIT),
    "socket": ("waits for the network", _BY_LINE),
    LOCAL_SOCKET: ("waits for another process of this machine, over a local socket", _BY_ANSWERS),
    "events": ("waits for the network or for another process", _BY_LINE),
    "pipe": ("waits for another process, over a pipe", _BY_PROCESS),
    "child": ("waits for another process to end", _BY_PROCESS),
    "file": ("waits for files", ""),
    "storage": ("waits for storage", ""),
    "page-fault": ("waits for memory pages", ""),
    "other": ("waits", OVERLAPS),
}
READING = ("storage", "file", "page-fault")


def read_again(reason: str, circumstances: Circumstances) -> str:
    """Return what saves asking other machines for the same samples in each epoch; "": nothing."""
    if reason not in ("socket", "events") or circumstances.iterable or circumstances.epochs < 2:
        return ""
    return (
        f" If each of the {circumstances.epochs} epochs asks for the same again, keep a copy on a "
        "local disk."
    )


def fact_of(reason: str) -> str:
    """Return the name of the evidence that has the share of the observations with this reason."""
    return f"{reason.replace('-', '_')}_looks_share"


WAITING_FACTS = {
    "waiting_share": "Share of its time that it waited, 0 to 1; at least.",
    "looks": "Number of observations of a thread in it.",
    **{
        fact_of(reason): f"Share of the observations in which it {words}, 0 to 1."
        for reason, (words, _) in REASONS.items()
    },
}


def look_evidence(looks: Looks) -> dict[str, float]:
    """Return the numbers of `looks` as evidence."""
    shares = {fact_of(reason): part for reason, part in looks.shares.items()}
    return {"looks": float(looks.count), **shares}


def blocked_at(place: BlockedPlace | None) -> str:
    """Return a sentence on the place at which most looks found it blocked; "" without one."""
    if place is None:
        return ""
    words, _ = REASONS[place.reason]
    return f"Of the observations in which it {words}, {place}."


def mostly_blocked(charge: Charge) -> str:
    """Return what it was mostly seen blocked in, such as "waits for storage"; "": not known."""
    words, _ = REASONS.get(blocked_reason(charge), ("", ""))
    return words


def blocked_reason(charge: Charge) -> str:
    """Return the reason for which it was mostly seen blocked; "": not known."""
    return looked(charge).reason


def looked(charge: Charge) -> Looks:
    """Return the observations in its evidence."""
    shares = {reason: charge.evidence.get(fact_of(reason), 0.0) for reason in REASONS}
    count = int(charge.evidence.get("looks", 0.0))
    return Looks(count, {reason: part for reason, part in shares.items() if part > 0})
