"""How much attention tells: where does a patch look because of what *it* is, and not because all patches look there?

Two numbers of a block that need no mask, for choosing the strength of the consistency and the blocks of the affinity:

``information``    mutual information between the patch that looks and the patch it looks at, in nats. 0 where all rows
                   are alike: uniform attention (too strong a regulariser) or "bright columns" (every patch attends
                   to the few telling ones). Refining a map by such a block makes it constant.
``inconsistency``  distance between the attentions of an image and of its view, restored, relative to the distance
                   of a row from the mean row. Around 1 and above, the rows differ no more than by chance.
"""

import torch
from torch import Tensor


def patch_rows(attention: Tensor) -> Tensor:
    """Attention (…, n+1, n+1) with the class token to patch rows (…, n, n) that sum to 1."""
    rows = attention[..., 1:, 1:]
    return rows / rows.sum(-1, keepdim=True)


def information(attention: Tensor) -> Tensor:
    """Mutual information (…) of query and key patch under attention (…, n+1, n+1), in nats, at most log n."""
    rows = patch_rows(attention)  # (…, n, n)
    mean = rows.mean(-2, keepdim=True)  # (…, 1, n)
    return (torch.xlogy(rows, rows) - torch.xlogy(rows, mean)).sum(-1).mean(-1)


def inconsistency(attention: Tensor, restored: Tensor) -> Tensor:
    """Mean L1 distance of the rows of two views, divided by that of the rows from their mean; both (…, n+1, n+1)."""
    one, other = patch_rows(attention), patch_rows(restored)  # (…, n, n)
    spread = (one - one.mean(-2, keepdim=True)).abs().sum((-2, -1))
    return (one - other).abs().sum((-2, -1)) / spread
