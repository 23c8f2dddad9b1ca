"""One pass with everything kept: what the comparison methods of ``tagmask.methods.baselines`` need.

Plain autograd over the whole network, parameters frozen, all classes in one batched backward. Nothing is saved on:
the attention of every block is kept per head and its gradient per class, (K+1)·L·heads·N² numbers for each image. For
ACR's own maps ``Classifier.evidence`` is far cheaper.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tagmask.acr.attention import record_attention
from tagmask.acr.gradients import attend_from_here, check_request, evaluating, frozen, one_hot

if TYPE_CHECKING:
    from tagmask.models.classifier import Classifier


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
    prefix: int  # tokens before the patches
    grid: tuple[int, int]  # (h, w), h·w = n


def class_trace(model: "Classifier", images: Tensor, classes: Tensor, gradients: bool = True) -> Trace:
    """Trace of normalised images (B, 3, H, W) for ``classes`` (B, K; −1 = padding).

    Without ``gradients`` there is no backward pass, and those of the trace are empty (K = 0).
    """
    check_request(model, images, classes)
    vit, entering = model.vit, list[Tensor]()
    asked = classes if gradients else classes[:, :0]

    def keep(_block: Any, inputs: tuple[Tensor, ...]) -> None:
        entering.append(inputs[0] if inputs[0].requires_grad else inputs[0].requires_grad_())

    hook = model.blocks[-1].register_forward_pre_hook(keep)
    try:
        with evaluating(model), frozen(model), torch.inference_mode(False):
            with torch.set_grad_enabled(gradients), record_attention(model.blocks, attend_from_here) as heads:
                normed = vit.forward_features(images)  # (B, N, D)
                logits = vit.forward_head(normed)  # (B, C)
            features = vit.fc_norm(normed[:, model.prefix :])  # (B, n, D)
            *found, token_gradients = _class_gradients(logits, asked, [*heads, *entering])
    finally:
        hook.remove()
    return Trace(
        logits=logits.detach(),
        attention=[head.detach() for head in heads],
        gradients=found,
        tokens=entering[0].detach(),
        token_gradients=token_gradients,
        features=features.detach(),
        weight=_head_weight(vit),
        prefix=model.prefix,
        grid=model.grid(*images.shape[-2:]),
    )


def _class_gradients(logits: Tensor, classes: Tensor, sources: list[Tensor]) -> list[Tensor]:
    """∂ logit / ∂ source of the chosen classes: each source (B, …) gives (B, K, …)."""
    if classes.shape[1] == 0:
        return [source.new_empty(len(source), 0, *source.shape[1:]) for source in sources]
    chosen = one_hot(classes, logits).transpose(0, 1)  # (K, B, C)
    found = torch.autograd.grad(logits, sources, chosen, is_grads_batched=True)
    return [gradient.transpose(0, 1).detach() for gradient in found]


def _head_weight(vit: Any) -> Tensor:
    """(C, D)."""
    weight: Tensor = vit.head.weight.detach()
    if getattr(vit, "head_dist", None) is not None:
        weight = (weight + vit.head_dist.weight.detach()) / 2
    return weight
