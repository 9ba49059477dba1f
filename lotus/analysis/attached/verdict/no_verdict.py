"""The reason for which there is no verdict on a watched program, and the next step."""

from lotus.analysis.attached.evidence.evidence import AttachEvidence
from lotus.analysis.attached.shares.loop_shares import Sampled
from lotus.analysis.attached.standstill.standstill import at_words, idle_outside, longest_outside
from lotus.analysis.verdict.advice.advice import PROGRAM
from lotus.common.text.formatting import command, share

_LONGEST = 100  # characters of a command that is repeated


def no_verdict(seen: Sampled, has_loops: bool) -> str:
    """Return one line that says why there is no verdict, and the next step."""
    evidence = seen.evidence
    facts, seconds = evidence.facts, evidence.elapsed_ns / 1e9
    pid, stands_at = facts["pid"], "" if has_loops else idle_outside(seen)
    if facts["state"] == "ended":
        reason = "before it was met in a loop over a DataLoader"
        if has_loops:
            reason = "too early for a verdict"
        elif stands_at:
            reason = f"and did not run until then: it {at_words(stands_at)}"
        return f"process {pid} ended after {seconds:.1f} s, {reason}; {_again(evidence)}"
    if not len(seen.samples):
        why = " ".join(evidence.missing) or "it was watched too briefly."
        return f"too little could be read of process {pid} for a verdict. {why}"
    if stands_at:
        return (
            f"process {pid} did not run in the {seconds:.0f} s that it was watched, and was in no "
            f"loop over a DataLoader: it {at_words(stands_at)}; see all stacks with: "
            f"py-spy dump --native --pid {pid}"
        )
    at, part = longest_outside(seen)
    where = f". In {share(part)} of its stacks it {at_words(at)}" if at else ""
    return (
        f"process {pid} was in no loop over a DataLoader in the {seconds:.0f} s that it was "
        "watched: it is not there yet, it has none, or loading takes next to none of its time"
        f"{where}; look for longer: lotus attach {pid} --seconds {max(60, round(3 * seconds))}"
    )


def _again(evidence: AttachEvidence) -> str:
    """Return how to start the program again so that all of it is recorded."""
    words = command(evidence.facts["command"])
    return f"start it again with: lotus trace -- {words if len(words) <= _LONGEST else PROGRAM}"
