"""The advice of a cause: words, and the same as data."""

from dataclasses import dataclass, replace

from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import CODE, Remedy, set_workers
from lotus.analysis.verdict.advice.worker_advice import WorkerAdvice, worker_advice

# In the commands of advice, in place of that of the program: `Summary` knows it.
PROGRAM = "COMMAND"
# In the words of advice, in place of the name of the operation that it is about.
NAMED = "{operation}"


@dataclass(frozen=True)
class Advice:
    """Advice: its sentences, and what they change.

    In `unnamed`, `NAMED` stands for `operation`: it is the same for all operations that have this
    advice.
    """

    unnamed: str
    remedy: Remedy = CODE
    operation: str = ""

    @property
    def text(self) -> str:
        """The sentences, with the name of the operation."""
        return self.unnamed.replace(NAMED, self.operation)

    def about(self, operation: str) -> "Advice":
        """Return the same advice about an operation of this name."""
        return replace(self, operation=operation)

    def after(self, text: str) -> "Advice":
        """Return the same advice after other words."""
        return replace(self, unnamed=text + self.unnamed)

    def before(self, text: str) -> "Advice":
        """Return the same advice before other words."""
        return replace(self, unnamed=self.unnamed + text)

    def or_code(self, place: object = "") -> "Advice":
        """Return the same advice, whose words also name a change of code (at `place`)."""
        return replace(self, remedy=self.remedy.or_code(place))


def more_workers(circumstances: Circumstances, waits: bool = False, steady: bool = True) -> Advice:
    """Advise a number of workers, or say that more will not help.

    `waits`: the cause needs no core; `steady`: a batch takes as long whatever their number.
    """
    return so_many_workers(worker_advice(circumstances, waits), circumstances, waits, steady)


def so_many_workers(
    advised: WorkerAdvice, circumstances: Circumstances, waits: bool = False, steady: bool = True
) -> Advice:
    """Return what `worker_advice` advised as the advice of a cause."""
    return Advice(advised.text, set_workers(advised, circumstances, waits, steady))
