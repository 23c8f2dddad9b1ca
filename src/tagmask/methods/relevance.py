"""Relevance of every token for a class (Chefer et al. 2021), carried through the network during the backward pass.

Only row 0 of R ← R + Ā R is needed, with Ā = mean_heads relu(∇A ⊙ A) of each block, and it can be carried as a row from
the last block to the first: r ← r + r Ā. The backward pass visits the blocks in the same order. So where it meets the
attention of a block it has ∇A for a moment, uses it for r, and drops it: no matrix and no gradient is kept.

Each class takes a backward pass, in which every linear layer costs as much as in the forward pass; nothing cheaper is
known. Two parts are saved: the last block is run only for the tokens that the head reads, and the backward pass ends at
the attention of the first.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from tagmask.acr.attention import ReplaceAttention, probabilities, replaced_forwards
from tagmask.acr.gradients import Network, check_head, evaluating, frozen, one_hot, up_to_attention

_AT_ONCE = {"cpu": 1, "other": 8}  # images whose activations are kept at a time


def relevance(
    model: Network, images: Tensor, classes: Tensor, wanted: range
) -> tuple[Tensor, list[Tensor]]:
    """Relevance (B, K, n) of the patches for ``classes`` (B, K; −1 = padding), and Ā of the ``wanted`` blocks."""
    check_head(model)
    size = _AT_ONCE["cpu" if images.device.type == "cpu" else "other"]
    with evaluating(model.vit), frozen(model.vit), torch.inference_mode(False), torch.enable_grad():
        parts = [_Relevance(model, wanted) for _ in range(0, len(images), size)]
        pairs = zip(parts, images.split(size), classes.split(size), strict=True)
        rows = [part.rows(some_images, some_classes) for part, some_images, some_classes in pairs]
    means = [torch.cat(same) for same in zip(*(part.means for part in parts), strict=True)]
    return torch.cat(rows)[..., model.prefix :], [
        model.without_extra_tokens(mean) for mean in means
    ]


def carry(row: Tensor, attention: Tensor, gradients: Tensor) -> Tensor:
    """r + r Ā of a row (B, 1, N), attention (B, heads, T, N) of the first T tokens and its gradients."""
    return row + row[..., : attention.shape[-2]] @ (gradients * attention).relu().mean(dim=1)


class _Relevance:
    """One forward pass of some images, and a backward pass for each class."""

    def __init__(self, model: Network, wanted: range) -> None:
        self.model, self.wanted = model, wanted
        self.means: list[Tensor] = []  # Ā (b, N, N) of the wanted blocks
        self.row = torch.empty(0)  # (b, 1, N), of the class that goes backward
        self.start = torch.zeros(
            (), requires_grad=True
        )  # every attention hangs on it, that of the first block too

    def rows(self, images: Tensor, classes: Tensor) -> Tensor:
        """Relevance (b, K, N) of all tokens."""
        last = len(self.model.blocks) - 1
        forwards: dict[Any, Callable[..., Tensor]] = {
            block: partial(self.last if i == last else self.through, i, block.forward)
            for i, block in enumerate(self.model.blocks)
        }
        with replaced_forwards(forwards):
            logits = self.model.vit(images)  # (b, C)
        rows = []
        for chosen in one_hot(classes, logits).unbind(1):  # (b, C)
            self.row = torch.zeros_like(self.row)
            self.row[..., 0] = chosen.sum(-1, keepdim=True)  # 1, or 0 for padding
            if chosen.any():
                torch.autograd.grad((logits * chosen).sum(), self.start, retain_graph=True)
            rows.append(self.row)
        return torch.cat(rows, dim=1)

    def through(
        self, i: int, forward: Callable[..., Tensor], tokens: Tensor, **options: Any
    ) -> Tensor:
        """A block before the last."""

        def attend(
            query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **_: Any
        ) -> Any:
            keep = i in self.wanted
            return _Attend.apply(self.start, query, key, value, attn_mask, self, keep)  # type: ignore[no-untyped-call]

        with ReplaceAttention(attend):
            return forward(tokens, **options)

    def last(
        self, i: int, forward: Callable[..., Tensor], tokens: Tensor, **options: Any
    ) -> Tensor:
        """The last block, for the tokens (b, T, D) that the head reads."""
        block = up_to_attention(forward, tokens, options)
        query, key = block.query, block.key
        if i in self.wanted:
            self.means.append(probabilities(query, key, None, block.bias).detach().mean(1))
        self.row = key.new_empty(len(key), 1, key.shape[-2])
        places = 1 if getattr(self.model.vit, "head_dist", None) is None else 2
        mixed = _Attend.apply(  # type: ignore[no-untyped-call]
            self.start,
            query[:, :, :places],
            key,
            block.value,
            block.bias_of(slice(places)),
            self,
            False,
        )
        return block.of_class_tokens(tokens[:, :places], lambda *_, **__: mixed)


class _Attend(torch.autograd.Function):
    """Attention whose backward pass carries the row of relevance; keeps its Ā on request."""

    @staticmethod
    def forward(
        ctx: Any,
        start: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        work: _Relevance,
        keep: bool,
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, bias)
        ctx.work = work
        if not keep:
            return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        matrices = probabilities(query, key, None, bias)  # (b, heads, N, N)
        work.means.append(matrices.mean(1))
        return matrices @ value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, bias = ctx.saved_tensors
        matrices = probabilities(query, key, None, bias)  # (b, heads, T, N)
        gradients = grad @ value.mT  # ∂ logit / ∂ attention
        ctx.work.row = carry(ctx.work.row, matrices, gradients)
        done = torch.zeros_like(ctx.work.start)
        if not any(ctx.needs_input_grad[1:4]):  # in the first block
            return done, *[None] * 6
        products = gradients.mul_(matrices)
        scores = products - matrices * products.sum(-1, keepdim=True)  # ∂ logit / ∂ scores
        scores *= query.shape[-1] ** -0.5
        return done, scores @ key, scores.mT @ query, matrices.mT @ grad, None, None, None
