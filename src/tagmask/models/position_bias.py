"""Images of any size for ViTs with a position bias, which timm ties to one token grid.

Such ViTs are BEiT and ``vit_relpos_*_cls``. The bias of a pair of patches depends on how far one
lies from the other. A learned table of these distances is stretched to the grid of the image by
linear interpolation, as absolute position embeddings are: the farthest pair keeps its value, and
so does a patch with itself. A bias that a small network makes of the distance is asked for the
distances of the grid. On the grid that the table was made for nothing changes.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import timm
import torch
from timm.layers import pos_embed_rel as relative
from timm.models import beit, vision_transformer_relpos
from torch import Tensor, nn

Grid = tuple[int, int]


class AnySizeBeitAttention(beit.Attention):
    """BEiT's attention with the bias of ``grid``."""

    grid: Grid

    def _get_rel_pos_bias(self) -> Tensor:
        return table_bias(self.relative_position_bias_table, self.window_size, self.grid)


class AnySizeBias(relative.RelPosBias):
    """A learned table of biases for the pairs of ``grid``."""

    grid: Grid

    def get_bias(self) -> Tensor:
        """Return the bias (1, heads, 1+n, 1+n)."""
        return table_bias(self.relative_position_bias_table, self.window_size, self.grid)


class AnySizeMlp(relative.RelPosMlp):
    """A bias that a small network makes of the distance, for the pairs of ``grid``."""

    grid: Grid

    def get_bias(self) -> Tensor:
        """Return the bias (1, heads, prefix+n, prefix+n)."""
        weight = self.mlp.fc1.weight
        # distances in units of the trained window
        trained = self.window_size if self.mode == "swin" else (0, 0)
        coords = relative.gen_relative_log_coords(self.grid, trained, self.mode)
        coords = coords.to(weight)  # (2h−1, 2w−1, 2)
        values = self.bias_act(self.mlp(coords)).flatten(0, 1)  # ((2h−1)·(2w−1), heads)
        values = values * (self.bias_gain or 1)
        tokens = self.grid[0] * self.grid[1]
        index = _pairs(self.grid, False).to(weight.device)  # (n·n,)
        pairs = values[index].view(tokens, tokens, -1)  # (n, n, heads)
        bias = pairs.permute(2, 0, 1).unsqueeze(0)  # (1, heads, n, n)
        return nn.functional.pad(bias, [self.prefix_tokens, 0, self.prefix_tokens, 0])


_ANY_SIZE = {
    beit.Attention: AnySizeBeitAttention,
    relative.RelPosBias: AnySizeBias,
    relative.RelPosMlp: AnySizeMlp,
}


def has_position_bias(backbone: str) -> bool:
    """Return True if the attention of a timm model has a position bias, by the model's name."""
    module = timm.models.model_entrypoint(backbone).__module__
    return module in (beit.__name__, vision_transformer_relpos.__name__)


def take_any_size(vit: Any) -> None:
    """Make the biases of a ViT follow the size of the images that it is given."""
    biases = [module for module in vit.modules() if type(module) in _ANY_SIZE]
    for module in biases:
        module.__class__ = _ANY_SIZE[type(module)]  # the same parameters under the same names
    vit.patch_embed.strict_img_size = False
    vit.patch_embed.register_forward_pre_hook(partial(_note_grid, biases))


def _note_grid(biases: Sequence[Any], patch_embed: Any, images: tuple[Tensor, ...]) -> None:
    """Tell the biases the token grid of the images; called before the patches are embedded."""
    grid = patch_embed.dynamic_feat_size(images[0].shape[-2:])
    for module in biases:
        module.grid = grid


def table_bias(table: Tensor, window: Grid, grid: Grid) -> Tensor:
    """Return the bias (1, heads, 1+n, 1+n) of a learned table on another grid.

    Args:
        table: ((2H−1)·(2W−1) + 3, heads). The last three rows are class token to patch, patch to
            class token, and class token to itself.
        window: the grid (H, W) that the table was made for.
        grid: the grid (h, w) of the image, n = h · w.
    """
    of_patches = table[:-3]
    of_class_token = table[-3:]
    shape = (2 * window[0] - 1, 2 * window[1] - 1, -1)
    distances = of_patches.view(shape)  # (2H−1, 2W−1, heads)
    rows = _stretch(window[0], grid[0]).to(table)  # (2h−1, 2H−1)
    columns = _stretch(window[1], grid[1]).to(table)  # (2w−1, 2W−1)
    stretched = torch.einsum("ay,yxh,bx->abh", rows, distances, columns)  # (2h−1, 2w−1, heads)
    stretched = stretched.flatten(0, 1)  # ((2h−1)·(2w−1), heads)
    whole = torch.cat([stretched, of_class_token])  # ((2h−1)·(2w−1) + 3, heads)
    tokens = 1 + grid[0] * grid[1]
    index = _pairs(grid, True).to(table.device)  # (tokens · tokens,)
    pairs = whole[index].view(tokens, tokens, -1)
    return pairs.permute(2, 0, 1).unsqueeze(0)


def _stretch(window: int, grid: int) -> Tensor:
    """Return the weights (2·grid − 1, 2·window − 1) of a linear interpolation.

    It is between the distances −(window − 1) … window − 1.
    """
    ends = window - 1 if grid > 1 else 0
    wanted = torch.linspace(-ends, ends, 2 * grid - 1)  # (2·grid − 1,)
    known = torch.arange(-(window - 1), window)  # (2·window − 1,)
    apart = (wanted[:, None] - known).abs()  # (2·grid − 1, 2·window − 1)
    return (1 - apart).clamp(min=0)


@lru_cache(maxsize=8)
def _pairs(grid: Grid, class_token: bool) -> Tensor:
    """Return for each pair of tokens its row in the table of ``grid``, flat."""
    index: Tensor = relative.gen_relative_position_index(grid, class_token=class_token).flatten()
    return index
