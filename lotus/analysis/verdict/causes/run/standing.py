"""A loop that stood still until its program was ended: part of no loop's account."""

from lotus.analysis.verdict.causes.cause_row import CauseRow, always

STANDING = CauseRow(
    kind="standing",
    title="a process that stands still",
    charges=lambda ledger: (),
    facts={
        "still_ns": "Time until the program was ended in which nothing moved, nanoseconds.",
        "standing_workers": "Workers that stood; 0: it was the main process.",
    },
    advice=always(
        "Find what it waits for. While it hangs, run in another terminal: lotus top --stacks"
    ),
)
