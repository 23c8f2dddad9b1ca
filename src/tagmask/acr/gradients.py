"""Class gradients of the attention: g_i^c = ∂y^c / ∂A_i[0, 1:] for the last blocks (paper Eq. 7), exactly.

Two ways to the same numbers:

``shortcut`` (last one or two blocks of a plain ViT): A_i[0, :] only moves the class token of block i, and the score
reads only the prefix tokens of the last block. So nothing but the class token's path needs a graph: its row in each
of the two blocks is worked out again, once per class, with the patches' keys and values already at hand. Everything
else runs without a graph, and the last block needs neither MLP nor output for its patches.

``autograd`` (any block range, any ViT whose attention can be recorded): one graph that starts at the first attention
asked for, parameters frozen, all classes in one batched backward.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from timm.layers.attention import Attention
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from tagmask.acr.attention import probabilities, record_attention
from tagmask.acr.localize import gradient_map
from tagmask.errors import TagmaskError

if TYPE_CHECKING:
    from tagmask.models.classifier import Classifier

SHORTCUT_LAYERS = 2


@dataclass
class Evidence:
    """What localisation needs from one pass: B images, K classes each (padded), n patches, L' blocks."""

    logits: Tensor  # (B, C)
    gradients: list[Tensor]  # of the chosen last blocks, in order, each (B, K, heads, n)
    attention: list[Tensor]  # Ā of the blocks chosen for affinity, in order, each (B, n+1, n+1)

    def plain_maps(self, centre: bool = False) -> Tensor:
        """Maps (B, K, n) without affinity, ACR*."""
        return gradient_map(self.gradients, centre=centre)


def class_evidence(
    model: "Classifier", images: Tensor, classes: Tensor, layers: int, affinity_blocks: range, exact_graph: bool = False
) -> Evidence:
    """Gradients of ``classes`` (B, K; −1 = padding) for the last ``layers`` blocks, and Ā of ``affinity_blocks``.

    Takes the shortcut where it holds; ``exact_graph`` forces plain autograd.
    """
    check_blocks(model, layers, affinity_blocks)
    check_request(model, images, classes)
    depth = len(model.blocks)
    with evaluating(model), torch.inference_mode(False):
        if exact_graph or layers > SHORTCUT_LAYERS or depth < SHORTCUT_LAYERS:
            return _by_autograd(model, images, classes, layers, affinity_blocks)
        reason = why_no_shortcut(model)
        if reason:
            warnings.warn(f"{model.backbone}: {reason}; plain autograd is used, exact but slower.", stacklevel=2)
            return _by_autograd(model, images, classes, layers, affinity_blocks)
        return _by_shortcut(model, images, classes, layers, affinity_blocks)


def check_blocks(model: "Classifier", layers: int, affinity_blocks: range) -> None:
    """Refuse more blocks than there are."""
    depth = len(model.blocks)
    if not 1 <= layers <= depth:
        raise TagmaskError(f"layers is {layers}; {model.backbone} has {depth} blocks, choose 1 to {depth}.")
    if affinity_blocks and not 0 <= affinity_blocks[0] <= affinity_blocks[-1] < depth:
        raise TagmaskError(f"blocks {affinity_blocks} do not exist; {model.backbone} has blocks 0 to {depth - 1}.")


def check_request(model: "Classifier", images: Tensor, classes: Tensor) -> None:
    """Refuse sizes that do not fit the patches, classes that do not exist and lists that do not fit the images."""
    model.grid(*images.shape[-2:])
    if len(classes) != len(images):
        raise TagmaskError(
            f"classes were given for {len(classes)} images, but there are {len(images)}; give one list each."
        )
    wrong = classes[(classes >= model.num_classes) | (classes < -1)]
    if len(wrong):
        raise TagmaskError(
            f"class {wrong[0].item()} does not exist; this model knows classes 0 to {model.num_classes - 1}."
        )


def why_no_shortcut(model: "Classifier") -> str:
    """What the shortcut does not know about this backbone; empty where it holds."""
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


def _by_autograd(model: "Classifier", images: Tensor, classes: Tensor, layers: int, wanted: range) -> Evidence:
    first = len(model.blocks) - layers
    early, late = list(model.blocks)[:first], list(model.blocks)[first:]
    early_wanted = [block for i, block in enumerate(early) if i in wanted]
    with frozen(model), torch.enable_grad():
        with record_attention(early_wanted) as means, record_attention(late, attend_from_here) as heads:
            logits = model.vit(images)  # (B, C)
        seeds = one_hot(classes, logits).transpose(0, 1)  # (K, B, C)
        found = torch.autograd.grad(logits, heads, seeds, is_grads_batched=True)  # each (K, B, heads, N, N)
    gradients = [g[..., 0, model.prefix :].transpose(0, 1).detach().to(_single(g)) for g in found]
    means += [_mean(head.detach()) for i, head in enumerate(heads, first) if i in wanted]
    return Evidence(logits.detach(), gradients, [model.without_extra_tokens(mean) for mean in means])


def attend_from_here(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """As ``attend_per_head``, but the matrices start a graph where there is none yet."""
    matrices = probabilities(query, key, options.get("scale"), options.get("attn_mask"))
    if not matrices.requires_grad:
        matrices.requires_grad_()
    return matrices @ value, matrices


def one_hot(classes: Tensor, logits: Tensor) -> Tensor:
    """(B, K) class numbers to (B, K, C); padding (−1) gives zeros."""
    chosen = torch.zeros(*classes.shape, logits.shape[-1]).to(logits)
    return chosen.scatter_(-1, classes.clamp(min=0).unsqueeze(-1), (classes >= 0).to(logits).unsqueeze(-1))


def _by_shortcut(model: "Classifier", images: Tensor, classes: Tensor, layers: int, wanted: range) -> Evidence:
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
            means.append(torch.cat([_mean(probabilities(q, k, None)) for q, k, _ in _one_by_one(*last_qkv)]))
    with torch.enable_grad():  # parameters may require gradients: they lie on no path to the rows, so none is computed
        count = classes.shape[1]
        rows: list[Tensor] = []
        token = after[:, :1].expand(-1, count, -1)  # (B, K, D): the class token, once per class
        if layers == SHORTCUT_LAYERS:
            rows.append(row.expand(-1, -1, count, -1).clone().requires_grad_())  # (B, heads, K, N)
            token = _finish(before, tokens[:, :1].expand(-1, count, -1), _merge(rows[0] @ value))
        logits = _last_block(model, token, after, last_qkv, rows)  # (B, K, C)
        score = (logits * one_hot(classes, logits)).sum()
        found = torch.autograd.grad(score, rows)
    gradients = [g[..., model.prefix :].transpose(1, 2).to(_single(g)) for g in found]  # (B, K, heads, n)
    return Evidence(logits[:, 0].detach(), gradients, [model.without_extra_tokens(mean) for mean in means])


def _last_block(
    model: "Classifier", token: Tensor, after: Tensor, qkv: tuple[Tensor, Tensor, Tensor], rows: list[Tensor]
) -> Tensor:
    """Logits (B, K, C) from class tokens (B, K, D) that enter the last block; its class row is put into ``rows``.

    ``after`` (B, N, D) are all tokens that enter it and ``qkv`` their projections; only the class token differs.
    """
    last, vit = model.blocks[-1], model.vit
    own_query, own_key, own_value = _project(last, token)  # (B, heads, K, d)
    outputs = []
    for place in range(2 if isinstance(vit, VisionTransformerDistilled) else 1):  # the tokens that the head reads
        query = own_query if place == 0 else qkv[0][:, :, place : place + 1].expand_as(own_query)
        own_score = (query * own_key).sum(-1, keepdim=True) * last.attn.scale  # (B, heads, K, 1)
        scores = (query * last.attn.scale) @ qkv[1][:, :, 1:].transpose(-2, -1)  # (B, heads, K, N−1)
        weights = torch.cat([own_score, scores], dim=-1).softmax(-1)  # (B, heads, K, N): A[place, :]
        if place == 0:
            weights = weights if weights.requires_grad else weights.requires_grad_()
            rows.append(weights)
        mixed = weights[..., :1] * own_value + weights[..., 1:] @ qkv[2][:, :, 1:]
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
    for q, k, v in _one_by_one(query, key, value):
        matrices = probabilities(q, k, None)  # (1, heads, N, N)
        mixed.append(matrices @ v)
        means.append(_mean(matrices))
    return torch.cat(mixed), [torch.cat(means)]


def _one_by_one(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Image by image, so that the matrices of every head exist for one image at a time."""
    return zip(*(tensor.split(1) for tensor in tensors), strict=True)


def _mean(matrices: Tensor) -> Tensor:
    """Ā (B, N, N) of (B, heads, N, N)."""
    return matrices.mean(dim=1, dtype=_single(matrices))


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
    """Dropout and stochastic depth are off inside; each part has its own mode again afterwards."""
    training = [part for part in module.modules() if part.training]
    try:
        for part in training:
            part.training = False
        yield
    finally:
        for part in training:
            part.training = True
