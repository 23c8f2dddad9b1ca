"""Class maps of a transformer with a class token per class.

MCTformer, Xu et al. 2022, its second version:

    M*^c = mean_{last k blocks} Ā_i[c, patches] ⊙ relu(patch CAM of c)     without affinity
    M^c  = ( Σ_blocks Ā_i[patches, patches] ) · M*^c                       with affinity, as in ACR

The paper's k is 3. Sum or mean over blocks is the same after normalisation.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tagmask.acr.attention import record_attention
from tagmask.acr.gradients import check_layers, evaluating
from tagmask.acr.localize import Maps
from tagmask.errors import TagmaskError
from tagmask.models.classifier import Classifier
from tagmask.models.mct import MctClassifier


def mct(
    model: Classifier, images: Tensor, classes: Tensor, blocks: range, *, layers: int | None = None
) -> Maps:
    """Return class attention of the last blocks times the CAM of the patch branch.

    Args:
        model: an MCTformer.
        images: (B, 3, H, W), normalised.
        classes: (B, K); −1 = padding.
        blocks: the blocks whose attention is returned.
        layers: how many last blocks make the map (default: the model's ``map_layers``, 3).

    Raises:
        TagmaskError: if the model has no class token for each class, or fewer blocks.
    """
    if not isinstance(model, MctClassifier):
        raise TagmaskError(
            "the map method mct needs a class token for each class; train one with --kind mct."
        )
    if layers is None:
        layers = model.map_layers
    check_layers(model, layers)
    depth = len(model.blocks)
    last = range(depth - layers, depth)
    wanted = sorted({*last, *blocks})
    recorded = [model.blocks[i] for i in wanted]
    with evaluating(model), torch.no_grad(), record_attention(recorded) as means:
        _, cam = model.branches_and_cam(images)  # (B, C, h, w)
    attention = {}
    for i, mean in zip(wanted, means, strict=True):
        attention[i] = model.without_extra_tokens(mean)  # (B, C+n, C+n)
    tokens = model.class_tokens
    rows = []
    for i in last:
        class_to_patch = attention[i][:, :tokens, tokens:]  # (B, C, n)
        rows.append(_rows_of(classes, class_to_patch))  # (B, K, n)
    patch_cam = _rows_of(classes, cam.flatten(2).to(rows[0].dtype))  # (B, K, n)
    return Maps(fuse(rows, patch_cam), [attention[i] for i in blocks])


def fuse(rows: Sequence[Tensor], cam: Tensor) -> Tensor:
    """Return the mean class-to-patch attention times relu of the patch CAM, shape (…, n).

    Args:
        rows: attention of a class token to the patches, (…, n) for each block.
        cam: the CAM of the patch branch (…, n).
    """
    attention = torch.stack(list(rows)).mean(0)  # (…, n)
    return attention * cam.relu()


def _rows_of(classes: Tensor, values: Tensor) -> Tensor:
    """Return the rows ``classes`` (B, K) of (B, C, n): (B, K, n); padding (−1) gives zeros."""
    is_class = (classes >= 0).unsqueeze(-1)  # (B, K, 1)
    index = classes.clamp(min=0).unsqueeze(-1)  # (B, K, 1)
    index = index.expand(-1, -1, values.shape[-1])  # (B, K, n)
    return values.gather(1, index) * is_class
