"""Changes how the ranks of a data-parallel job synchronize: `lotus run --mode`.

sync    As in DistributedDataParallel: gradients are averaged over all ranks in each step, within
        torch's Join if the ranks have different numbers of batches.
local   Post-local SGD: after the first steps ranks train independently, as in `no_sync`, and their
        parameters are averaged after every K batches (averaging.SynchronousAveraging).
hybrid  The same between groups of ranks; within a group, gradients are averaged in each step
        (torch's post_localSGD hook).
async   Experimental. Ranks train independently, and their changes are averaged in the background.
        A rank waits only if the round in flight is too old (background_averaging.py). Each batch
        goes to the rank that asks for it first (shared_queue_sampler.py).

Before the first batch that is read while a model is wrapped in DistributedDataParallel, all ranks
have to agree (consensus.py); if any rank cannot take part, the program continues as written.
Averaging takes place when the program requests its next batch and at the end of an epoch, so that
all ranks have the same model when the loop is over. Averaging follows the model: if it is trained
on another loader later, the batches of that loader count (loader_pass.py).
"""

import gc
import sys
import threading
import weakref
from functools import partial

from ..common import patching
from ..common.guard import hook
from ..common.loaders import loader_description
from . import consensus, ddp_model
from .agreed_model import Agreed
from .averaging import Averaging, SynchronousAveraging
from .background_averaging import BackgroundAveraging
from .ddp_hooks import Acting
from .loader_pass import LoaderPass, leads, written
from .store_timeout import StoreWithTimeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .ddp_hooks import Applier

_PASS = "_lotus_pass"  # attribute of an iterator that holds its LoaderPass
_THREADS = "its batches are asked for in another thread than the model is made in"


class _CannotTakePartError(Exception):
    """The reason why this rank cannot take part in a mode."""


class ModeApplier(Acting):
    """Applies the mode of this run in this process."""

    feature = "mode"
    questions = 0  # to the other ranks; per process, because the store outlives an instance

    def __init__(self, applier: "Applier", options: "dict[str, Any]") -> None:
        super().__init__(applier)
        self.name = str(options["name"])
        self.every, self.after = int(options["every"]), int(options["after"])
        self.staleness, self.wait_s = int(options["staleness"]), float(options["wait_s"])
        self.groups: list[list[int]] = [list(group) for group in options["groups"]]
        self.made = 0  # models that were wrapped in DistributedDataParallel
        self.thread = 0  # the thread that wrapped the last one
        self.refused = -1  # value of `made` when the mode was refused
        self.agreed: Agreed | None = None
        self.batches = 0  # batches that were trained on since the ranks agreed

    # The hooks.

    def hook_loaders(self, module: "Any") -> None:
        self.listen(module.DataLoader, "_get_iterator", partial(_get_iterator, mode=self))
        self.listen(module._BaseDataLoaderIter, "_reset", partial(_reset, mode=self))

    def wrapped(self, model: "Any") -> None:
        super().wrapped(model)
        self.made += 1
        self.thread = threading.get_ident()

    # A loader is iterated.

    def iterated(self, loader: "Any") -> "Agreed | None":
        """Return what all ranks have agreed on, before a loader is iterated; None: nothing.

        Raises SystemExit if other ranks may decide differently.
        """
        from ..common.process_identity import is_worker

        if is_worker():
            return None
        # Decide by what all ranks do alike. The time of a garbage collection is not.
        if self.agreed is not None and self.agreed.made == self.made:
            if self.agreed.model() is not None:
                return self.agreed
            self.agreed.rounds = None  # the model is gone
            return None
        torch: Any = sys.modules["torch"]
        if not self.made or self.refused == self.made or not torch.is_grad_enabled():
            return self.agreed
        if self.made > 1:
            gc.collect()
        models = self.models()
        if not any(model.module.training for model in models):
            return self.agreed
        if not torch.distributed.is_initialized():  # the model has a group of its own
            return self.agreed
        agreed = self._agree(loader, models)
        if agreed is None:
            self.refused = self.made
        else:
            self.agreed, self.batches = agreed, 0
        return self.agreed

    def _agree(self, loader: "Any", models: "list[Any]") -> "Agreed | None":
        if self.agreed is not None:
            self.agreed.restore_sampler()  # the queue was for another model
        words = loader_description.words(loader, "")
        distributed: Any = sys.modules["torch.distributed"]
        rank, world = distributed.get_rank(), distributed.get_world_size()
        answer: dict[str, Any] = {"of": f"{words}", "refused": "", "facts": {}}
        try:
            answer |= self._answer(loader, models, world)
        except _CannotTakePartError as why:
            answer["refused"] = str(why)
        except Exception as error:
            answer["refused"] = f"{type(error).__name__}: {error}"
        ModeApplier.questions += 1
        store: Any = None
        try:
            decision, store = consensus.ask(f"mode/{ModeApplier.questions}", answer, self.wait_s)
            answers = [] if decision else consensus.answers(store, world, self.wait_s)
        except consensus.UnsentAnswerError as error:
            decision = f"{words}: the job's store takes no answer ({error})"
        except consensus.UnknownDecisionError as error:
            self.applier.tell({"mode": "refused"})
            text = f"what the other ranks decided on --mode cannot be known ({error})"
            raise SystemExit(f"lotus: {text}; rank {rank} stops before its first step") from None
        if not decision:
            agreed = Agreed(models[0], loader, words, self.made)
            decision = self._apply(agreed, loader, models[0], answers, store)
        if decision:
            self.applier.tell({"mode": "refused"})
            self.applier.note(
                f"--mode {self.name} is not applied to {decision}; the program goes on as it is "
                "written"
            )
            return None
        self.applier.tell({"mode": "applied"})
        return agreed

    def _answer(self, loader: "Any", models: "list[Any]", world: int) -> "dict[str, Any]":
        """Return the answer of this rank. Raises _CannotTakePartError."""
        if len(models) > 1:
            raise _CannotTakePartError(f"{len(models)} models are in DistributedDataParallel")
        if threading.get_ident() != self.thread:
            raise _CannotTakePartError(_THREADS)
        model = models[0]
        kind = type(model.module).__name__
        if ddp_model.group_size(model) != world:
            raise _CannotTakePartError(
                f"{kind} is averaged over {ddp_model.group_size(model)} of {world} ranks"
            )
        many = None if loader_description.is_iterable(loader) else len(loader)
        facts: dict[str, Any] = {
            "the mode": [self.name, self.every, self.after, self.staleness, self.groups],
            "the model": ddp_model.fingerprint(model),
            "the data set": type(loader.dataset).__name__,
        }
        if self.name == "hybrid":
            facts["the number of batches"] = many
            _known_groups(self.groups, world)
        if self.name == "async":
            facts["the data set's length"] = loader_description.length(loader)
            facts["the batch size"] = loader.batch_size
        if self.name != "sync":
            ddp_model.check_local_steps(model, self.name == "hybrid", _CannotTakePartError)
            if model.static_graph and self.name != "hybrid" and self.after < 2:
                hint = "; --after 2 does that" if self.name == "local" else ""
                raise _CannotTakePartError(
                    f"a static graph must be averaged in its first steps{hint}"
                )
        import socket

        from ..common.process_identity import boot_id

        # Several machines may have the same name.
        host = [socket.gethostname(), boot_id()]
        return {"facts": facts, "batches": many, "host": host}

    def _apply(
        self,
        agreed: Agreed,
        loader: "Any",
        model: "Any",
        answers: "list[dict[str, Any]]",
        store: "Any",
    ) -> str:
        """Apply the mode. All ranks have the same answers and reach the same result.

        Return why it cannot be applied, with the name of the loader; "" if it was applied.
        """
        torch: Any = sys.modules["torch"]
        rank = torch.distributed.get_rank()
        many = [answer["batches"] for answer in answers]
        if self.name == "sync":
            agreed.uneven = len(set(many)) > 1 or None in many
            self.applier.note(
                "gradients are averaged over all ranks in each step, as the program is written"
                + (f", within torch's Join: {_counts(many)}" * agreed.uneven)
            )
            return ""
        if self.name == "hybrid":
            groups = self.groups or _hosts(answers)
            if len(groups) < 2:
                return f"{agreed.words}: all ranks are on one host; --groups says which are alike"
            handles = [(ranks, torch.distributed.new_group(ranks)) for ranks in groups]
            group = next(handle for ranks, handle in handles if rank in ranks)
            hooks: Any = _post_local()
            state = hooks.PostLocalSGDState(None, group, self.after)
            agreed.grouped = state
            model.register_comm_hook(state, hooks.post_localSGD_hook)
            if getattr(model, "_comm_hooks", None):  # a copy of the model cannot have groups
                model._comm_hooks.pop()
        elif not self.after:
            model.require_backward_grad_sync = False
        agreed.buffers = model.broadcast_buffers
        model.broadcast_buffers = False  # else all ranks wait for those of rank 0 in each step
        group = torch.distributed.new_group()
        if self.name == "async":
            store = StoreWithTimeout(store, self.wait_s)
            agreed.rounds = BackgroundAveraging(torch, model, group, store)
            if self.agreed is None:
                self.before_uncaught(self._fails)
        else:
            agreed.rounds = SynchronousAveraging(torch, model, group)
        self._say(agreed, loader, store, answers)
        return ""

    def _fails(self, kind: "Any", error: "Any") -> None:
        """Handle an uncaught exception."""
        if self.agreed is not None and isinstance(self.agreed.rounds, BackgroundAveraging):
            self.agreed.rounds.fail()

    def _say(
        self, agreed: Agreed, loader: "Any", store: "Any", answers: "list[dict[str, Any]]"
    ) -> None:
        of = agreed.words
        first = f"gradients are averaged for {self.after} steps, then " if self.after else ""
        if self.name == "async":
            agreed.share_queue(loader, store)
            manner = (
                f"batches of {of} go to the rank that asks next"
                if agreed.queue is not None
                else f"each rank has its own batches of {of}, as its sampler cannot be shared"
            )
            self.applier.note(
                f"{manner}; ranks go on alone and average their changes in the background, at most "
                f"{self.staleness + 1} steps old"
            )
        else:
            inside = ""
            if self.name == "hybrid":
                groups_text = "/".join(
                    ",".join(map(str, group)) for group in self.groups or _hosts(answers)
                )
                inside = f"gradients are averaged in each of the groups {groups_text}, and "
            self.applier.note(
                f"{first}{inside}parameters are averaged over all ranks every {self.every} "
                f"batches of {of} and at the end of an epoch"
            )
        experimental = " is experimental and" if self.name == "async" else ""
        self.applier.note(
            f"--mode {self.name}{experimental} learns otherwise than the program as it is written: "
            "compare the loss at equal epochs"
        )

    # Batches.

    def asks(self, agreed: Agreed, of: LoaderPass) -> None:
        """Handle a request for a batch: the training step on the previous one is over."""
        model = agreed.model()
        if model is None or of.over or not sys.modules["torch"].is_grad_enabled():
            return  # validation does not change the model
        if agreed.lifted:
            return
        if agreed.leader is None and threading.get_ident() != self.thread:
            agreed.lift(model, alone=self.name != "sync")
            self.applier.note(
                f"--mode {self.name} is taken back from {agreed.words}: {_THREADS}; the program "
                "goes on as it is written"
            )
            return
        first, of.begun = not of.begun, True
        if not leads(agreed, of, model):
            return
        if first and agreed.uneven and agreed.joined is None and not model._join_config.enable:
            agreed.joined = model.join()
            agreed.joined.__enter__()
        rounds = agreed.rounds
        if isinstance(rounds, BackgroundAveraging):
            rounds.come_back()
            if agreed.detects_meetings(of, first):
                self.applier.note(
                    "ranks meet in their steps, so each has as many batches, and none goes ahead"
                )
        # When the program's own Join ends, it copies the parameters of one rank to all: no step.
        joins = agreed.joined is None and model._join_config.enable
        if first and not joins and agreed.written not in (None, written(model)):
            self.applier.note(
                "the model was trained after the last batch was asked for, as where a program "
                "reads a batch ahead: at the end of an epoch ranks may differ by that step"
            )
        if first or rounds is None:
            return
        self.batches += 1
        if isinstance(rounds, BackgroundAveraging):
            rounds.step(self.staleness)
        elif isinstance(rounds, SynchronousAveraging) and self.batches > self.after:
            rounds.step(self.every)
        self._note_different_tensors(rounds)
        if self.name == "local" and self.batches >= self.after:
            model.require_backward_grad_sync = False

    def ended(self, agreed: Agreed, of: LoaderPass) -> None:
        """Handle the end of an epoch."""
        if of.over or agreed.leader is not of or not sys.modules["torch"].is_grad_enabled():
            return
        of.over = True
        if agreed.joined is not None:
            joined, agreed.joined = agreed.joined, None
            joined.__exit__(None, None, None)
        model, rounds = agreed.model(), agreed.rounds
        if agreed.uneven and model is not None:  # torch leaves it on
            config = type(model._join_config)
            model._join_config = config.construct_disabled_join_config()
        if model is None:
            return
        if isinstance(rounds, SynchronousAveraging):
            rounds.finish()
        elif isinstance(rounds, BackgroundAveraging):
            if agreed.queue is not None and not of.used and of.loader() is agreed.loader():
                of.used = True
                agreed.queue.used()
            if not rounds.finish():
                self.applier.note("a rank left its loop before its epoch was over: ranks differ")
        if rounds is not None:
            self._note_different_tensors(rounds)
            agreed.written = written(model)

    def _note_different_tensors(self, rounds: Averaging) -> None:
        if rounds.differ:
            self.applier.note(
                "the ranks' models have other tensors than each other: only what they had in "
                "common when they began is averaged"
            )


def _known_groups(groups: "list[list[int]]", world: int) -> None:
    ranks = sorted(rank for group in groups for rank in group)
    if groups and ranks != list(range(world)):
        raise _CannotTakePartError(f"--groups has {len(ranks)} ranks, here are {world}")


def _hosts(answers: "list[dict[str, Any]]") -> "list[list[int]]":
    """Return the ranks of each host."""
    hosts: dict[str, list[int]] = {}
    for rank, answer in enumerate(answers):
        hosts.setdefault(str(answer["host"]), []).append(rank)
    return list(hosts.values())


def _counts(many: "list[int | None]") -> str:
    counts = [count for count in many if count is not None]
    if len(counts) < len(many):
        return "how many batches each rank has is not known"
    return f"ranks have {min(counts)} to {max(counts)} batches"


def _post_local() -> "Any":
    import importlib

    name = "torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook"
    return importlib.import_module(name)


def _get_iterator(original: "Callable[..., Any]", mode: ModeApplier) -> "Callable[..., Any]":
    """Hook for `DataLoader._get_iterator`, outside that of settings_applier.py."""

    def _get_iterator(self: "Any") -> "Any":
        try:
            agreed = mode.iterated(self)
            iterator = original(self)
            if agreed is not None:
                _watch(iterator, self, agreed, mode)
        except BaseException as error:
            patching.hide(error)
            raise
        return iterator

    return hook(_get_iterator)


def _reset(original: "Callable[..., Any]", mode: ModeApplier) -> "Callable[..., Any]":
    """Hook for `_BaseDataLoaderIter._reset`: an epoch of persistent workers begins."""

    def _reset(self: "Any", loader: "Any", first_iter: bool = False) -> None:
        try:
            agreed = None if first_iter else mode.iterated(loader)
            original(self, loader, first_iter)
            if agreed is not None:
                _watch(self, loader, agreed, mode)
        except BaseException as error:
            patching.hide(error)
            raise

    return hook(_reset)


def _watch(iterator: "Any", loader: "Any", agreed: Agreed, mode: ModeApplier) -> None:
    """Report requests for a batch of an iterator to `mode`."""
    current: LoaderPass | None = vars(iterator).get(_PASS)
    if current is not None:
        current.agreed = agreed
        return
    of = vars(iterator)[_PASS] = LoaderPass(loader, agreed)

    def gone(_: object) -> None:
        if of.agreed.leader is of and not of.over:
            of.over = True
            if isinstance(of.agreed.rounds, BackgroundAveraging):
                of.agreed.rounds.go_away()

    reference = weakref.ref(iterator, gone)

    def around(call: "patching.Function") -> "patching.Function":
        def _next_data() -> "Any":
            this: Any = reference()
            try:
                if this._num_yielded == 0:
                    of.begin()
                mode.asks(of.agreed, of)
                try:
                    return call()
                except StopIteration:
                    mode.ended(of.agreed, of)
                    raise
            except BaseException as error:
                patching.hide(error)
                raise

        return hook(_next_data)

    patching.listen_to(iterator, "_next_data", "mode", around)
