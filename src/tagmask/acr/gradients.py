"""Class gradients of the attention, exactly: g_i^c = ∂y^c / ∂A_i[0, 1:] (paper Eq. 7).

Two ways to the same numbers:

``shortcut`` (last one or two blocks of most ViTs): A_i[0, :] only moves the class token of block i,
and the score reads only the prefix tokens of the last block. So nothing but the class token's path
needs a graph: its row in each of the two blocks is computed again, once per class, with the keys
and values of the patches that the forward pass already has. Everything else runs without a graph,
and the last block needs neither MLP nor output for its patches.

No block is written anew for that. Apart from its attention a block treats every token by itself, so
timm's own code is run on K copies of the class token, and where it calls the fused attention it is
handed what the rows of the class token give. Position biases arrive there as a mask; rotary
positions never turn the class token.

``autograd`` (any number of blocks, any ViT whose attention can be recorded): one graph that starts
at the first attention asked for, parameters frozen, all classes in one batched backward pass.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagmask.acr.attention import (
    ReplaceAttention,
    attend_per_head,
    probabilities,
    record_attention,
    replaced_forwards,
)
from tagmask.errors import TagmaskError

SHORTCUT_LAYERS = 2


class Network(Protocol):
    """Describe what ACR needs of a ViT: class tokens first, then other prefix tokens, then patches.

    ``tagmask.Classifier`` is one: a timm ViT with its class names.
    """

    backbone: str
    vit: Any

    @property
    def blocks(self) -> Any:
        """Return the transformer blocks, first to last."""

    @property
    def prefix(self) -> int:
        """Return the number of tokens before the patches."""

    @property
    def class_tokens(self) -> int:
        """Return the number of class tokens, T."""

    @property
    def num_classes(self) -> int:
        """Return the number of classes, C."""

    @property
    def map_layers(self) -> int:
        """Return the number of last blocks whose gradients make the maps by default."""

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return rows and columns of patches of an image of this size in pixels.

        Args:
            height: Rows of pixels.
            width: Columns of pixels.
        """

    def without_extra_tokens(self, attention: Tensor) -> Tensor:
        """Return an attention without the tokens that are neither class tokens nor patches."""


@dataclass
class ClassRows:
    """Hold the class token's rows of attention and their gradients.

    B images have K classes each (padded) on n patches.
    """

    logits: Tensor  # (B, C)
    rows: list[Tensor]  # A_i[0, patches] of the last blocks, in order, each (B, heads, n)
    gradients: list[Tensor]  # ∂y^c / ∂ rows, each (B, K, heads, n); 0 for padding
    attention: list[Tensor]  # Ā of the blocks chosen for the affinity, in order, each (B, 1+n, 1+n)


def class_rows(
    model: Network,
    images: Tensor,
    classes: Tensor,
    layers: int,
    affinity_blocks: range,
    exact_graph: bool = False,
) -> ClassRows:
    """Return the class token's rows and their class gradients in the last blocks.

    The shortcut is taken where it applies; a warning says so where it does not.

    Args:
        model: A classifier with one class token and a head.
        images: Normalised images (B, 3, H, W).
        classes: Class numbers (B, K); −1 is padding, with gradients of 0.
        layers: Number of last blocks.
        affinity_blocks: Blocks whose head-mean attention is returned.
        exact_graph: Use plain autograd even where the shortcut applies.

    Returns:
        Logits, rows, gradients and head means.

    Raises:
        TagmaskError: If there are fewer blocks than ``layers``, or if the model has no head.
    """
    check_layers(model, layers)
    check_head(model)
    with evaluating(model.vit), torch.inference_mode(False):
        if exact_graph or layers > SHORTCUT_LAYERS or len(model.blocks) < SHORTCUT_LAYERS:
            return _by_autograd(model, images, classes, layers, affinity_blocks)
        reason = why_no_shortcut(model)
        if reason:
            warnings.warn(
                f"{model.backbone}: {reason}; plain autograd is used, exact but slower.",
                stacklevel=2,
            )
            return _by_autograd(model, images, classes, layers, affinity_blocks)
        return _by_shortcut(model, images, classes, layers, affinity_blocks)


def check_layers(model: Network, layers: int) -> None:
    """Refuse more blocks than the model has.

    Args:
        model: The network.
        layers: Number of last blocks asked for.

    Raises:
        TagmaskError: If it is below 1 or above the model's number of blocks.
    """
    depth = len(model.blocks)
    if not 1 <= layers <= depth:
        raise TagmaskError(
            f"layers is {layers}; {model.backbone} has {depth} blocks, choose 1 to {depth}."
        )


def check_blocks(model: Network, blocks: range) -> None:
    """Refuse a range with blocks that the model does not have.

    Args:
        model: The network.
        blocks: Blocks asked for; may be empty.

    Raises:
        TagmaskError: If one of them does not exist.
    """
    if blocks and not 0 <= blocks[0] <= blocks[-1] < len(model.blocks):
        last = len(model.blocks) - 1
        raise TagmaskError(
            f"blocks {blocks} do not exist; {model.backbone} has blocks 0 to {last}."
        )


def check_head(model: Network) -> None:
    """Refuse a model whose logits are not those of a head on one class token.

    Raises:
        TagmaskError: If the model is an MCTformer.
    """
    if model.vit.num_classes != model.num_classes:
        raise TagmaskError(
            "ACR, weighted gradients, CAM, TS-CAM, Grad-CAM, generic attention, LeGrad, rollout "
            "need a classifier with one class token and a head, and this is an MCTformer; "
            "train one with --kind acr to compare them."
        )


def why_no_shortcut(model: Network) -> str:
    """Return the reason why the shortcut does not apply to this backbone; empty if it does."""
    # Imported here because tagmask.models must be imported before timm, and only a model from there
    # comes this way.
    from timm.layers.attention import Attention, AttentionRope
    from timm.models import beit, deit, eva
    from timm.models import vision_transformer as plain
    from timm.models import vision_transformer_relpos as relpos

    vit = model.vit
    plain_vits = (plain.VisionTransformer, deit.VisionTransformerDistilled)
    if type(vit) not in (*plain_vits, eva.Eva, beit.Beit, relpos.VisionTransformerRelPos):
        return f"the shortcut does not know {type(vit).__name__}"
    known = [
        plain.Block,
        plain.ResPostBlock,
        plain.ParallelScalingBlock,
        eva.EvaBlock,
        eva.EvaBlockPostNorm,
    ]
    known += [beit.Block, relpos.RelPosBlock, relpos.ResPostRelPosBlock]
    attentions = (
        Attention,
        AttentionRope,
        eva.EvaAttention,
        beit.Attention,
        relpos.RelPosAttention,
    )
    for block in model.blocks:
        attention = getattr(
            block, "attn", block
        )  # a block that is parallel throughout has its attention inside
        if type(block) not in known or not isinstance(
            attention, (*attentions, plain.ParallelScalingBlock)
        ):
            return (
                f"the shortcut does not know {type(block).__name__} with {type(attention).__name__}"
            )
    if getattr(vit, "attn_pool", None) is not None or vit.global_pool != "token":
        return "the shortcut needs a head that reads the class token"
    return ""


def _by_autograd(
    model: Network, images: Tensor, classes: Tensor, layers: int, wanted: range
) -> ClassRows:
    first = len(model.blocks) - layers
    early, late = list(model.blocks)[:first], list(model.blocks)[first:]
    early_wanted = [block for i, block in enumerate(early) if i in wanted]
    with frozen(model.vit), torch.enable_grad():
        with (
            record_attention(early_wanted) as means,
            record_attention(late, attend_per_head) as heads,
        ):
            logits = model.vit(images)  # (B, C)
        chosen = one_hot(classes, logits).transpose(0, 1)  # (K, B, C)
        gradients = torch.autograd.grad(
            logits, heads, chosen, is_grads_batched=True
        )  # each (K, B, heads, N, N)
    means += [_mean(head.detach()) for i, head in enumerate(heads, first) if i in wanted]
    return ClassRows(
        logits.detach(),
        [_patches(model, head.detach()[..., 0, :]) for head in heads],
        [_patches(model, gradient[..., 0, :].transpose(0, 1).detach()) for gradient in gradients],
        [model.without_extra_tokens(mean) for mean in means],
    )


def one_hot(classes: Tensor, logits: Tensor) -> Tensor:
    """Return one-hot rows of class numbers; padding gives zeros.

    Args:
        classes: (B, K), −1 is padding.
        logits: (…, C); gives the number of classes, the type and the device.

    Returns:
        (B, K, C).
    """
    chosen = torch.zeros(*classes.shape, logits.shape[-1]).to(logits)
    return chosen.scatter_(
        -1, classes.clamp(min=0).unsqueeze(-1), (classes >= 0).to(logits).unsqueeze(-1)
    )


@dataclass
class Entered:
    """Hold what the forward pass has of a block up to its attention."""

    forward: Callable[..., Tensor]  # the block's own
    tokens: Tensor  # (B, N, D) that enter it
    options: dict[str, Any]  # what it is given besides
    query: Tensor  # (B, heads, N, d)
    key: Tensor  # (B, heads, N, d)
    value: Tensor  # (B, heads, N, d)
    bias: Tensor | None  # (1, heads, N, N), added to the scores

    def of_class_tokens(self, tokens: Tensor, rule: Callable[..., Tensor]) -> Tensor:
        """Run the block on copies of prefix tokens alone.

        Args:
            tokens: (B, T, D).
            rule: Stands for the block's attention.

        Returns:
            The tokens that leave the block, (B, T, D).
        """
        with ReplaceAttention(rule):
            return self.forward(
                tokens, **{name: v for name, v in self.options.items() if name != "rope"}
            )

    def bias_of(self, rows: slice) -> Tensor | None:
        """Return these rows of the position bias, or None if there is no bias."""
        return None if self.bias is None else self.bias[..., rows, :]


class _ReachedAttention(Exception):
    """Leave a block where its attention begins."""


def up_to_attention(
    forward: Callable[..., Tensor], tokens: Tensor, options: dict[str, Any]
) -> Entered:
    """Run a block on tokens as far as its attention.

    Args:
        forward: The block's own forward function.
        tokens: (B, N, D) that enter the block.
        options: What the block is given besides.

    Returns:
        What the block hands to its attention.
    """
    reached: list[Entered] = []

    def stop(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **_: Any
    ) -> Tensor:
        """Note what arrives at the attention, and leave the block.

        Args:
            query: (B, heads, N, d).
            key: (B, heads, N, d).
            value: (B, heads, N, d).
            attn_mask: What is added to the scores, or None.
            **_: Other arguments of the torch function.

        Raises:
            _ReachedAttention: Always.
        """
        reached.append(Entered(forward, tokens, options, query, key, value, attn_mask))
        raise _ReachedAttention

    with ReplaceAttention(stop), suppress(_ReachedAttention):
        forward(tokens, **options)
    return reached[0]


def only_first(block: nn.Module, count: int) -> Callable[..., Tensor]:
    """Return a forward of ``block`` from which only the first tokens leave.

    They are exactly those of the plain forward.

    Args:
        block: A block of a ViT.
        count: Number of tokens that leave.
    """
    plain = block.forward

    def forward(tokens: Tensor, **options: Any) -> Tensor:
        block = up_to_attention(plain, tokens, options)
        mixed = F.scaled_dot_product_attention(
            block.query, block.key, block.value, attn_mask=block.bias
        )
        return block.of_class_tokens(tokens[:, :count], lambda *_, **__: mixed[:, :, :count])

    return forward


def _by_shortcut(
    model: Network, images: Tensor, classes: Tensor, layers: int, wanted: range
) -> ClassRows:
    count, before, last = classes.shape[1], len(model.blocks) - 2, len(model.blocks) - 1
    means, rows, entered = list[Tensor](), list[Tensor](), list[Entered]()

    def through(i: int, forward: Callable[..., Tensor], tokens: Tensor, **options: Any) -> Tensor:
        """Run block ``i`` on all tokens.

        Only the class tokens (B·K, places, D) leave the last block, with a graph.

        Args:
            i: The block's index.
            forward: The block's own forward function.
            tokens: (B, N, D) that enter the block.
            **options: What the block is given besides.
        """

        def attention(
            query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **_: Any
        ) -> Tensor:
            """Mix the values, and keep what the second-last block has up to here.

            Args:
                query: (B, heads, N, d).
                key: (B, heads, N, d).
                value: (B, heads, N, d).
                attn_mask: What is added to the scores, or None.
                **_: Other arguments of the torch function.
            """
            if i == before:
                entered.append(Entered(forward, tokens, options, query, key, value, attn_mask))
            mixed, mean = _mix(query, key, value, attn_mask, i in wanted)
            means.extend(mean)
            return mixed

        with torch.no_grad():
            if i < last:
                with ReplaceAttention(attention):
                    return forward(tokens, **options)
            end = up_to_attention(forward, tokens, options)
            if last in wanted:
                means.append(_head_mean(end))
        return _class_path(model, entered[0], end, count, layers, rows)

    # Only the rows start a graph: the parameters are frozen.
    with frozen(model.vit), torch.enable_grad():
        forwards = {
            block: partial(through, i, block.forward) for i, block in enumerate(model.blocks)
        }
        with replaced_forwards(forwards):
            logits = model.vit(images).view(*classes.shape, -1)  # (B, K, C)
        score = (logits * one_hot(classes, logits)).sum()
        gradients = torch.autograd.grad(score, rows)  # each (B, heads, K, N)
    return ClassRows(
        logits[:, 0].detach(),
        [_patches(model, row.detach()[:, :, 0]) for row in rows],  # the same for every class
        [_patches(model, gradient.transpose(1, 2)) for gradient in gradients],
        [model.without_extra_tokens(mean) for mean in means],
    )


def _class_path(
    model: Network, before: Entered, last: Entered, count: int, layers: int, rows: list[Tensor]
) -> Tensor:
    """Return the tokens that the heads read after the last block, once per class.

    Their shape is (B·K, places, D). The rows used are appended to ``rows``.
    """
    token = last.tokens[:, :1].expand(-1, count, -1)  # (B, K, D): the class token, once per class
    if layers == SHORTCUT_LAYERS:
        with torch.no_grad():
            row = probabilities(
                before.query[:, :, :1], before.key, None, before.bias_of(slice(1))
            )  # (B, heads, 1, N)
        row = row.expand(-1, -1, count, -1).clone().requires_grad_()  # (B, heads, K, N)
        rows.append(row)
        token = before.of_class_tokens(
            before.tokens[:, :1].expand(-1, count, -1), lambda *_, **__: row @ before.value
        )

    places = (
        1 if getattr(model.vit, "head_dist", None) is None else 2
    )  # the tokens that the heads read
    entering = [
        token,
        *(last.tokens[:, place : place + 1].expand_as(token) for place in range(1, places)),
    ]

    def attention(query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Tensor:
        """Let every token see the class token of its class, and the other tokens.

        Args:
            query: (B, heads, places·K, d).
            key: (B, heads, places·K, d).
            value: (B, heads, places·K, d).
            **_: Other arguments of the torch function.

        Returns:
            (B, heads, places·K, d).
        """
        class_key, class_value = key[:, :, :count], value[:, :, :count]  # (B, heads, K, d)
        scale, mixed = query.shape[-1] ** -0.5, []
        for place, asking in enumerate(query.split(count, dim=2)):
            class_score = (asking * class_key).sum(-1, keepdim=True) * scale  # (B, heads, K, 1)
            scores = (asking * scale) @ last.key[:, :, 1:].transpose(-2, -1)  # (B, heads, K, N−1)
            scores = torch.cat([class_score, scores], dim=-1)  # (B, heads, K, N)
            bias = last.bias_of(slice(place, place + 1))
            weights = (scores if bias is None else scores + bias).softmax(-1)  # A[place, :]
            if place == 0:
                rows.append(weights if weights.requires_grad else weights.requires_grad_())
            mixed.append(weights[..., :1] * class_value + weights[..., 1:] @ last.value[:, :, 1:])
        return torch.cat(mixed, dim=2)

    leaving = last.of_class_tokens(torch.cat(entering, dim=1), attention)  # (B, places·K, D)
    by_class: Tensor = leaving.unflatten(1, (places, count)).transpose(1, 2)
    return by_class.flatten(0, 1)


def _head_mean(entered: Entered) -> Tensor:
    """Return Ā (B, N, N) of a block, computed one image after the other."""
    pairs = zip(entered.query.split(1), entered.key.split(1), strict=True)
    return torch.cat([_mean(probabilities(query, key, None, entered.bias)) for query, key in pairs])


def _mix(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, keep: bool
) -> tuple[Tensor, list[Tensor]]:
    """Return mixed values (B, heads, N, d) and, to ``keep``, Ā (B, N, N), without a graph."""
    if not keep:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias), []
    mixed, means = [], []
    for q, k, v in zip(query.split(1), key.split(1), value.split(1), strict=True):
        matrices = probabilities(q, k, None, bias)  # (1, heads, N, N): those of one image at a time
        mixed.append(matrices @ v)
        means.append(_mean(matrices))
    return torch.cat(mixed), [torch.cat(means)]


def _mean(matrices: Tensor) -> Tensor:
    """Return Ā (B, N, N) of (B, heads, N, N)."""
    return matrices.mean(dim=1, dtype=_single(matrices))


def _patches(model: Network, rows: Tensor) -> Tensor:
    """Cut rows of attention (…, N) or their gradients to the part over the patches (…, n)."""
    return rows[..., model.prefix :].to(_single(rows))


def _single(tensor: Tensor) -> torch.dtype:
    """Return single precision at least: what is half precision is added up in single."""
    return torch.promote_types(tensor.dtype, torch.float32)


def frozen(module: nn.Module) -> AbstractContextManager[None]:
    """Keep all parameters of ``module`` out of the graph within the context."""
    return _switched_off("requires_grad", module.parameters())


def evaluating(module: nn.Module) -> AbstractContextManager[None]:
    """Switch dropout and stochastic depth off within the context.

    Afterwards each module is back in its own mode.
    """
    return _switched_off("training", module.modules())


@contextmanager
def _switched_off(name: str, things: Iterable[Any]) -> Iterator[None]:
    switched_on = [thing for thing in things if getattr(thing, name)]
    try:
        for thing in switched_on:
            setattr(thing, name, False)
        yield
    finally:
        for thing in switched_on:
            setattr(thing, name, True)
