"""What map methods need of one pass through the network, from little to everything.

``plain_pass`` and ``token_gradients`` serve the methods of ``tagmask.methods.baselines``. ``class_trace`` is for trying
out new ones: plain autograd over the whole network, parameters frozen, all classes in one batched backward pass,
everything kept. It is not frugal: attention per head and its gradient per class, (K+1)·L·heads·N² numbers for each
image. For class gradients of the last blocks alone ``tagmask.acr.gradients.class_rows`` is far cheaper.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tagmask.acr.attention import attend_per_head, record_attention
from tagmask.acr.gradients import Network, check_head, evaluating, frozen, one_hot


@dataclass
class Trace:
    """B images, K classes each (padding has gradient 0), L blocks, N = prefix + n tokens, the class token first."""

    logits: Tensor  # (B, C)
    attention: list[Tensor]  # L × (B, heads, N, N)
    gradients: list[Tensor]  # ∂ logit / ∂ attention: L × (B, K, heads, N, N)
    tokens: Tensor  # (B, N, D), entering the last block
    token_gradients: Tensor  # ∂ logit / ∂ tokens: (B, K, N, D)
    features: Tensor  # (B, n, D): patch tokens after the final norm, as the head would read them
    weight: Tensor  # (C, D) of the head; of distilled models the mean of both heads, as their logits are

    def means(self, model: Network, blocks: range) -> list[Tensor]:
        """Ā of ``blocks``, each (B, 1+n, 1+n), for the affinity."""
        return [model.without_extra_tokens(self.attention[i].mean(dim=1)) for i in blocks]


def plain_pass(
    model: Network, images: Tensor, blocks: range, extra: bool = False
) -> tuple[Tensor, dict[int, Tensor]]:
    """Features (B, n, D) of the patches as the head would read them, and Ā of ``blocks``, without a graph.

    Ā is (B, 1+n, 1+n), or with the ``extra`` prefix tokens (B, N, N).
    """
    check_head(model)
    with (
        evaluating(model.vit),
        torch.no_grad(),
        record_attention([model.blocks[i] for i in blocks]) as means,
    ):
        normed = model.vit.forward_features(images)  # (B, N, D)
        features = model.vit.fc_norm(normed[:, model.prefix :])
    kept = means if extra else [model.without_extra_tokens(mean) for mean in means]
    return features, dict(zip(blocks, kept, strict=True))


def token_gradients(
    model: Network, images: Tensor, classes: Tensor, blocks: range
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Tokens (B, N, D) entering the last block, ∂ logit / ∂ tokens (B, K, N, D) and Ā of ``blocks``."""
    check_head(model)
    with evaluating(model.vit), frozen(model.vit), torch.inference_mode(False), torch.enable_grad():
        with (
            _last_block(model) as entering,
            record_attention([model.blocks[i] for i in blocks]) as means,
        ):
            logits = model.vit(images)  # (B, C)
        scores = (one_hot(classes, logits) * logits.unsqueeze(1)).sum((0, 2))  # (K,)
        gradients = [
            torch.autograd.grad(score, entering[0], retain_graph=True)[0] for score in scores
        ]
    attention = [model.without_extra_tokens(mean.detach()) for mean in means]
    return entering[0].detach(), torch.stack(gradients, dim=1), attention


def block_gradients(
    model: Network, images: Tensor, classes: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """For each block, Ā (B, N, N) and the gradients (B, K, heads, N, N) of a score that is read behind that block.

    The head, with the final norm before it, reads the tokens that leave the block; no gradient passes between blocks.
    """
    check_head(model)
    leaving: list[Tensor] = []

    def cut(_block: Any, _inputs: Any, tokens: Tensor) -> Tensor:
        leaving.append(tokens)
        return tokens.detach()

    with evaluating(model.vit), frozen(model.vit), torch.inference_mode(False), torch.enable_grad():
        with ExitStack() as hooks, record_attention(model.blocks, attend_per_head) as heads:
            for block in model.blocks:
                hooks.enter_context(block.register_forward_hook(cut))
            model.vit.forward_features(images)
        logits = [
            model.vit.forward_head(model.vit.norm(tokens)) for tokens in leaving
        ]  # (B, C) each
        gradients = [
            _class_gradients(y, classes, [head])[0] for y, head in zip(logits, heads, strict=True)
        ]
    return [head.detach().mean(dim=1) for head in heads], gradients


def class_trace(model: Network, images: Tensor, classes: Tensor, gradients: bool = True) -> Trace:
    """Trace of normalised images (B, 3, H, W) for ``classes`` (B, K; −1 = padding).

    Without ``gradients`` there is no backward pass, and those of the trace are empty (K = 0).
    """
    check_head(model)
    vit = model.vit
    with evaluating(vit), frozen(vit), torch.inference_mode(False), _last_block(model) as entering:
        with (
            torch.set_grad_enabled(gradients),
            record_attention(model.blocks, attend_per_head) as heads,
        ):
            normed = vit.forward_features(images)  # (B, N, D)
            logits = vit.forward_head(normed)  # (B, C)
        features = vit.fc_norm(normed[:, model.prefix :])  # (B, n, D)
        chosen = classes if gradients else classes[:, :0]
        *head_gradients, token_gradients = _class_gradients(logits, chosen, [*heads, *entering])
    return Trace(
        logits=logits.detach(),
        attention=[head.detach() for head in heads],
        gradients=head_gradients,
        tokens=entering[0].detach(),
        token_gradients=token_gradients,
        features=features.detach(),
        weight=head_weight(model),
    )


@contextmanager
def _last_block(model: Network) -> Iterator[list[Tensor]]:
    """The list gets the tokens that enter the last block within; a graph starts there if there is none yet."""
    entering: list[Tensor] = []

    def keep(_block: Any, inputs: tuple[Tensor, ...]) -> None:
        entering.append(inputs[0].requires_grad_())

    with model.blocks[-1].register_forward_pre_hook(keep):
        yield entering


def _class_gradients(logits: Tensor, classes: Tensor, sources: list[Tensor]) -> list[Tensor]:
    """∂ logit / ∂ source of the chosen classes: each source (B, …) gives (B, K, …)."""
    if classes.shape[1] == 0:
        return [source.new_empty(len(source), 0, *source.shape[1:]) for source in sources]
    chosen = one_hot(classes, logits).transpose(0, 1)  # (K, B, C)
    gradients = torch.autograd.grad(
        logits, sources, chosen, is_grads_batched=True
    )  # each (K, B, …)
    return [gradient.transpose(0, 1).detach() for gradient in gradients]


def head_weight(model: Network) -> Tensor:
    """(C, D); of two heads their mean."""
    weight: Tensor = model.vit.head.weight.detach()
    if getattr(model.vit, "head_dist", None) is not None:
        weight = (weight + model.vit.head_dist.weight.detach()) / 2
    return weight
