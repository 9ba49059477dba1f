"""Divides the global batch of one loader as balance.json says, on all ranks or on none.

The loader is changed when the program makes it, so that its length is right from the start. Before
its first batch all ranks have to agree (consensus.py). If any rank cannot take part, all ranks undo
the change and the program continues as written. Only after that are gradients weighted
(gradient_weights.py). The program keeps its sampler object and batch size; only the inside of the
loader's `BatchSampler` is replaced (batch_shares.py).
"""

import sys
from functools import partial

from ..common.guard import edge, hook
from ..common.loaders import loader_description
from ..common.patching import hide
from . import consensus, ddp_model
from .batch_shares import Shared, let_change, rest, shown
from .ddp_hooks import Acting
from .gradient_weights import Weights, first_gradients, watch
from .store_timeout import StoreWithTimeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from .ddp_hooks import Applier
    from .rebalancing import Rebalancing

_FACTS = ("call_site", "dataset", "sampler", "dataset_length")


class _PlannedLoader:
    """A loader that matches the plan, while it is alive."""

    def __init__(self, reference: "Any", words: str, refused: str) -> None:
        self.reference, self.words, self.refused = reference, words, refused
        self.shared: Shared | None = None  # what replaces its sampler
        self.agreed = False


class ShareApplier(Acting):
    """Applies the plan of this run in this process."""

    feature = "balance"
    questions = 0  # to the other ranks; per process, because the store outlives an instance

    def __init__(self, applier: "Applier", plan: "dict[str, Any]") -> None:
        super().__init__(applier)
        self.plan = plan
        self.on = True
        self.over = False  # whether the plan was refused, for good
        self.sizes: list[int] = plan["batch_sizes"]
        self.target: dict[str, Any] | None = plan.get("loader")  # the loader to balance
        self.weights = Weights(plan.get("loss") == "sum")
        self.candidates: dict[int, _PlannedLoader] = {}  # by id(loader)
        self.seen: dict[int, Any] = {}  # weak references to iterated loaders, by id
        self.numbers = 0  # number of iterated loaders
        self.weighted = False
        self.every: int = plan.get("rebalance_every", 0)  # steps; 0: never
        self.rebalancing: Rebalancing | None = None
        self.store: Any = None  # of the last question

    # The hooks.

    def hook_loaders(self, module: "Any") -> None:
        self.listen(module.DataLoader, "__init__", partial(_init, balance=self))
        self.listen(module.DataLoader, "_get_iterator", partial(_get_iterator, balance=self))

    def fault(self, error: Exception) -> None:
        """Handle an error in lotus before ranks have agreed: refuse on this rank."""
        for candidate in self.candidates.values():
            candidate.refused = candidate.refused or f"{type(error).__name__}: {error}"

    # A loader is made.

    def made(self, loader: "Any", frame: "FrameType | None") -> None:
        from ..common.process_identity import is_worker

        if self.over or is_worker():
            return
        site = loader_description.made_at(loader, frame)[0]
        if self._meant(loader, site, loader_description.once_made_at(loader, frame)):
            self._take(loader, site)

    def _meant(self, loader: "Any", *sites: str) -> bool:
        target = self.target
        if target is None:
            return _is_distributed(loader) and bool(loader.sampler.shuffle)
        facts: dict[str, Any] = {"dataset": type(loader.dataset).__name__}
        facts["sampler"] = loader_description.sampler(loader)
        names = [name for name in _FACTS if target.get(name) is not None]
        if "dataset_length" in names:
            facts["dataset_length"] = loader_description.length(loader)
        return bool(names) and all(
            target[name] in (sites if name == "call_site" else (facts[name],)) for name in names
        )

    def _take(self, loader: "Any", site: str) -> _PlannedLoader:
        import weakref

        refused, words = self._unfit(loader), loader_description.words(loader, site)
        for known in list(self.candidates.values()):
            other = known.reference()
            if other is not None and other is not loader and other.dataset is not loader.dataset:
                refused = refused or (
                    f"{known.words} and {words} may both be meant; its entry `loader` can say which"
                )
                if not known.agreed:
                    known.refused = known.refused or refused
        key = id(loader)
        reference = weakref.ref(loader, partial(self._forget, key))
        self.candidates[key] = candidate = _PlannedLoader(reference, words, refused)
        if not refused:
            rank, own = loader.sampler.rank, loader.sampler
            candidate.shared = Shared(own, self.sizes, rank, loader.drop_last)
            loader.batch_sampler.sampler = candidate.shared
            loader.batch_sampler.batch_size = self.sizes[rank]
        return candidate

    def _forget(self, key: int, reference: object) -> None:
        candidate = self.candidates.get(key)
        if candidate is not None and candidate.reference is reference:
            del self.candidates[key]

    def _unfit(self, loader: "Any") -> str:
        """Return why the batches of a loader cannot be divided; "" if they can."""
        if loader_description.is_iterable(loader):
            return "its data set is iterable and says itself who takes what"
        if loader.batch_sampler is None:
            return "it makes no batches (batch_size=None)"
        utils: Any = sys.modules["torch.utils.data"]
        if type(loader.batch_sampler) is not utils.BatchSampler:
            return f"the program's own {type(loader.batch_sampler).__name__} makes its batches"
        if not _is_distributed(loader):
            return (
                f"its sampler is {type(loader.sampler).__name__}; "
                "only torch's own DistributedSampler can be shared out"
            )
        sampler, world = loader.sampler, len(self.sizes)
        if sampler.num_replicas != world:
            return f"balance.json is for {_many(world, 'rank')}, here are {sampler.num_replicas}"
        if loader.batch_sampler.sampler is not sampler:
            return "its BatchSampler has another sampler than the loader"
        if loader.num_workers and not getattr(loader, "in_order", True):
            return "its batches come out of order (in_order=False)"
        if len(sampler.dataset) < world:
            return f"{_many(len(sampler.dataset), 'sample')} for {_many(world, 'rank')}"
        return ""

    # A loader is iterated.

    def iterated(self, loader: "Any") -> "Shared | None":
        """Return the shares of a loader that is about to be iterated; None for other loaders.

        Raises SystemExit if other ranks may decide differently.
        """
        from ..common.process_identity import is_worker

        if is_worker():
            return None
        number = self._number(loader)
        candidate = self.candidates.get(id(loader))
        if candidate is None and number is not None and self._meant_now(loader, number):
            candidate = self._take(loader, "")
        if candidate is None or (self.over and not candidate.agreed):
            self.weights.other_loader()
            return None
        if not candidate.agreed:
            self._agree(loader, candidate)
        return candidate.shared

    def _number(self, loader: "Any") -> int | None:
        """Return the number of a loader at its first iteration, else None."""
        import weakref

        reference = self.seen.get(id(loader))
        if reference is not None and reference() is loader:
            return None
        self.seen[id(loader)] = weakref.ref(loader)
        self.numbers += 1
        return self.numbers - 1

    def _meant_now(self, loader: "Any", number: int) -> bool:
        """Return whether the plan names a loader by its number or, as old runs do, by its loop."""
        target = self.target
        if self.over or target is None:
            return False
        if any(target.get(name) is not None for name in _FACTS):
            named = target.get("call_site") is not None
            return named and self._meant(loader, loader_description.iterated_at())
        return bool(target.get("number") == number)

    def _agree(self, loader: "Any", candidate: _PlannedLoader) -> None:
        words = candidate.words
        distributed: Any = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_initialized():
            self._refuse(f"{words}: there is no process group, so no other ranks")
            return
        rank, world = distributed.get_rank(), distributed.get_world_size()
        models = self.models()
        try:
            refused = candidate.refused or self._against(loader, models, rank, world)
            facts = self._facts(loader)
        except Exception as error:
            refused, facts = f"{type(error).__name__}: {error}", {}
        decision = self._ask({"of": words, "refused": refused, "facts": facts})
        if decision:
            self._refuse(decision)
            return
        if not self.weighted:
            autograd = sys.modules["torch.autograd"]
            self.listen(autograd, "_make_grads", partial(first_gradients, weights=self.weights))
            _note_out_of_memory(self, partial(self._share, loader.sampler.rank), loader.batch_size)
        self._apply(loader, candidate, words, models)
        if self.every and not self.weighted:
            self._rebalance(loader, models)
        self.weighted = True
        if self.rebalancing is not None:
            let_change(loader.batch_sampler, self.rebalancing)

    def _ask(self, answer: "dict[str, Any]") -> str:
        """Return the decision of all ranks: see `consensus.agree`."""
        ShareApplier.questions += 1
        try:
            name = f"balance/{ShareApplier.questions}"
            refused, self.store = consensus.ask(name, answer, self._wait_s())
            return refused
        except consensus.UnsentAnswerError as error:
            return f"{answer['of']}: the job's store takes no answer ({error})"
        except consensus.UnknownDecisionError as error:
            self.applier.tell({"balance": "refused"})
            text = f"what the other ranks decided on balance.json cannot be known ({error})"
            rank = sys.modules["torch.distributed"].get_rank()
            raise SystemExit(f"lotus: {text}; rank {rank} stops before its first step") from None

    def _wait_s(self) -> float:
        return float(self.plan.get("wait_s", 120))

    def _rebalance(self, loader: "Any", models: "list[Any]") -> None:
        """Let shares change during training if all ranks can measure their own steps."""
        from .rebalancing import Rebalancing, unfit

        distributed: Any = sys.modules["torch.distributed"]
        most = [2 * max(size, loader.batch_size) for size in self.sizes]
        least = 2 if any(ddp_model.local_norms(model) for model in models) else 1
        rebalancing = Rebalancing(
            self.sizes,
            loader.sampler.rank,
            self.every,
            self.weights,
            StoreWithTimeout(distributed.PrefixStore("rebalance", self.store), self._wait_s()),
            self.applier.note,
            most,
            least,
        )
        try:
            why = unfit(models)
            rebalancing.install(self.listen, self.applier.waiting)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        refused = self._ask({"of": "shares stay as they are", "refused": why, "facts": {}})
        if refused:
            rebalancing.on = False
            self.applier.note(refused)
        else:
            self.rebalancing = rebalancing
            steps = _many(self.every, "step")
            self.applier.note(
                f"shares may change after every {steps}; --rebalance-every is experimental"
            )

    def _against(self, loader: "Any", models: "list[Any]", rank: int, world: int) -> str:
        """Return why this rank cannot apply the plan; "" if it can."""
        torch: Any = sys.modules["torch"]
        if "_make_grads" not in vars(torch.autograd):
            return f"torch {torch.__version__} begins backward passes otherwise than lotus knows"
        if world != len(self.sizes):
            return f"balance.json is for {_many(len(self.sizes), 'rank')}, here are {world}"
        if loader.sampler.rank != rank:
            return f"its sampler is for rank {loader.sampler.rank}, not for {rank}"
        if not models:
            return (
                "there is no model in DistributedDataParallel before the first batch; other ways "
                "to average gradients (FullyShardedDataParallel, one's own) are not known"
            )
        for model in models:
            kind = type(model.module).__name__
            hook = ddp_model.communication_hook(model)
            if hook is not None:
                return f"{kind} has a communication hook of its own ({hook})"
            if ddp_model.group_size(model) != world:
                return f"{kind} is averaged over {ddp_model.group_size(model)} of {world} ranks"
        planned = self.plan.get("model")
        if planned is not None and planned not in map(ddp_model.fingerprint, models):
            parameters = ddp_model.fingerprint(models[0])["parameters"]
            return (
                f"balance.json is for a model of {planned['parameters']:,} parameters, "
                f"here is another one of {parameters:,}"
            )
        norms = [name for model in models for name in ddp_model.local_norms(model)]
        shared = self.candidates[id(loader)].shared
        if norms and shared is not None:
            last_batch = shared.counted()[1]
            shares = [*self.sizes, *(rest(self.sizes, last_batch) if last_batch else ())]
            if 1 in shares:
                return (
                    "a rank would have one sample, on which batch norm "
                    f"({ddp_model.shortened(norms)}) cannot train"
                )
        return ""

    def _facts(self, loader: "Any") -> "dict[str, Any]":
        """Return the facts that have to be equal on all ranks."""
        sampler = loader.sampler
        names = ("seed", "shuffle", "drop_last")
        return {
            "the plan": self.plan["batch_sizes"],
            "the data set's length": loader_description.length(loader),
            "the program's batch size": loader.batch_size,
            "the loader's drop_last": loader.drop_last,
            "losses": self.plan.get("loss"),
            "the number of steps to new shares": self.every,
            **{f"the sampler's {name}": getattr(sampler, name, None) for name in names},
        }

    def _refuse(self, why: str) -> None:
        """Undo changes that were not agreed on; `why` begins with the name of the loader."""
        self.over = True
        for candidate in list(self.candidates.values()):
            other = candidate.reference()
            if other is not None and candidate.shared is not None and not candidate.agreed:
                other.batch_sampler.sampler = candidate.shared.own
                other.batch_sampler.batch_size = other.batch_size
                candidate.shared = None
        self.applier.tell({"balance": "refused"})
        self.applier.note(
            f"balance.json is not applied to {why}; the program goes on as it is written"
        )

    def _apply(
        self, loader: "Any", candidate: _PlannedLoader, words: str, models: "list[Any]"
    ) -> None:
        candidate.agreed = True
        self.applier.tell({"balance": "applied"})
        loss_kind = "sum: they are not weighted" if self.weights.summed else "mean over its samples"
        total, own = sum(self.sizes), loader.batch_size
        self.applier.note(
            f"each step's {total:,} samples of {words} go to the ranks as {shown(self.sizes)}; "
            f"a rank's loss is taken for a {loss_kind}"
        )
        if own * len(self.sizes) != total:
            self.applier.note(
                f"a step trains on {total:,} samples, where the program's own "
                f"{len(self.sizes)} x {own} are {own * len(self.sizes):,}"
            )
        norms = [name for model in models for name in ddp_model.local_norms(model)]
        if norms and (self.every or len(set(self.sizes)) > 1):
            self.applier.note(
                f"batch norm ({ddp_model.shortened(norms)}) takes its statistics from each rank's "
                "own share, so an update is not that of the whole batch; "
                "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) makes it so"
            )

    def _share(self, rank: int) -> int:
        """Return the current share of a rank in a full global batch."""
        return (self.rebalancing.changes[-1][1] if self.rebalancing else self.sizes)[rank]


def _is_distributed(loader: "Any") -> bool:
    """Return whether the sampler is torch's DistributedSampler itself, not a subclass."""
    distributed: Any = sys.modules.get("torch.utils.data.distributed")
    return distributed is not None and type(loader.sampler) is distributed.DistributedSampler


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("s" if number != 1 else "")


def _note_out_of_memory(balance: ShareApplier, share_now: "Callable[[], int]", own: int) -> None:
    """If the program runs out of memory, note that its share exceeds its own batch size."""

    def ends(kind: "Any", error: "Any") -> None:
        words, share = str(error), share_now()
        short = issubclass(kind, MemoryError) or kind.__name__ == "OutOfMemoryError"
        if share > own and (short or "can't allocate memory" in words):
            balance.applier.note(
                f"a rank ran out of memory at its share of {share} samples, where the program "
                f"itself gives it {own}: the plan needs a cap for it (lotus balance --help)"
            )

    balance.before_uncaught(ends)


def _init(original: "Callable[..., Any]", balance: "Any") -> "Callable[..., Any]":
    """Hook for `DataLoader.__init__`, outside that of settings_applier.py."""

    def __init__(self: "Any", *args: "Any", **kwargs: "Any") -> None:
        try:
            original(self, *args, **kwargs)
        except BaseException as error:
            hide(error)
            raise
        edge(balance, balance.made, self, sys._getframe(1))

    return hook(__init__)


def _get_iterator(original: "Callable[..., Any]", balance: ShareApplier) -> "Callable[..., Any]":
    """Hook for `DataLoader._get_iterator`, outside that of settings_applier.py."""

    def _get_iterator(self: "Any") -> "Any":
        try:
            shared = balance.iterated(self)
            iterator = original(self)
            if shared is not None:
                watch(iterator, shared, balance.weights)
        except BaseException as error:
            hide(error)
            raise
        return iterator

    return hook(_get_iterator)
