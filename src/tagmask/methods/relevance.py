"""Relevance of every token for a class (Chefer et al. 2021), carried along the backward pass.

Only row 0 of R ← R + Ā R is needed, with Ā = mean_heads relu(∇A ⊙ A) of each block, and it can be
carried as a row from the last block to the first: r ← r + r Ā. The backward pass visits the blocks
in the same order. So where it meets the attention of a block it has ∇A for a moment, uses it for
r, and drops it: no matrix and no gradient is kept.

Each class takes a backward pass, in which every linear layer costs as much as in the forward pass;
nothing cheaper is known. Two parts are saved: the last block is run only for the tokens that the
head reads, and the backward pass ends at the attention of the first.
"""

import math
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
    """Return the relevance of the patches for some classes, and the attention of some blocks.

    Args:
        model: the classifier.
        images: (B, 3, H, W), normalised.
        classes: (B, K); −1 = padding, whose relevance is 0.
        wanted: the blocks whose attention is returned.

    Returns:
        Relevance (B, K, n), and Ā (B, 1+n, 1+n) of each wanted block.
    """
    check_head(model)
    if not len(images):
        patches = math.prod(model.grid(*images.shape[-2:]))
        tokens = model.class_tokens + patches
        nothing = [images.new_zeros(0, tokens, tokens) for _ in wanted]
        return images.new_zeros(0, classes.shape[1], patches), nothing
    size = _AT_ONCE["cpu" if images.device.type == "cpu" else "other"]
    parts = [_Relevance(model, wanted) for _ in range(0, len(images), size)]
    rows = []
    with evaluating(model.vit), frozen(model.vit), torch.inference_mode(False), torch.enable_grad():
        batches = zip(parts, images.split(size), classes.split(size), strict=True)
        for part, some_images, some_classes in batches:
            rows.append(part.rows(some_images, some_classes))  # (b, K, N)
    attention = []
    for means in zip(*(part.means for part in parts), strict=True):  # of one block, part by part
        attention.append(model.without_extra_tokens(torch.cat(means)))
    return torch.cat(rows)[..., model.prefix :], attention


def carry(row: Tensor, attention: Tensor, gradients: Tensor) -> Tensor:
    """Return r + r Ā, the row of relevance one block further back, shape (B, 1, N).

    Args:
        row: r (B, 1, N).
        attention: (B, heads, T, N) of the first T tokens.
        gradients: those of a logit with respect to ``attention``, of its shape.
    """
    mean = (gradients * attention).relu().mean(dim=1)  # (B, T, N)
    queries = attention.shape[-2]
    return row + row[..., :queries] @ mean


class _Relevance:
    """One forward pass of some images, and a backward pass for each class."""

    def __init__(self, model: Network, wanted: range) -> None:
        self.model = model
        self.wanted = wanted
        self.means: list[Tensor] = []  # Ā (b, N, N) of the wanted blocks
        self.row = torch.empty(0)  # (b, 1, N), of the class that goes backward
        # the attention of every block depends on it, so that even the first is in the graph
        self.start = torch.zeros((), requires_grad=True)

    def rows(self, images: Tensor, classes: Tensor) -> Tensor:
        """Return the relevance (b, K, N) of all tokens.

        Args:
            images: (b, 3, H, W), normalised.
            classes: (b, K); −1 = padding.
        """
        last = len(self.model.blocks) - 1
        forwards: dict[Any, Callable[..., Tensor]] = {}
        for i, block in enumerate(self.model.blocks):
            run = self.run_last if i == last else self.run
            forwards[block] = partial(run, i, block.forward)
        with replaced_forwards(forwards):
            logits = self.model.vit(images)  # (b, C)
        rows = []
        for chosen in one_hot(classes, logits).unbind(1):  # (b, C)
            self.row = torch.zeros_like(self.row)
            self.row[..., 0] = chosen.sum(-1, keepdim=True)  # 1, or 0 for padding
            if chosen.any():
                score = (logits * chosen).sum()
                torch.autograd.grad(score, self.start, retain_graph=True)
            rows.append(self.row)
        return torch.cat(rows, dim=1)

    def run(self, i: int, forward: Callable[..., Tensor], tokens: Tensor, **options: Any) -> Tensor:
        """Run a block before the last.

        Args:
            i: the block's index.
            forward: the block's own forward pass.
            tokens: (b, N, D) that enter the block.
            **options: what the network gives to the block besides.
        """

        def attend(
            query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **_: Any
        ) -> Any:
            """Attend, and carry the row of relevance in the backward pass.

            Args:
                query: (b, heads, N, d).
                key: (b, heads, N, d).
                value: (b, heads, N, d).
                attn_mask: What is added to the scores, or None.
                **_: Other arguments of the torch function.
            """
            keep = i in self.wanted
            return _Attend.apply(  # type: ignore[no-untyped-call]
                self.start, query, key, value, attn_mask, self, keep
            )

        with ReplaceAttention(attend):
            return forward(tokens, **options)

    def run_last(
        self, i: int, forward: Callable[..., Tensor], tokens: Tensor, **options: Any
    ) -> Tensor:
        """Run the last block for the tokens (b, T, D) that the head reads.

        Args:
            i: the block's index.
            forward: the block's own forward pass.
            tokens: (b, N, D) that enter the block.
            **options: what the network gives to the block besides.
        """
        block = up_to_attention(forward, tokens, options)
        query = block.query  # (b, heads, N, d)
        key = block.key  # (b, heads, N, d)
        if i in self.wanted:
            attention = probabilities(query, key, None, block.bias)  # (b, heads, N, N)
            self.means.append(attention.detach().mean(1))
        self.row = key.new_empty(len(key), 1, key.shape[-2])
        count = 1 if getattr(self.model.vit, "head_dist", None) is None else 2
        bias = block.bias_of(slice(count))
        mixed = _Attend.apply(  # type: ignore[no-untyped-call]
            self.start, query[:, :, :count], key, block.value, bias, self, False
        )
        return block.of_class_tokens(tokens[:, :count], lambda *_, **__: mixed)


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
        """Return attention · value, shape (b, heads, T, d).

        Args:
            ctx: what the backward pass reads.
            start: it only makes the result a part of the graph.
            query: (b, heads, T, d).
            key: (b, heads, N, d).
            value: (b, heads, N, d).
            bias: what is added to the scores, or None.
            work: it holds the row of relevance.
            keep: append Ā to ``work.means``.
        """
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
        """Carry the row of relevance, and return the gradients of what ``forward`` took.

        Args:
            ctx: what ``forward`` saved.
            grad: ∂ logit / ∂ result (b, heads, T, d).
        """
        query, key, value, bias = ctx.saved_tensors
        matrices = probabilities(query, key, None, bias)  # (b, heads, T, N)
        gradients = grad @ value.mT  # ∂ logit / ∂ attention (b, heads, T, N)
        ctx.work.row = carry(ctx.work.row, matrices, gradients)
        of_start = torch.zeros_like(ctx.work.start)
        is_first_block = not any(ctx.needs_input_grad[1:4])
        if is_first_block:
            return of_start, *[None] * 6
        products = gradients.mul_(matrices)  # (b, heads, T, N)
        scores = products - matrices * products.sum(-1, keepdim=True)  # ∂ logit / ∂ scores
        scores *= query.shape[-1] ** -0.5
        of_query = scores @ key  # (b, heads, T, d)
        of_key = scores.mT @ query  # (b, heads, N, d)
        of_value = matrices.mT @ grad  # (b, heads, N, d)
        return of_start, of_query, of_key, of_value, None, None, None
