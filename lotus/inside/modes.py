"""How the ranks of a data-parallel job come to one model: `lotus run --mode`, no code changed.

sync    as DistributedDataParallel does: gradients are averaged over all ranks in each step. Where
        the ranks' numbers of batches differ, within torch's Join.
local   post-local SGD: after the first steps each rank goes on alone, as in `no_sync`, and
        parameters are averaged after every so many batches (averaging.Together).
hybrid  the same between groups of ranks; in a group gradients are averaged in each step (torch's
        post_localSGD hook).
async   each rank goes on alone; changes are averaged in the background, and a rank waits only when
        it is too far ahead of what it handed over (averaging.Apart). Batches go to who asks next
        (dealt.py).

Before the first batch that is read while a model is in DistributedDataParallel, all ranks agree on
it (agreeing.py): where one cannot, all go on as the program is written. Rounds of averaging are
where the program asks for its next batch, and at the end of an epoch, so it sees one model on all
ranks when its loop is over.
"""

import sys
import weakref
from functools import partial, wraps

from . import agreeing, described, models
from .averaging import Apart, Rounds, Together
from .dealt import Dealt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .settings import Applier

_DDP = "torch.nn.parallel.distributed"


class _Refused(Exception):
    """Why this rank cannot."""


class _Agreed:
    """A model and the loader that it is trained on, after all ranks have agreed."""

    def __init__(self, model: "Any", loader: "Any", words: str) -> None:
        self.model, self.loader = weakref.ref(model), weakref.ref(loader)
        self.words = words
        self.rounds: Rounds | None = None
        self.uneven = False  # sync: within Join
        self.joined: Any = None  # the Join that is open


class Mode:
    """The mode of this run in this process."""

    asked = 0  # questions to the other ranks: of the process, as the store stays

    def __init__(self, applier: "Applier", given: "dict[str, Any]") -> None:
        self.applier, self.name = applier, str(given["name"])
        self.every, self.after = int(given["every"]), int(given["after"])
        self.staleness, self.wait_s = int(given["staleness"]), float(given["wait_s"])
        self.groups: list[list[int]] = [list(group) for group in given["groups"]]
        self.models: list[Any] = []  # weak references
        self.tried: Any = None  # the model that was asked about last, weakly
        self.agreed: _Agreed | None = None
        self.batches = 0  # of the agreed loader that were trained on

    # The hooks.

    def install(self, module: "Any") -> None:
        """Hook DataLoader, of its module, and DistributedDataParallel where it is there by now."""
        loader = module.DataLoader
        self._replace(loader, "_get_iterator", _get_iterator(loader._get_iterator, self))
        distributed: Any = sys.modules.get(_DDP)
        if hasattr(distributed, "DistributedDataParallel"):
            self.hook_models(distributed)

    def _replace(self, owner: "Any", name: str, value: object) -> None:
        before = vars(owner)[name]
        setattr(owner, name, value)
        self.applier.undo.append(partial(setattr, owner, name, before))

    def hook_models(self, module: "ModuleType | Any") -> None:
        kind = module.DistributedDataParallel
        original = kind.__init__

        @wraps(original)
        def __init__(model: "Any", *args: "Any", **kwargs: "Any") -> None:
            original(model, *args, **kwargs)
            self.models.append(weakref.ref(model))

        from .guard import hook

        self._replace(kind, "__init__", hook(__init__))

    # A loader is iterated.

    def iterated(self, loader: "Any") -> "_Agreed | None":
        """What a loader that is iterated now was agreed for; None for all other loaders.

        Raises SystemExit where other ranks may do otherwise than this one.
        """
        from .settings import _is_worker

        if _is_worker():
            return None
        agreed = self.agreed
        if agreed is not None and agreed.model() is not None:
            return agreed if agreed.loader() is loader else None
        found = [model for model in (one() for one in self.models) if model is not None]
        torch: Any = sys.modules["torch"]
        if not torch.is_grad_enabled() or not any(model.module.training for model in found):
            return None
        if not torch.distributed.is_initialized():  # a group that is not of all ranks
            return None
        if self.tried is not None and self.tried() is found[0]:
            return None  # it was refused
        self.tried = weakref.ref(found[0])
        self.agreed = self._agree(loader, found)
        return self.agreed

    def _agree(self, loader: "Any", found: "list[Any]") -> "_Agreed | None":
        words = described.words(loader, "")
        distributed: Any = sys.modules["torch.distributed"]
        rank, world = distributed.get_rank(), distributed.get_world_size()
        answer: dict[str, Any] = {"of": f"{words}", "refused": "", "facts": {}}
        try:
            answer |= self._answer(loader, found, world)
        except _Refused as why:
            answer["refused"] = str(why)
        except Exception as error:
            answer["refused"] = f"{type(error).__name__}: {error}"
        Mode.asked += 1
        whole = distributed.distributed_c10d._get_default_store()
        store = distributed.PrefixStore(f"lotus/mode/{Mode.asked}", whole)
        try:
            decision = agreeing.agree(store, rank, world, answer, self.wait_s)
            answers = [] if decision else agreeing.answers(store, world)
        except agreeing.Silent as error:
            decision = f"{words}: the job's store takes no answer ({error})"
        except agreeing.Unknown as error:
            self.applier.tell({"mode": "refused"})
            text = f"what the other ranks decided on --mode cannot be known ({error})"
            raise SystemExit(f"lotus: {text}; rank {rank} stops before its first step") from None
        if not decision:
            agreed = _Agreed(found[0], loader, words)
            decision = self._apply(agreed, loader, found[0], answers, store)
        if decision:
            self.applier.tell({"mode": "refused"})
            self.applier.note(
                f"--mode {self.name} is not applied to {decision}; the program goes on as it is "
                "written"
            )
            return None
        self.applier.tell({"mode": "applied"})
        return agreed

    def _answer(self, loader: "Any", found: "list[Any]", world: int) -> "dict[str, Any]":
        """What this rank says of itself. Raises _Refused."""
        if len(found) > 1:
            raise _Refused(f"{len(found)} models are in DistributedDataParallel")
        model = found[0]
        kind = type(model.module).__name__
        if models.group_size(model) != world:
            raise _Refused(f"{kind} is averaged over {models.group_size(model)} of {world} ranks")
        many = None if described.is_iterable(loader) else len(loader)
        facts: dict[str, Any] = {
            "the mode": [self.name, self.every, self.after, self.staleness, self.groups],
            "the model": models.fingerprint(model),
            "the data set": type(loader.dataset).__name__,
        }
        if self.name == "hybrid":
            facts["the number of batches"] = many
            _known_groups(self.groups, world)
        if self.name == "async":
            facts["the data set's length"] = described.length(loader)
            facts["the batch size"] = loader.batch_size
        if self.name != "sync":
            models.lonely(model, self.name == "hybrid", _Refused)
            if model.static_graph and self.name != "hybrid" and self.after < 2:
                more = "; --after 2 does that" if self.name == "local" else ""
                raise _Refused(f"a static graph must be averaged in its first steps{more}")
        import socket

        return {"facts": facts, "batches": many, "host": socket.gethostname()}

    def _apply(
        self,
        agreed: _Agreed,
        loader: "Any",
        model: "Any",
        answers: "list[dict[str, Any]]",
        store: "Any",
    ) -> str:
        """Put the mode on; all ranks have the same answers, and come to the same.

        Returns why it is not, with what it is about, "" where it is.
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
            made = [(one, torch.distributed.new_group(one)) for one in groups]
            group = next(handle for one, handle in made if rank in one)
            hooks: Any = _post_local()
            state = hooks.PostLocalSGDState(None, group, self.after)
            model.register_comm_hook(state, hooks.post_localSGD_hook)
        elif not self.after:
            model.require_backward_grad_sync = False
        model.broadcast_buffers = False  # of rank 0 in each step: all would wait for it
        kind = Apart if self.name == "async" else Together
        agreed.rounds = kind(torch, model.module, torch.distributed.new_group())
        self._say(agreed, loader, store, answers)
        return ""

    def _say(
        self, agreed: _Agreed, loader: "Any", store: "Any", answers: "list[dict[str, Any]]"
    ) -> None:
        of = agreed.words
        first = f"gradients are averaged for {self.after} steps, then " if self.after else ""
        if self.name == "async":
            dealt = self._deal(loader, store)
            how = (
                f"batches of {of} go to the rank that asks next"
                if dealt
                else f"each rank has its own batches of {of}, as its sampler cannot be shared"
            )
            self.applier.note(
                f"{how}; ranks go on alone and average their changes in the background, at most "
                f"{self.staleness + 1} steps old"
            )
        else:
            inside = ""
            if self.name == "hybrid":
                shown = "/".join(
                    ",".join(map(str, group)) for group in self.groups or _hosts(answers)
                )
                inside = f"gradients are averaged in each of the groups {shown}, and "
            self.applier.note(
                f"{first}{inside}parameters are averaged over all ranks every {self.every} "
                f"batches of {of} and at the end of an epoch"
            )
        self.applier.note(
            f"--mode {self.name} learns otherwise than the program as it is written: compare the "
            "loss at equal epochs"
        )

    def _deal(self, loader: "Any", store: "Any") -> bool:
        """Have batches go to the rank that asks next; returns whether that can be."""
        utils: Any = sys.modules["torch.utils.data"]
        sampler: Any = sys.modules.get("torch.utils.data.distributed")
        batches = loader.batch_sampler
        if (
            sampler is None
            or type(loader.sampler) is not sampler.DistributedSampler
            or type(batches) is not utils.BatchSampler
            or batches.sampler is not loader.sampler
        ):
            return False
        batches.sampler = Dealt(loader.sampler, loader.batch_size, loader.drop_last, store)
        return True

    # Batches.

    def asks(self, agreed: _Agreed, first: bool) -> None:
        """The program asks for a batch: it has made a step with the one before."""
        model = agreed.model()
        if model is None:
            return
        if first and agreed.uneven and agreed.joined is None and not model._join_config.enable:
            agreed.joined = model.join()
            agreed.joined.__enter__()
        rounds = agreed.rounds
        if first or rounds is None:
            return
        self.batches += 1
        if isinstance(rounds, Apart):
            rounds.step(self.staleness)
        elif isinstance(rounds, Together) and self.batches > self.after:
            rounds.step(self.every)
        if self.name == "local" and self.batches == self.after:
            model.require_backward_grad_sync = False

    def ended(self, agreed: _Agreed) -> None:
        """The program was told that an epoch is over."""
        if agreed.joined is not None:
            joined, agreed.joined = agreed.joined, None
            joined.__exit__(None, None, None)
        model, rounds = agreed.model(), agreed.rounds
        if agreed.uneven and model is not None:  # torch leaves it on
            config = type(model._join_config)
            model._join_config = config.construct_disabled_join_config()
        if isinstance(rounds, (Apart, Together)) and model is not None:
            rounds.finish()


def _known_groups(groups: "list[list[int]]", world: int) -> None:
    ranks = sorted(rank for group in groups for rank in group)
    if groups and ranks != list(range(world)):
        raise _Refused(f"--groups has {len(ranks)} ranks, here are {world}")


def _hosts(answers: "list[dict[str, Any]]") -> "list[list[int]]":
    """The ranks of each host."""
    found: dict[str, list[int]] = {}
    for rank, answer in enumerate(answers):
        found.setdefault(str(answer["host"]), []).append(rank)
    return list(found.values())


def _counts(many: "list[int | None]") -> str:
    known = [one for one in many if one is not None]
    if len(known) < len(many):
        return "how many batches each rank has is not known"
    return f"ranks have {min(known)} to {max(known)} batches"


def _post_local() -> "Any":
    import importlib

    name = "torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook"
    return importlib.import_module(name)


def _get_iterator(original: "Callable[..., Any]", mode: Mode) -> "Callable[..., Any]":
    """Hook for `DataLoader._get_iterator`, around that of settings.py."""
    from .guard import hook

    def _get_iterator(self: "Any") -> "Any":
        agreed = mode.iterated(self)
        iterator = original(self)
        if agreed is not None:
            _watch(iterator, agreed, mode)
        return iterator

    return wraps(original)(hook(_get_iterator))


def _watch(iterator: "Any", agreed: _Agreed, mode: Mode) -> None:
    """Have an iterator of the agreed loader tell when it is asked for a batch."""
    from .guard import hook

    kind = type(iterator)

    # Weakly: an iterator in a cycle would keep its workers until Python collects garbage.
    def _next_data() -> "Any":
        this: Any = reference()
        mode.asks(agreed, this._num_yielded == 0)
        try:
            return kind._next_data(this)
        except StopIteration:
            mode.ended(agreed)
            raise

    reference = weakref.ref(iterator)
    iterator.__dict__["_next_data"] = hook(_next_data)
