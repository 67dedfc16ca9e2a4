"""Recognises parameters, buffers, gradients and optimizer state from what a program does."""

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules import module as nn_module
from torch.optim import optimizer as optim

_Kind = TypeVar("_Kind")
_Owner = TypeVar("_Owner")
# tensors of these types have no other tensors inside
PLAIN = frozenset((Tensor, nn.Parameter))
SEQUENCES = (list, tuple)


class Ownership:
    """Watches modules being made and optimizers stepping; says which allocations are theirs."""

    def __init__(
        self,
        block_ids: Callable[[Sequence[int]], list[int]],
        is_detailed: bool = True,
        pause: Callable[[bool], bool] = lambda _: False,
    ) -> None:
        """`block_ids` gives the numbers of the allocations at addresses. `pause` stops what makes
        Python slow. Without details only parameters are counted."""
        self._block_ids, self._is_detailed, self._pause = block_ids, is_detailed, pause
        self._modules: dict[int, weakref.ref[nn.Module]] = {}
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        self._most_parameters = self._most_trainable = 0
        # numbers of allocations by the address of a tensor's first element
        self._numbers_at: dict[int, tuple[int, ...]] = {}
        # the category by that address, for tensors that have their final name: most are seen again
        # in every step
        self._settled: dict[int, str] = {}
        # an optimizer has stepped since look(), so its gradients and state are already recorded
        self._has_stepped = False
        # by the number of the allocation
        self.category_of: dict[int, str] = {}
        self.name_of: dict[int, str] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        hooks = [
            nn_module.register_module_parameter_registration_hook(self._saw_module),
            nn_module.register_module_buffer_registration_hook(self._saw_module),
            nn_module.register_module_module_registration_hook(self._saw_module),
            optim.register_optimizer_step_pre_hook(self._before_update),
            optim.register_optimizer_step_post_hook(self._after_update),
        ]
        set_state, make_optimizer = nn.Module.__setstate__, optim.Optimizer.__init__
        drop_gradients = optim.Optimizer.zero_grad

        def __setstate__(module: nn.Module, state: dict[str, Any]) -> None:
            """Copied and unpickled modules call no registration hook."""
            set_state(module, state)
            self._saw_module(module)

        def __init__(optimizer: Any, *arguments: Any, **options: Any) -> None:
            """Notes the optimizer here, because a compiled step calls no hooks."""
            make_optimizer(optimizer, *arguments, **options)
            self._optimizers[id(optimizer)] = weakref.ref(optimizer)

        @torch._disable_dynamo  # as torch's own is
        def zero_grad(optimizer: Any, *arguments: Any, **options: Any) -> None:
            """Notes gradients here, because a compiled step has called no hooks."""
            if self._is_detailed and not self._has_stepped:
                self._at_full_speed(self._put_gradients)
            drop_gradients(optimizer, *arguments, **options)

        nn.Module.__setstate__ = __setstate__  # type: ignore[method-assign]
        optim.Optimizer.__init__ = __init__  # type: ignore[assignment,method-assign]
        optim.Optimizer.zero_grad = zero_grad  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            optim.Optimizer.__init__ = make_optimizer  # type: ignore[method-assign]
            optim.Optimizer.zero_grad = drop_gradients  # type: ignore[method-assign]
            nn.Module.__setstate__ = set_state  # type: ignore[method-assign]
            for hook in hooks:
                hook.remove()

    def _saw_module(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_dynamo_compiling():  # a real run has no hooks to compile
            return
        self._modules[id(module)] = weakref.ref(module)

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        if torch.compiler.is_dynamo_compiling():
            return
        self._optimizers[id(optimizer)] = weakref.ref(optimizer)
        if not self._most_parameters:  # a captured step may keep only its graph
            self.num_parameters()
        if not self._is_detailed:
            return

        def put() -> None:
            # parameters of modules have their names already
            self._put_all("parameters", ((p, None, "") for p in _parameters_of(optimizer)))
            self._put_gradients()

        self._at_full_speed(put)

    def _after_update(self, *_: Any) -> None:
        if self._is_detailed and not torch.compiler.is_dynamo_compiling():
            self._at_full_speed(self._put_state)
            self._has_stepped = True

    def _at_full_speed(self, put: Callable[[], None]) -> None:
        is_paused, collects = self._pause(True), gc.isenabled()
        gc.disable()
        try:
            put()
        finally:
            if collects:
                gc.enable()
            if is_paused:
                self._pause(False)

    def look(self) -> tuple[int, int]:
        """Between steps: finds what modules and optimizers own. Returns the numbers of
        parameters."""
        # not while torch.func has replaced the parameters, nor while jit would trace our calls too
        if not torch._C._functorch.peek_interpreter_stack() and not torch.jit.is_tracing():
            self._at_full_speed(self._look)
        return self._most_parameters, self._most_trainable

    def _look(self) -> None:
        if self._is_detailed:
            self._put_module_tensors()
            if not self._has_stepped:
                self._put_gradients()
                self._put_state()
        self._has_stepped = False
        self.num_parameters()

    def num_parameters(self) -> tuple[int, int]:
        """The elements of all distinct parameters seen so far, and of those that need gradients.
        Parameters that are sharded over several GPUs count in full."""
        whole = self._numbers_of_elements()
        self._most_parameters = max(self._most_parameters, sum(n for n, _ in whole.values()))
        trainable = sum(n for n, needs_gradient in whole.values() if needs_gradient)
        self._most_trainable = max(self._most_trainable, trainable)
        return self._most_parameters, self._most_trainable

    def _numbers_of_elements(self) -> dict[int, tuple[int, bool]]:
        """By the id of a parameter: its number of elements, and whether it needs a gradient."""
        copies = self._master_copies()
        whole = {
            id(p): (_num_elements(p), p.requires_grad)
            for p in self._distinct_parameters()
            if id(p) not in copies
        }
        for module in _alive(self._modules):
            # FullyShardedDataParallel has a flat parameter; its parts may be visible too, and must
            # not count twice
            handle = module.__dict__.get("_handle")
            if (flat := getattr(handle, "flat_param", None)) is not None:
                parts = getattr(flat, "_params", None) or ()
                whole |= dict.fromkeys(map(id, parts), (0, False))
                size = flat._unpadded_unsharded_size.numel()
                whole[id(flat)] = size, flat.requires_grad
        return whole

    def _master_copies(self) -> set[int]:
        """The ids of what optimizers have instead of the modules' parameters, such as the flat
        copies in float32 of DeepSpeed and of others that train in half precision."""
        in_modules = {id(p): p for module in _alive(self._modules) for p in _own_parameters(module)}
        stepped = {id(p) for one in _alive(self._optimizers) for p in _parameters_of(one)}
        are_left_out = any(p.requires_grad for name, p in in_modules.items() if name not in stepped)
        return stepped - in_modules.keys() if are_left_out else set()

    def _parameters(self) -> Iterator[Tensor]:
        for module in _alive(self._modules):
            yield from _own_parameters(module)
        for optimizer in _alive(self._optimizers):
            yield from _parameters_of(optimizer)

    def _put_module_tensors(self) -> None:
        modules = _alive(self._modules)
        for category, kept in (("parameters", "_parameters"), ("buffers", "_buffers")):
            found = [
                (tensor, module, name)
                for module in modules
                for name, tensor in getattr(module, kept).items()
                if tensor is not None
            ]
            addresses = _addresses([one[0] for one in found])
            new = self._not_settled(category, addresses, found)
            names = self.module_names() if new else {}
            prefixes = (names.get(id(module), "") for _, _, module, _ in new)
            dotted = (f"{prefix}.".lstrip(".") for prefix in prefixes)
            self._put_all(
                category,
                ((one[1], None, prefix + one[3]) for one, prefix in zip(new, dotted, strict=True)),
            )

    def module_names(self) -> dict[int, str]:
        """Dotted names from the outermost modules down, by the module's id."""
        modules = _alive(self._modules)
        children = {id(child) for module in modules for child in module.children()}
        names: dict[int, str] = {}
        for module in modules:
            if id(module) not in children:
                for name, child in module.named_modules():
                    names.setdefault(id(child), name)
        return names

    def _put_gradients(self) -> None:
        found = ((parameter.grad, parameter, "") for parameter in self._distinct_parameters())
        self._put_all("gradients", (one for one in found if one[0] is not None))

    def _distinct_parameters(self) -> list[Tensor]:
        """Each parameter once, at its last position: where two share a gradient, the last one names
        it."""
        backwards = [*self._parameters()][::-1]
        return [*dict(zip(map(id, backwards), backwards, strict=True)).values()][::-1]

    def _put_state(self) -> None:
        self._put_all("optimizer_state", self._states())

    def _states(self) -> Iterator[tuple[Tensor, Tensor | None, str]]:
        for optimizer in _alive(self._optimizers):
            for parameter, state in optimizer.state.items():
                if not isinstance(state, dict):
                    continue
                for key, value in state.items():
                    for tensor in value if isinstance(value, SEQUENCES) else (value,):
                        # the count of steps, for example, may be on the host
                        if isinstance(tensor, Tensor) and tensor.is_cuda:
                            yield tensor, parameter if isinstance(parameter, Tensor) else None, key

    def _put_all(self, category: str, found: Iterable[tuple[Tensor, Tensor | None, str]]) -> None:
        """Records tensors under a category. Each comes with the parameter that it is named after,
        and the rest of its name."""
        given = [*found]
        new = self._not_settled(category, _addresses([one[0] for one in given]), given)
        all_numbers = self._all_numbers([one[0] for one in new], [one[1] for one in new])
        owners = [one[2] for one in new]
        owners_numbers = self._all_numbers(_addresses(owners), owners)
        # in a compiled update the optimizer's state appears as buffers
        stronger = ("parameters", "optimizer_state") if category == "buffers" else ("parameters",)
        category_of, name_of = self.category_of, self.name_of
        for one, numbers, owner in zip(new, all_numbers, owners_numbers, strict=True):
            address, more = one[0], one[3]
            name = name_of.get(owner[0], "") if owner else ""
            if more:
                name = f"{name} {more}".strip()
            for number in numbers:
                if number and category_of.get(number) not in stronger:
                    category_of[number] = category
                    if name:
                        name_of[number] = name
                    if address and (name or category == "parameters"):  # its name is final
                        self._settled[address] = category

    def _not_settled(
        self, category: str, addresses: list[int], found: list[tuple[Tensor, _Owner, str]]
    ) -> list[tuple[int, Tensor, _Owner, str]]:
        """The tensors that are not yet recorded under this category, with their addresses."""
        settled = self._settled
        return [
            (address, *one)
            for address, one in zip(addresses, found, strict=True)
            if not address or settled.get(address) != category
        ]

    def _all_numbers(
        self, addresses: Sequence[int], tensors: Sequence[Tensor | None]
    ) -> list[tuple[int, ...]]:
        numbers_at = self._numbers_at
        unknown = [address for address in addresses if address and address not in numbers_at]
        for address, number in zip(unknown, self._block_ids(unknown), strict=True):
            # the tensor begins where an allocation begins, and belongs to it for ever
            if number:
                numbers_at[address] = (number,)
        return [
            numbers_at.get(address) or self._numbers(address, tensor)
            for address, tensor in zip(addresses, tensors, strict=True)
        ]

    def _numbers(self, address: int, tensor: Tensor | None) -> tuple[int, ...]:
        if tensor is None:
            return ()
        if not address:
            return tuple(self._number(part) for part in _parts(tensor) if part.is_cuda)
        found = (self._number(tensor),) if tensor.is_cuda else ()
        if any(found):
            self._numbers_at[address] = found
        return found

    def _number(self, tensor: Tensor) -> int:
        return self._block_ids([tensor.untyped_storage().data_ptr()])[0]


def _addresses(tensors: Sequence[Any]) -> list[int]:
    """The addresses of the first elements; 0 for a tensor that may consist of other tensors."""
    if PLAIN.issuperset(map(type, tensors)):
        with suppress(RuntimeError):  # one is sparse
            return [*map(Tensor.data_ptr, tensors)]
    return [*map(_address, tensors)]


def _address(tensor: Any) -> int:
    return tensor.data_ptr() if type(tensor) in PLAIN and tensor.layout is torch.strided else 0


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """The tensors that hold the memory: a wrapper, such as a DTensor, has them inside."""
    if tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    elif torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python):
        flatten: Any = getattr(tensor, "__tensor_flatten__", lambda: (vars(tensor),))
        for part in (getattr(tensor, name) for name in flatten()[0]):
            if isinstance(part, Tensor):
                yield from _parts(part)
    elif tensor.layout is torch.strided:
        yield tensor


def _num_elements(parameter: Tensor) -> int:
    """The number of weights: bitsandbytes packs two weights of 4 bits into one element, and keeps
    their shape."""
    if type(parameter) in PLAIN:
        return parameter.numel()
    shape = getattr(getattr(parameter, "quant_state", None), "shape", None)
    return int(torch.Size(shape).numel()) if shape is not None else parameter.numel()


def _own_parameters(module: nn.Module) -> Iterator[Tensor]:
    return (parameter for parameter in module._parameters.values() if parameter is not None)


def _parameters_of(optimizer: Any) -> Iterator[Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _alive(references: dict[int, weakref.ref[_Kind]]) -> list[_Kind]:
    found = (reference() for reference in list(references.values()))
    return [thing for thing in found if thing is not None]
