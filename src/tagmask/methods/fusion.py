"""Class maps of a transformer with a class token per class (MCTformer, Xu et al. 2022, its second version).

    M*^c = mean_{last k blocks} Ā_i[c, patches] ⊙ relu(patch CAM of c)     without affinity
    M^c  = ( Σ_blocks Ā_i[patches, patches] ) · M*^c                       with affinity, as ACR's own refinement

The paper's k is 3. Sum or mean over blocks is the same after normalisation.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def fuse(rows: Sequence[Tensor], cam: Tensor) -> Tensor:
    """Class-to-patch attention of some blocks, each (…, n), averaged, times relu of the patch CAM (…, n)."""
    return torch.stack(list(rows)).mean(0) * cam.relu()
