"""What map methods need of one pass through the network, from little to everything.

``plain_pass`` and ``token_gradients`` serve the methods of ``tagmask.methods.baselines``.
``class_trace`` is for trying out new ones: plain autograd over the whole network, parameters
frozen, all classes in one batched backward pass, everything kept. It is not frugal: attention per
head and its gradient per class, (K+1)·L·heads·N² numbers for each image. For class gradients of
the last blocks alone ``tagmask.acr.gradients.class_rows`` is far cheaper.
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
    """What a forward and a backward pass of B images with K classes each leave behind.

    There are L blocks and N = prefix + n tokens, the class token first. Padding among the classes
    has gradient 0.
    """

    logits: Tensor  # (B, C)
    attention: list[Tensor]  # L × (B, heads, N, N)
    gradients: list[Tensor]  # ∂ logit / ∂ attention: L × (B, K, heads, N, N)
    tokens: Tensor  # (B, N, D), entering the last block
    token_gradients: Tensor  # ∂ logit / ∂ tokens: (B, K, N, D)
    features: Tensor  # (B, n, D): patch tokens after the final norm, as the head would read them
    weight: Tensor  # (C, D) of the head; for distilled models the mean of both, as in their logits

    def means(self, model: Network, blocks: range) -> list[Tensor]:
        """Return Ā (B, 1+n, 1+n) of each block, for the affinity.

        Args:
            model: the network that was traced.
            blocks: the blocks that are wanted.
        """
        return [model.without_extra_tokens(self.attention[i].mean(dim=1)) for i in blocks]


def plain_pass(
    model: Network, images: Tensor, blocks: range, extra: bool = False
) -> tuple[Tensor, dict[int, Tensor]]:
    """Return the features of the patches and the attention of some blocks, without a graph.

    Args:
        model: the classifier.
        images: (B, 3, H, W), normalised.
        blocks: the blocks whose attention is returned.
        extra: keep distillation and register tokens in the attention.

    Returns:
        Features (B, n, D) as the head would read them, and for each block Ā (B, 1+n, 1+n), or
        (B, N, N) with the ``extra`` tokens.
    """
    check_head(model)
    recorded = [model.blocks[i] for i in blocks]
    with evaluating(model.vit), torch.no_grad(), record_attention(recorded) as means:
        normed = model.vit.forward_features(images)  # (B, N, D)
        features = model.vit.fc_norm(normed[:, model.prefix :])  # (B, n, D)
    if not extra:
        means = [model.without_extra_tokens(mean) for mean in means]
    return features, dict(zip(blocks, means, strict=True))


def token_gradients(
    model: Network, images: Tensor, classes: Tensor, blocks: range
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the tokens that enter the last block, their gradients, and the attention of blocks.

    Args:
        model: the classifier.
        images: (B, 3, H, W), normalised.
        classes: (B, K); −1 = padding.
        blocks: the blocks whose attention is returned.

    Returns:
        Tokens (B, N, D), ∂ logit / ∂ tokens (B, K, N, D), and Ā (B, 1+n, 1+n) of each block.
    """
    check_head(model)
    recorded = [model.blocks[i] for i in blocks]
    with evaluating(model.vit), frozen(model.vit), torch.inference_mode(False), torch.enable_grad():
        with _last_block(model) as entering, record_attention(recorded) as means:
            logits = model.vit(images)  # (B, C)
        tokens = entering[0]  # (B, N, D)
        chosen = one_hot(classes, logits)  # (B, K, C)
        scores = (chosen * logits.unsqueeze(1)).sum((0, 2))  # (K,)
        gradients = []
        for score in scores:
            (gradient,) = torch.autograd.grad(score, tokens, retain_graph=True)
            gradients.append(gradient)  # (B, N, D)
    attention = [model.without_extra_tokens(mean.detach()) for mean in means]
    return tokens.detach(), torch.stack(gradients, dim=1), attention


def block_gradients(
    model: Network, images: Tensor, classes: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Return, for each block, its attention and the gradients of a score read behind that block.

    The head, with the final norm before it, reads the tokens that leave the block; no gradient
    passes between blocks.

    Args:
        model: the classifier.
        images: (B, 3, H, W), normalised.
        classes: (B, K); −1 = padding.

    Returns:
        Ā (B, N, N) of each block, and for each the gradients (B, K, heads, N, N).
    """
    check_head(model)
    vit = model.vit
    leaving: list[Tensor] = []

    def cut(_block: Any, _inputs: Any, tokens: Tensor) -> Tensor:
        """Keep the tokens that leave a block, and end the graph there.

        Args:
            _block: The block.
            _inputs: What entered it.
            tokens: (B, N, D) that leave it.
        """
        leaving.append(tokens)
        return tokens.detach()

    with evaluating(vit), frozen(vit), torch.inference_mode(False), torch.enable_grad():
        with ExitStack() as hooks, record_attention(model.blocks, attend_per_head) as heads:
            for block in model.blocks:
                hooks.enter_context(block.register_forward_hook(cut))
            vit.forward_features(images)
        logits = [vit.forward_head(vit.norm(tokens)) for tokens in leaving]  # L × (B, C)
        gradients = []
        for block_logits, head in zip(logits, heads, strict=True):
            (gradient,) = _class_gradients(block_logits, classes, [head])
            gradients.append(gradient)  # (B, K, heads, N, N)
    means = [head.detach().mean(dim=1) for head in heads]  # L × (B, N, N)
    return means, gradients


def class_trace(model: Network, images: Tensor, classes: Tensor, gradients: bool = True) -> Trace:
    """Run the network forward and backward, and keep everything.

    Args:
        model: the classifier.
        images: (B, 3, H, W), normalised.
        classes: (B, K); −1 = padding.
        gradients: if False there is no backward pass, and those of the trace are empty (K = 0).
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
        sources = [*heads, *entering]
        *head_gradients, token_gradients = _class_gradients(logits, chosen, sources)
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
    """Yield a list that gets the tokens that enter the last block.

    A graph starts at these tokens if there is none yet.
    """
    entering: list[Tensor] = []

    def keep(_block: Any, inputs: tuple[Tensor, ...]) -> None:
        """Keep the tokens that enter the last block, where the graph starts.

        Args:
            _block: The block.
            inputs: Its tokens (B, N, D).
        """
        entering.append(inputs[0].requires_grad_())

    with model.blocks[-1].register_forward_pre_hook(keep):
        yield entering


def _class_gradients(logits: Tensor, classes: Tensor, sources: list[Tensor]) -> list[Tensor]:
    """Return ∂ logit / ∂ source of the chosen classes: each source (B, …) gives (B, K, …)."""
    if classes.shape[1] == 0:
        return [source.new_empty(len(source), 0, *source.shape[1:]) for source in sources]
    chosen = one_hot(classes, logits).transpose(0, 1)  # (K, B, C)
    # each (K, B, …)
    gradients = torch.autograd.grad(logits, sources, chosen, is_grads_batched=True)
    return [gradient.transpose(0, 1).detach() for gradient in gradients]


def head_weight(model: Network) -> Tensor:
    """Return the head's weight (C, D); for a model with two heads their mean."""
    weight: Tensor = model.vit.head.weight.detach()
    if getattr(model.vit, "head_dist", None) is not None:
        weight = (weight + model.vit.head_dist.weight.detach()) / 2
    return weight
