"""Self-attention that also gives its head mean, without keeping the matrix of every head.

The consistency losses need Ā, the mean over heads of the post-softmax attention, of every block. Keeping
(B, heads, N, N) of every block for the backward pass is what makes the straightforward way heavy. Here the
forward pass makes the matrices a few images at a time, keeps only q, k, v and Ā, and the backward pass makes
them again, as fused attention kernels do.

No architecture is changed: while ``record_attention`` is active, calls of
``torch.nn.functional.scaled_dot_product_attention`` inside the blocks are answered by ``attend``.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint as recompute

from tagmask.errors import TagmaskError

_WORKING_ELEMENTS = {"cpu": 2**22, "other": 2**26}  # matrix entries alive at once, per temporary


def probabilities(query: Tensor, key: Tensor, scale: float | None, mask: Tensor | None = None) -> Tensor:
    """Softmax attention (B, heads, N, N) of query and key (B, heads, N, d); ``mask`` is bool or additive."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query * scale) @ key.transpose(-2, -1)  # (B, heads, N, N)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)


class _Attend(torch.autograd.Function):
    """(q, k, v) -> (output, head mean); the matrices are made again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
        batch, heads, tokens, _ = query.shape
        output = torch.empty(batch, heads, tokens, value.shape[-1], dtype=value.dtype, device=value.device)
        mean_dtype = torch.promote_types(query.dtype, torch.float32)
        mean = torch.empty(batch, tokens, tokens, dtype=mean_dtype, device=query.device)
        with torch.autocast(query.device.type, enabled=False):
            for part in _chunks(query):
                matrices = probabilities(query[part], key[part], scale)  # (b, heads, N, N)
                torch.mean(matrices, dim=1, dtype=mean_dtype, out=mean[part])
                output[part] = matrices @ value[part]
        ctx.save_for_backward(query, key, value)
        ctx.scale = scale
        ctx.set_materialize_grads(False)
        return output, mean

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        grad_output, grad_mean = grads
        query, key, value = ctx.saved_tensors
        if grad_output is None:
            grad_output = value.new_zeros(value.shape)
        scale = query.shape[-1] ** -0.5 if ctx.scale is None else ctx.scale
        grads_qkv = [torch.empty_like(t) for t in (query, key, value)]
        with torch.autocast(query.device.type, enabled=False):
            for part in _chunks(query):
                mean = None if grad_mean is None else grad_mean[part]
                found = _backward_part(query[part], key[part], value[part], scale, grad_output[part], mean)
                for whole, piece in zip(grads_qkv, found, strict=True):
                    whole[part] = piece
        return (*grads_qkv, None)


def _backward_part(
    query: Tensor, key: Tensor, value: Tensor, scale: float, grad_output: Tensor, grad_mean: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k, v for a few images, each (b, heads, N, d)."""
    matrices = probabilities(query, key, scale)  # (b, heads, N, N)
    grad_value = matrices.transpose(-2, -1) @ grad_output
    grad_matrices = grad_output @ value.transpose(-2, -1)  # (b, heads, N, N)
    if grad_mean is not None:
        grad_matrices += (grad_mean / query.shape[1]).unsqueeze(1).to(grad_matrices.dtype)
    grad_scores = torch.ops.aten._softmax_backward_data(grad_matrices, matrices, -1, matrices.dtype)
    return (grad_scores @ key) * scale, grad_scores.transpose(-2, -1) @ (query * scale), grad_value


def _chunks(query: Tensor) -> Iterator[slice]:
    """Slices of the batch whose matrices fit the working memory."""
    batch, heads, tokens, _ = query.shape
    budget = _WORKING_ELEMENTS["cpu" if query.device.type == "cpu" else "other"]
    step = max(1, budget // (heads * tokens * tokens))
    return (slice(start, start + step) for start in range(0, batch, step))


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Attention output (B, heads, N, d) and head mean (B, N, N); takes what the torch function takes."""
    if dropout_p or is_causal:
        raise TagmaskError("attention dropout and causal masks cannot be recorded; create the backbone without them.")
    if attn_mask is None:
        output, mean = _Attend.apply(query, key, value, scale)
        return output, mean
    matrices = probabilities(query, key, scale, attn_mask)  # a mask may be learned: leave it to autograd
    return matrices @ value, matrices.mean(dim=1)


def attend_per_head(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Attention output and the matrix of every head (B, heads, N, N), both in the graph."""
    matrices = probabilities(query, key, options.get("scale"), options.get("attn_mask"))
    return matrices @ value, matrices


class _Recorder(TorchFunctionMode):
    """Answers scaled_dot_product_attention by ``rule`` and keeps the second thing the rule returns."""

    def __init__(self, rule: Callable[..., tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.rule = rule
        self.found: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            with torch._C.DisableTorchFunctionSubclass():
                output, attention = self.rule(*args, **(kwargs or {}))
            self.found.append(attention)
            return output
        return func(*args, **(kwargs or {}))


@contextmanager
def record_attention(
    blocks: Iterable[nn.Module],
    rule: Callable[..., tuple[Tensor, Tensor]] = attend,
    checkpoint: bool = False,
) -> Iterator[list[Tensor]]:
    """Within the context each block called appends its attention to the list yielded.

    ``rule`` is ``attend`` (head mean) or ``attend_per_head``. With ``checkpoint`` a block keeps only its input
    for the backward pass and is run again there. The blocks are as before afterwards, also after an exception.
    """
    found: list[Tensor] = []
    patched: list[nn.Module] = []
    try:
        for block in blocks:
            block.forward = _recording(block, rule, found, checkpoint)
            patched.append(block)
        yield found
    finally:
        for block in patched:
            del block.forward  # the method of the class shows again


def _recording(
    block: nn.Module, rule: Callable[..., tuple[Tensor, Tensor]], found: list[Tensor], checkpoint: bool
) -> Callable[..., Any]:
    """The forward of ``block`` that also appends its attention to ``found``."""
    plain = block.forward

    def recorded(*args: Any, **kwargs: Any) -> tuple[Any, Tensor]:
        with _Recorder(rule) as recorder:
            output = plain(*args, **kwargs)
        if len(recorder.found) != 1:
            raise TagmaskError(
                f"a {type(block).__name__} of this backbone makes {len(recorder.found)} attention matrices, not one; "
                "use a plain ViT such as deit_small_patch16_224."
            )
        return output, recorder.found[0]

    def forward(*args: Any, **kwargs: Any) -> Any:
        if checkpoint and torch.is_grad_enabled():
            output, attention = recompute(recorded, *args, use_reentrant=False, **kwargs)
        else:
            output, attention = recorded(*args, **kwargs)
        found.append(attention)
        return output

    return forward
