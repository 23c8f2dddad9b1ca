"""One pass with everything kept: what most methods of ``tagmask.methods.baselines`` need.

Plain autograd over the whole network, parameters frozen, all classes in one batched backward pass. It is not frugal:
the attention of every block is kept per head and its gradient per class, (K+1)·L·heads·N² numbers for each image. For
class gradients of the last blocks alone ``tagmask.acr.gradients.class_rows`` is far cheaper.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tagmask.acr.attention import record_attention
from tagmask.acr.gradients import Network, attend_from_here, check_head, evaluating, frozen, one_hot


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


def class_trace(model: Network, images: Tensor, classes: Tensor, gradients: bool = True) -> Trace:
    """Trace of normalised images (B, 3, H, W) for ``classes`` (B, K; −1 = padding).

    Without ``gradients`` there is no backward pass, and those of the trace are empty (K = 0).
    """
    check_head(model)
    vit, entering = model.vit, list[Tensor]()

    def keep(_block: Any, inputs: tuple[Tensor, ...]) -> None:
        entering.append(inputs[0] if inputs[0].requires_grad else inputs[0].requires_grad_())

    hook = model.blocks[-1].register_forward_pre_hook(keep)
    try:
        with evaluating(vit), frozen(vit), torch.inference_mode(False):
            with torch.set_grad_enabled(gradients), record_attention(model.blocks, attend_from_here) as heads:
                normed = vit.forward_features(images)  # (B, N, D)
                logits = vit.forward_head(normed)  # (B, C)
            features = vit.fc_norm(normed[:, model.prefix :])  # (B, n, D)
            chosen = classes if gradients else classes[:, :0]
            *head_gradients, token_gradients = _class_gradients(logits, chosen, [*heads, *entering])
    finally:
        hook.remove()
    return Trace(
        logits=logits.detach(),
        attention=[head.detach() for head in heads],
        gradients=head_gradients,
        tokens=entering[0].detach(),
        token_gradients=token_gradients,
        features=features.detach(),
        weight=_head_weight(vit),
    )


def _class_gradients(logits: Tensor, classes: Tensor, sources: list[Tensor]) -> list[Tensor]:
    """∂ logit / ∂ source of the chosen classes: each source (B, …) gives (B, K, …)."""
    if classes.shape[1] == 0:
        return [source.new_empty(len(source), 0, *source.shape[1:]) for source in sources]
    chosen = one_hot(classes, logits).transpose(0, 1)  # (K, B, C)
    gradients = torch.autograd.grad(logits, sources, chosen, is_grads_batched=True)  # each (K, B, …)
    return [gradient.transpose(0, 1).detach() for gradient in gradients]


def _head_weight(vit: Any) -> Tensor:
    """(C, D); of two heads their mean."""
    weight: Tensor = vit.head.weight.detach()
    if getattr(vit, "head_dist", None) is not None:
        weight = (weight + vit.head_dist.weight.detach()) / 2
    return weight
