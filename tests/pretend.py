"""A GPU that is none: its tensors are on the device ``pretend``, and the CPU computes them.

Real numbers run through every line that a GPU would run, also where what follows depends on them (``.item()``,
``nonzero``), and what a GPU refuses is refused: mixing with tensors on the CPU, and ``.numpy()`` without ``.cpu()``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from accelerate.state import AcceleratorState
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

aten = torch.ops.aten
MOVES = {aten.copy_, aten._to_copy, aten.to}
INDEXES = {aten.index, aten.index_put_, aten._index_put_impl_}  # by tensors on the CPU too


class Backend(_DummyBackendModule):
    """What torch asks about a device."""

    there = False

    def is_available(self) -> bool:
        return self.there

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


_setup_privateuseone_for_python_backend("pretend", Backend())
with mock.patch.object(
    Backend, "there", True
):  # the first backward pass of a process counts its devices
    torch.ones(1, requires_grad=True).sum().backward()
_ALL = torch.library.Library("_", "IMPL")
_ALL.fallback(
    torch.library.fallthrough_kernel, "AutocastPrivateUse1"
)  # autocast may be asked for, but casts nothing
GPU, CPU = torch.device("pretend", 0), torch.device("cpu")


class OnGpu(Tensor):
    """Hides a tensor on the CPU."""

    hidden: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, hidden: Tensor) -> "OnGpu":
        dense = hidden.layout == torch.strided  # a sparse matrix is shown as a dense one
        form: Any = (
            {"strides": hidden.stride(), "storage_offset": hidden.storage_offset()} if dense else {}
        )
        tensor: OnGpu = Tensor._make_wrapper_subclass(
            cls, hidden.shape, device=GPU, dtype=hidden.dtype, **form
        )
        tensor.hidden = hidden
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return compute(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.hidden.tolist()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"on the GPU: {self.hidden}"


class _Everywhere(TorchDispatchMode):
    """Sees also what makes the first tensors on the GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # importing it takes seconds


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation, with the answer where a GPU would leave it."""
    kind, values = func.overloadpacket, list(_leaves([args, kwargs]))
    here = any(isinstance(value, OnGpu) for value in values)
    if here and kind not in MOVES:
        among = _leaves(args[0]) if kind in INDEXES else values
        if any(
            isinstance(value, Tensor) and not isinstance(value, OnGpu) and value.ndim
            for value in among
        ):
            raise RuntimeError(
                f"{func}: expected all tensors to be on the same device, but found {GPU} and cpu"
            )
    if (
        kind in MOVES and len(args) > 1 and isinstance(args[1], Tensor)
    ):  # x.copy_(y) stays, x.to(y) goes there
        here = isinstance(args[kind is aten.to], OnGpu)
    for value in values:
        here = value.type == GPU.type if isinstance(value, torch.device) else here
    plain_args, plain_kwargs = _each(_plain, [args, kwargs])
    answer = func(*plain_args, **plain_kwargs)
    if not here:
        return answer
    known = {
        id(value.hidden): value for value in values if isinstance(value, OnGpu)
    }  # changed in place
    with torch.inference_mode(False):  # a view of an ordinary tensor must be one too
        return _each(lambda value: known[id(value)] if id(value) in known else _hide(value), answer)


def _plain(value: Any) -> Any:
    return (
        value.hidden
        if isinstance(value, OnGpu)
        else CPU
        if isinstance(value, torch.device)
        else value
    )


def _hide(value: Any) -> Any:
    return OnGpu(value) if isinstance(value, Tensor) else value


def _leaves(value: Any) -> Iterator[Any]:
    if not isinstance(value, list | tuple | dict):
        yield value
        return
    for part in value.values() if isinstance(value, dict) else value:
        yield from _leaves(part)


def _each(rule: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _each(rule, part) for name, part in value.items()}
    return (
        type(value)(_each(rule, part) for part in value)
        if isinstance(value, list | tuple)
        else rule(value)
    )


@contextmanager
def pretend_gpu() -> Iterator[None]:
    """Within the context there is a GPU."""
    AcceleratorState._reset_state(reset_partial_state=True)
    there = mock.patch.object(Backend, "there", True)
    launched = mock.patch.dict("os.environ", ACCELERATE_TORCH_DEVICE=str(GPU))
    torch.__future__.set_swap_module_params_on_conversion(
        True
    )  # optimisers know parameters that are moved
    torch._C._set_only_lift_cpu_tensors(
        True
    )  # torch.tensor([…], device=…) is made on the CPU, then moved
    try:
        with there, launched, _Everywhere():  # type: ignore[no-untyped-call]
            yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
        torch._C._set_only_lift_cpu_tensors(False)
        AcceleratorState._reset_state(reset_partial_state=True)
