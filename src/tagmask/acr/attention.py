"""Self-attention that also gives its head mean, without keeping the matrix of every head.

The consistency losses need Ā, the mean over heads of the post-softmax attention, of every block.
Keeping (B, heads, N, N) of every block for the backward pass is what makes the straightforward way
heavy. Here the forward pass computes the matrices a few heads at a time and keeps only q, k, v and
Ā; the backward pass computes them again, as fused attention kernels do.

No architecture is changed: while ``record_attention`` is active, ``attend`` takes the place of
``torch.nn.functional.scaled_dot_product_attention`` inside the blocks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint as recompute

from tagmask.errors import TagmaskError

_WORKING_ELEMENTS = {
    "cpu": 2**18,
    "other": 2**26,
}  # matrix entries per temporary; on a CPU they fit the core's cache


def probabilities(
    query: Tensor, key: Tensor, scale: float | None, mask: Tensor | None = None
) -> Tensor:
    """Return the softmax attention of queries and keys.

    Args:
        query: (B, heads, N, d).
        key: (B, heads, N, d).
        scale: Factor on the scores; None means 1/√d.
        mask: Which pairs may attend (bool), or what is added to the scores; None for neither.

    Returns:
        (B, heads, N, N), rows summing to 1, in the type of ``query``.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query * scale) @ key.transpose(-2, -1)  # (B, heads, N, N)
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(
        query.dtype
    )


class _Attend(torch.autograd.Function):
    """(q, k, v) -> (output, head mean); the backward pass computes the matrices again.

    Autocast changes nothing here: it leaves operations in place or with ``out`` alone.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float | None
    ) -> tuple[Tensor, Tensor]:
        """Return the output of the attention and its head mean, a few matrices at a time.

        Args:
            ctx: Receives what the backward pass needs: q, k, v and the scale.
            query: (B, heads, N, d).
            key: (B, heads, N, d).
            value: (B, heads, N, d).
            scale: Factor on the scores; None means 1/√d.

        Returns:
            Output (B, heads, N, d) and head mean (B, N, N).
        """
        batch, heads, tokens, depth = query.shape
        ctx.scale = depth**-0.5 if scale is None else scale
        output = value.new_empty(batch, tokens, heads, value.shape[-1]).transpose(
            1, 2
        )  # heads of a token lie together
        mean = query.new_zeros(
            batch, tokens, tokens, dtype=torch.promote_types(query.dtype, torch.float32)
        )
        for images, group, work in _chunks(query, buffers=2):
            q, k, v = (t[images, group].flatten(0, 1) for t in (query, key, value))  # (m, N, d)
            matrices = _matrices(q, k, ctx.scale, work)  # (m, N, N)
            output[images, group] = _by_image(
                torch.bmm(matrices, v, out=torch.empty_like(v)), group
            )
            for matrix in _by_image(matrices, group).unbind(1):  # (b, N, N)
                mean[images].add_(matrix, alpha=1 / heads)
        ctx.save_for_backward(query, key, value)
        ctx.set_materialize_grads(False)
        return output, mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        """Return the gradients of query, key and value, from matrices that are computed again.

        Args:
            ctx: What ``forward`` saved.
            *grads: Gradients of the output and of the head mean; each may be None.

        Returns:
            Gradients of query, key and value, then None for the scale.
        """
        grad_output, grad_mean = grads
        query, key, value = ctx.saved_tensors
        if grad_output is None:
            grad_output = torch.zeros_like(value)
        gradients = [t.new_empty(t.shape) for t in (query, key, value)]
        for images, group, work in _chunks(query, buffers=3):
            q, k, v, grad = (
                t[images, group].flatten(0, 1) for t in (query, key, value, grad_output)
            )  # (m, N, d)
            grad_q, grad_k, grad_v = (
                t[images, group].view(-1, *t.shape[2:]) for t in gradients
            )  # (m, N, d)
            matrices = _matrices(q, k, ctx.scale, work)  # (m, N, N)
            torch.bmm(matrices.mT, grad, out=grad_v)
            grad_matrices = torch.bmm(grad, v.mT, out=work[0])  # (m, N, N)
            if grad_mean is not None:
                _by_image(grad_matrices, group).add_(
                    grad_mean[images].unsqueeze(1), alpha=1 / query.shape[1]
                )
            grad_scores = torch.ops.aten._softmax_backward_data(
                grad_matrices, matrices, -1, matrices.dtype, grad_input=work[2]
            )
            grad_q.baddbmm_(grad_scores, k, beta=0, alpha=ctx.scale)
            grad_k.baddbmm_(grad_scores.mT, q, beta=0, alpha=ctx.scale)
        return (*gradients, None)


def _matrices(query: Tensor, key: Tensor, scale: float, work: Tensor) -> Tensor:
    """Return softmax attention (m, N, N) of query and key (m, N, d) in work[1].

    work[0] is overwritten too.
    """
    scores = work[0].baddbmm_(query, key.mT, beta=0, alpha=scale)
    torch.softmax(scores, dim=-1, out=work[1])
    return work[1]


def _by_image(tensor: Tensor, group: slice) -> Tensor:
    """View (m, …) as (b, h, …), the same memory, h being the heads in ``group``."""
    return tensor.view(-1, group.stop - group.start, *tensor.shape[1:])


def _chunks(query: Tensor, buffers: int) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield images and heads to take together, with work space for their m matrices.

    They are all heads of a few images or, if one image is too large, a few heads of it. The work
    space (buffers, m, N, N) is reused by all.
    """
    batch, heads, tokens, _ = query.shape
    budget = _WORKING_ELEMENTS["cpu" if query.device.type == "cpu" else "other"]
    fitting = max(1, budget // tokens**2)  # matrices
    images_at_once, heads_at_once = min(max(1, fitting // heads), batch), min(fitting, heads)
    work = query.new_empty(buffers, images_at_once * heads_at_once, tokens, tokens)
    for image in range(0, batch, images_at_once):
        images = slice(image, min(image + images_at_once, batch))
        for head in range(0, heads, heads_at_once):
            group = slice(head, min(head + heads_at_once, heads))
            yield images, group, work[:, : (images.stop - image) * (group.stop - head)]


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
    """Return the attention's output and its head mean; take what the torch function takes.

    Args:
        query: (B, heads, N, d).
        key: (B, heads, N, d).
        value: (B, heads, N, d).
        attn_mask: Which pairs may attend (bool), or what is added to the scores; None for neither.
        dropout_p: Must be 0.
        is_causal: Must be False.
        scale: Factor on the scores; None means 1/√d.
        **_: Other arguments of the torch function, which change nothing here.

    Returns:
        Output (B, heads, N, d) and head mean (B, N, N).

    Raises:
        TagmaskError: If dropout or a causal mask is asked for.
    """
    if dropout_p or is_causal:
        raise TagmaskError(
            "attention dropout and causal masks cannot be recorded; "
            "create the backbone without them."
        )
    query, key = (
        query.to(value.dtype),
        key.to(value.dtype),
    )  # a norm of q and k leaves mixed precision
    if attn_mask is None:
        output, mean = _Attend.apply(query, key, value, scale)  # type: ignore[no-untyped-call]
        return output, mean
    matrices = probabilities(
        query, key, scale, attn_mask
    )  # a mask may be learned: leave it to autograd
    return matrices @ value, matrices.mean(dim=1)


def attend_per_head(
    query: Tensor, key: Tensor, value: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    """Return the attention's output and the matrix of every head.

    The matrices start a graph if there is none yet.

    Args:
        query: (B, heads, N, d).
        key: (B, heads, N, d).
        value: (B, heads, N, d).
        **options: ``scale`` and ``attn_mask`` as in ``attend``; others change nothing.

    Returns:
        Output (B, heads, N, d) and matrices (B, heads, N, N).
    """
    matrices = probabilities(
        query, key, options.get("scale"), options.get("attn_mask")
    ).requires_grad_()
    return matrices @ value, matrices


class ReplaceAttention(TorchFunctionMode):
    """Let ``rule`` take the place of scaled_dot_product_attention within the context."""

    def __init__(self, rule: Callable[..., Tensor]) -> None:
        super().__init__()
        self.rule = rule

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            with torch._C.DisableTorchFunctionSubclass():
                return self.rule(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@contextmanager
def record_attention(
    blocks: Iterable[nn.Module],
    rule: Callable[..., tuple[Tensor, Tensor]] = attend,
    checkpoint: bool = False,
) -> Iterator[list[Tensor]]:
    """Let each block called within the context append its attention to the list yielded.

    Afterwards the blocks are as before, also after an exception.

    Args:
        blocks: Blocks of a ViT.
        rule: ``attend`` (head mean, (B, N, N)) or ``attend_per_head`` ((B, heads, N, N)).
        checkpoint: Keep only a block's input for the backward pass, and run the block again there.

    Yields:
        The attention of each call, in the order of the calls.
    """
    recorded: list[Tensor] = []
    with replaced_forwards(
        {block: _recording(block, rule, recorded, checkpoint) for block in blocks}
    ):
        yield recorded


@contextmanager
def replaced_forwards(forwards: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Let the modules run these functions within the context."""
    try:
        for module, forward in forwards.items():
            module.forward = forward
        yield
    finally:
        for module in forwards:
            module.__dict__.pop("forward", None)  # uncovers the method of the class


def _recording(
    block: nn.Module,
    rule: Callable[..., tuple[Tensor, Tensor]],
    recorded: list[Tensor],
    checkpoint: bool,
) -> Callable[..., Any]:
    """Return the forward of ``block`` that also appends its attention to ``recorded``."""
    plain = block.forward

    def run(*args: Any, **kwargs: Any) -> tuple[Any, Tensor]:
        matrices: list[Tensor] = []

        def keep(*args: Any, **kwargs: Any) -> Tensor:
            output, attention = rule(*args, **kwargs)
            matrices.append(attention)
            return output

        with ReplaceAttention(keep):
            output = plain(*args, **kwargs)
        if len(matrices) != 1:
            raise TagmaskError(
                f"a {type(block).__name__} of this backbone makes {len(matrices)} attention "
                "matrices, not one; use a plain ViT such as deit_small_patch16_224."
            )
        return output, matrices[0]

    def forward(*args: Any, **kwargs: Any) -> Any:
        if checkpoint and torch.is_grad_enabled():
            output, attention = recompute(run, *args, use_reentrant=False, **kwargs)
        else:
            output, attention = run(*args, **kwargs)
        recorded.append(attention)
        return output

    return forward
