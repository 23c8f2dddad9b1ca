"""Class gradients of the attention: g_i^c = ∂y^c / ∂A_i[0, 1:] for the last blocks (paper Eq. 7), exactly.

Two ways to the same numbers:

``shortcut`` (last one or two blocks of a plain ViT): A_i[0, :] only moves the class token of block i, and the score
reads only the prefix tokens of the last block. So nothing but the class token's path needs a graph: its row in each
of the two blocks is computed again, once per class, with the keys and values of the patches that the forward pass
already has. Everything else runs without a graph, and the last block needs neither MLP nor output for its patches.

``autograd`` (any number of blocks, any ViT whose attention can be recorded): one graph that starts at the first
attention asked for, parameters frozen, all classes in one batched backward pass.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagmask.acr.attention import probabilities, record_attention
from tagmask.errors import TagmaskError

SHORTCUT_LAYERS = 2


class Network(Protocol):
    """A timm ViT with its class names, as ``tagmask.Classifier``: class tokens, then other prefix tokens, patches."""

    backbone: str
    vit: Any

    @property
    def blocks(self) -> Any: ...
    @property
    def prefix(self) -> int: ...
    @property
    def class_tokens(self) -> int: ...
    @property
    def num_classes(self) -> int: ...
    @property
    def map_layers(self) -> int: ...
    def grid(self, height: int, width: int) -> tuple[int, int]: ...
    def without_extra_tokens(self, attention: Tensor) -> Tensor: ...


@dataclass
class ClassRows:
    """The class token's row of the attention and its gradients: B images, K classes each (padded), n patches."""

    logits: Tensor  # (B, C)
    rows: list[Tensor]  # A_i[0, patches] of the last blocks, in order, each (B, heads, n)
    gradients: list[Tensor]  # ∂y^c / ∂ rows, each (B, K, heads, n); 0 for padding
    attention: list[Tensor]  # Ā of the blocks chosen for the affinity, in order, each (B, 1+n, 1+n)


def class_rows(
    model: Network, images: Tensor, classes: Tensor, layers: int, affinity_blocks: range, exact_graph: bool = False
) -> ClassRows:
    """Rows and gradients of ``classes`` (B, K; −1 = padding) in the last ``layers`` blocks, Ā of ``affinity_blocks``.

    Takes the shortcut if it applies; ``exact_graph`` forces plain autograd.
    """
    check_layers(model, layers)
    check_head(model)
    with evaluating(model.vit), torch.inference_mode(False):
        if exact_graph or layers > SHORTCUT_LAYERS or len(model.blocks) < SHORTCUT_LAYERS:
            return _by_autograd(model, images, classes, layers, affinity_blocks)
        reason = why_no_shortcut(model)
        if reason:
            warnings.warn(f"{model.backbone}: {reason}; plain autograd is used, exact but slower.", stacklevel=2)
            return _by_autograd(model, images, classes, layers, affinity_blocks)
        return _by_shortcut(model, images, classes, layers, affinity_blocks)


def check_layers(model: Network, layers: int) -> None:
    """Refuse more blocks than the model has."""
    depth = len(model.blocks)
    if not 1 <= layers <= depth:
        raise TagmaskError(f"layers is {layers}; {model.backbone} has {depth} blocks, choose 1 to {depth}.")


def check_blocks(model: Network, blocks: range) -> None:
    """Refuse a range with blocks that the model does not have."""
    if blocks and not 0 <= blocks[0] <= blocks[-1] < len(model.blocks):
        last = len(model.blocks) - 1
        raise TagmaskError(f"blocks {blocks} do not exist; {model.backbone} has blocks 0 to {last}.")


def check_head(model: Network) -> None:
    """Refuse a model whose logits are not those of a head on one class token."""
    if model.vit.num_classes != model.num_classes:
        raise TagmaskError(
            "ACR, weighted gradients, CAM, TS-CAM, Grad-CAM, generic attention and rollout need a classifier with one "
            "class token and a head, and this is an MCTformer; train one with --kind acr to compare them."
        )


def why_no_shortcut(model: Network) -> str:
    """Why the shortcut does not apply to this backbone; empty if it does."""
    # Imported here because tagmask.models must be imported before timm, and only a model from there comes this way.
    from timm.layers.attention import Attention
    from timm.models.deit import VisionTransformerDistilled
    from timm.models.vision_transformer import Block, VisionTransformer

    vit = model.vit
    if type(vit) not in (VisionTransformer, VisionTransformerDistilled):
        return f"the shortcut does not know {type(vit).__name__}"
    for block in model.blocks:
        if type(block) is not Block or type(block.attn) is not Attention:
            return f"the shortcut does not know {type(block).__name__} with {type(block.attn).__name__}"
        if block.attn.gate is not None:
            return "the shortcut does not know gated attention"
    if vit.attn_pool is not None or vit.global_pool != "token":
        return "the shortcut needs a head that reads the class token"
    return ""


def _by_autograd(model: Network, images: Tensor, classes: Tensor, layers: int, wanted: range) -> ClassRows:
    first = len(model.blocks) - layers
    early, late = list(model.blocks)[:first], list(model.blocks)[first:]
    early_wanted = [block for i, block in enumerate(early) if i in wanted]
    with frozen(model.vit), torch.enable_grad():
        with record_attention(early_wanted) as means, record_attention(late, attend_from_here) as heads:
            logits = model.vit(images)  # (B, C)
        chosen = one_hot(classes, logits).transpose(0, 1)  # (K, B, C)
        gradients = torch.autograd.grad(logits, heads, chosen, is_grads_batched=True)  # each (K, B, heads, N, N)
    means += [_mean(head.detach()) for i, head in enumerate(heads, first) if i in wanted]
    return ClassRows(
        logits.detach(),
        [_patches(model, head.detach()[..., 0, :]) for head in heads],
        [_patches(model, gradient[..., 0, :].transpose(0, 1).detach()) for gradient in gradients],
        [model.without_extra_tokens(mean) for mean in means],
    )


def attend_from_here(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """As ``attend_per_head``, but the matrices start a graph if there is none yet."""
    matrices = probabilities(query, key, options.get("scale"), options.get("attn_mask"))
    if not matrices.requires_grad:
        matrices.requires_grad_()
    return matrices @ value, matrices


def one_hot(classes: Tensor, logits: Tensor) -> Tensor:
    """(B, K) class numbers to (B, K, C); padding (−1) gives zeros."""
    chosen = torch.zeros(*classes.shape, logits.shape[-1]).to(logits)
    return chosen.scatter_(-1, classes.clamp(min=0).unsqueeze(-1), (classes >= 0).to(logits).unsqueeze(-1))


def _by_shortcut(model: Network, images: Tensor, classes: Tensor, layers: int, wanted: range) -> ClassRows:
    *others, last = model.blocks
    before, vit, means = others[-1], model.vit, list[Tensor]()
    with torch.no_grad():
        after = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(images))))  # (B, N, D)
        for i, block in enumerate(others):
            tokens = after
            query, key, value = _project(block, tokens)  # (B, heads, N, d)
            mixed, mean = _mix(query, key, value, i in wanted)
            means += mean
            after = _finish(block, tokens, _merge(mixed))  # (B, N, D)
        row = probabilities(query[:, :, :1], key, None)  # (B, heads, 1, N): A[0, :]
        last_qkv = _project(last, after)
        if len(others) in wanted:
            means.append(torch.cat([_mean(probabilities(q, k, None)) for q, k, _ in _image_by_image(*last_qkv)]))
    with torch.enable_grad():  # parameters may require gradients: they lie on no path to the rows, so none is computed
        count = classes.shape[1]
        rows: list[Tensor] = []
        token = after[:, :1].expand(-1, count, -1)  # (B, K, D): the class token, once per class
        if layers == SHORTCUT_LAYERS:
            rows.append(row.expand(-1, -1, count, -1).clone().requires_grad_())  # (B, heads, K, N)
            token = _finish(before, tokens[:, :1].expand(-1, count, -1), _merge(rows[0] @ value))
        logits = _last_block(model, token, after, last_qkv, rows)  # (B, K, C)
        score = (logits * one_hot(classes, logits)).sum()
        gradients = torch.autograd.grad(score, rows)  # each (B, heads, K, N)
    return ClassRows(
        logits[:, 0].detach(),
        [_patches(model, row.detach()[:, :, 0]) for row in rows],  # the same for every class
        [_patches(model, gradient.transpose(1, 2)) for gradient in gradients],
        [model.without_extra_tokens(mean) for mean in means],
    )


def _last_block(
    model: Network, token: Tensor, after: Tensor, qkv: tuple[Tensor, Tensor, Tensor], rows: list[Tensor]
) -> Tensor:
    """Logits (B, K, C) of class tokens (B, K, D) that enter the last block; appends its class row to ``rows``.

    ``after`` (B, N, D) are all tokens that enter it and ``qkv`` their projections; only the class token differs.
    """
    last, vit = model.blocks[-1], model.vit
    class_query, class_key, class_value = _project(last, token)  # (B, heads, K, d)
    outputs = []
    for place in range(1 if getattr(vit, "head_dist", None) is None else 2):  # the tokens that the heads read
        query = class_query if place == 0 else qkv[0][:, :, place : place + 1].expand_as(class_query)
        class_score = (query * class_key).sum(-1, keepdim=True) * last.attn.scale  # (B, heads, K, 1)
        scores = (query * last.attn.scale) @ qkv[1][:, :, 1:].transpose(-2, -1)  # (B, heads, K, N−1)
        weights = torch.cat([class_score, scores], dim=-1).softmax(-1)  # (B, heads, K, N): A[place, :]
        if place == 0:
            weights = weights if weights.requires_grad else weights.requires_grad_()
            rows.append(weights)
        mixed = weights[..., :1] * class_value + weights[..., 1:] @ qkv[2][:, :, 1:]
        residual = token if place == 0 else after[:, place : place + 1].expand_as(token)
        outputs.append(_finish(last, residual, _merge(mixed)))
    read = torch.stack(outputs, dim=2).flatten(0, 1)  # (B·K, places, D)
    logits: Tensor = vit.forward_head(vit.norm(read))
    return logits.view(*token.shape[:2], -1)


def _project(block: Any, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value (B, heads, T, d) of tokens (B, T, D) that enter a block."""
    attn = block.attn
    qkv = attn.qkv(block.norm1(tokens)).unflatten(-1, (3, attn.num_heads, attn.head_dim)).permute(2, 0, 3, 1, 4)
    query, key, value = qkv.unbind(0)
    return attn.q_norm(query), attn.k_norm(key), value


def _mix(query: Tensor, key: Tensor, value: Tensor, keep: bool) -> tuple[Tensor, list[Tensor]]:
    """Mixed values (B, heads, N, d) and, to ``keep``, Ā (B, N, N), without a graph."""
    if not keep:
        return F.scaled_dot_product_attention(query, key, value), []
    mixed, means = [], []
    for q, k, v in _image_by_image(query, key, value):
        matrices = probabilities(q, k, None)  # (1, heads, N, N)
        mixed.append(matrices @ v)
        means.append(_mean(matrices))
    return torch.cat(mixed), [torch.cat(means)]


def _image_by_image(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split the batch, so that the matrices of all heads exist for only one image at a time."""
    return zip(*(tensor.split(1) for tensor in tensors), strict=True)


def _mean(matrices: Tensor) -> Tensor:
    """Ā (B, N, N) of (B, heads, N, N)."""
    return matrices.mean(dim=1, dtype=_single(matrices))


def _patches(model: Network, rows: Tensor) -> Tensor:
    """Rows of attention (…, N) or their gradients to the part over the patches (…, n)."""
    return rows[..., model.prefix :].to(_single(rows))


def _single(tensor: Tensor) -> torch.dtype:
    """Single precision at least: what a model in half precision gives is added up in single."""
    return torch.promote_types(tensor.dtype, torch.float32)


def _merge(mixed: Tensor) -> Tensor:
    """(B, heads, T, d) to (B, T, heads·d)."""
    return mixed.transpose(1, 2).flatten(2)


def _finish(block: Any, tokens: Tensor, mixed: Tensor) -> Tensor:
    """The rest of a block after attention: tokens (B, T, D) and their mixed values (B, T, heads·d) to its output."""
    tokens = tokens + block.ls1(block.attn.proj(block.attn.norm(mixed)))
    output: Tensor = tokens + block.ls2(block.mlp(block.norm2(tokens)))
    return output


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """No parameter takes part in a graph inside."""
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    try:
        for parameter in trainable:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Dropout and stochastic depth are off inside; afterwards each module is back in its own mode."""
    training = [child for child in module.modules() if child.training]
    try:
        for child in training:
            child.training = False
        yield
    finally:
        for child in training:
            child.training = True
