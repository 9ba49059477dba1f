"""What is said when the traced program has ended: how it went, what was seen, what to type next."""

from pathlib import Path

from lotus import diagnosis
from lotus.launch import Outcome


def text(directory: Path, outcome: Outcome, next_command: str, full: bool = False) -> str:
    """Return the closing words on a run: a report (the short one unless `full`), lines, what next.

    A fault in the reading or reporting of the run is a line too, never an exception: the
    program's own exit code is what counts.
    """
    lines = diagnosis.ending(outcome.exit_code, outcome.signal)
    report = ""
    batches, unseen = 0, []
    # Without a log there is nothing that pandas would have to be imported for.
    if any((directory / "events").glob("*.ltr")):
        try:
            import lotus
            from lotus.reporters import terminal

            run = lotus.load(directory)
            batches, unseen = len(run.batches), run.unseen
            if batches:
                report = terminal.report(run) if full else terminal.short_report(run)
        except Exception as error:
            lines.append(f"the run could not be read: {type(error).__name__}: {error}")
            batches = -1
    lines += diagnosis.missing(diagnosis.processes(directory), batches, unseen)
    said = [f"lotus: {line}" for line in lines]
    return "\n".join([*([report.rstrip("\n")] if report else []), *said, f"next: {next_command}"])
