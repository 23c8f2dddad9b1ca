"""Class maps of a transformer with a class token per class (MCTformer, Xu et al. 2022, its second version).

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
    """Class attention of the last ``layers`` blocks (default 3) times the CAM of the patch branch."""
    if not isinstance(model, MctClassifier):
        raise TagmaskError(
            "the map method mct needs a class token for each class; train one with --kind mct."
        )
    layers = model.map_layers if layers is None else layers
    check_layers(model, layers)
    last = range(len(model.blocks) - layers, len(model.blocks))
    wanted = sorted({*last, *blocks})
    with (
        evaluating(model),
        torch.no_grad(),
        record_attention([model.blocks[i] for i in wanted]) as means,
    ):
        _, cam = model.branches_and_cam(images)  # (B, C, h, w)
    attention = {i: model.without_extra_tokens(mean) for i, mean in zip(wanted, means, strict=True)}
    tokens = model.class_tokens
    rows = [_of_classes(attention[i][:, :tokens, tokens:], classes) for i in last]  # (B, K, n)
    return Maps(
        fuse(rows, _of_classes(cam.flatten(2).to(rows[0].dtype), classes)),
        [attention[i] for i in blocks],
    )


def fuse(rows: Sequence[Tensor], cam: Tensor) -> Tensor:
    """Class-to-patch attention of several blocks, each (…, n), averaged, times relu of the patch CAM (…, n)."""
    return torch.stack(list(rows)).mean(0) * cam.relu()


def _of_classes(values: Tensor, classes: Tensor) -> Tensor:
    """Of (B, C, n) the rows ``classes`` (B, K): (B, K, n); padding (−1) gives zeros."""
    index = classes.clamp(min=0).unsqueeze(-1).expand(-1, -1, values.shape[-1])
    return values.gather(1, index) * (classes >= 0).unsqueeze(-1)
