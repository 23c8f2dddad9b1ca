"""Images of any size for ViTs with a position bias (BEiT, ``vit_relpos_*_cls``), which timm ties to one token grid.

The bias of a pair of patches depends on how far one lies from the other. A learned table of these distances is
stretched to the grid of the image by linear interpolation, as absolute position embeddings are: the farthest pair keeps
its value, and so does a patch with itself. A bias that a small network makes of the distance is asked for the distances
of the grid. On the grid that the table was made for nothing changes.
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
        return table_bias(self.relative_position_bias_table, self.window_size, self.grid)


class AnySizeMlp(relative.RelPosMlp):
    """A bias that a small network makes of the distance, for the pairs of ``grid``."""

    grid: Grid

    def get_bias(self) -> Tensor:
        trained = (
            self.window_size if self.mode == "swin" else (0, 0)
        )  # distances in units of the trained window
        weight = self.mlp.fc1.weight
        coords = relative.gen_relative_log_coords(self.grid, trained, self.mode).to(
            weight
        )  # (2h−1, 2w−1, 2)
        values = self.bias_act(self.mlp(coords)).flatten(0, 1) * (self.bias_gain or 1)  # (·, heads)
        tokens = self.grid[0] * self.grid[1]
        pairs = values[_pairs(self.grid, False).to(weight.device)].view(
            tokens, tokens, -1
        )  # (n, n, heads)
        bias = pairs.permute(2, 0, 1).unsqueeze(0)  # (1, heads, n, n)
        return nn.functional.pad(bias, [self.prefix_tokens, 0, self.prefix_tokens, 0])


_ANY_SIZE = {
    beit.Attention: AnySizeBeitAttention,
    relative.RelPosBias: AnySizeBias,
    relative.RelPosMlp: AnySizeMlp,
}


def has_position_bias(backbone: str) -> bool:
    """Whether the attention of a timm model has a position bias, by its name."""
    return timm.models.model_entrypoint(backbone).__module__ in (
        beit.__name__,
        vision_transformer_relpos.__name__,
    )


def take_any_size(vit: Any) -> None:
    """Make the biases of a ViT follow the size of the images that it is given."""
    biases = [module for module in vit.modules() if type(module) in _ANY_SIZE]
    for module in biases:
        module.__class__ = _ANY_SIZE[type(module)]  # the same parameters under the same names
    vit.patch_embed.strict_img_size = False
    vit.patch_embed.register_forward_pre_hook(partial(_note_grid, biases))


def _note_grid(biases: Sequence[Any], patch_embed: Any, images: tuple[Tensor, ...]) -> None:
    grid = patch_embed.dynamic_feat_size(images[0].shape[-2:])
    for module in biases:
        module.grid = grid


def table_bias(table: Tensor, window: Grid, grid: Grid) -> Tensor:
    """Bias (1, heads, 1+n, 1+n) on ``grid`` of a table ((2H−1)·(2W−1) + 3, heads) made for ``window``.

    The last three rows are class token to patch, patch to class token, and class token to itself.
    """
    distances = table[:-3].view(2 * window[0] - 1, 2 * window[1] - 1, -1)
    rows, columns = (_stretch(*sizes).to(table) for sizes in zip(window, grid, strict=True))
    stretched = torch.einsum("ay,yxh,bx->abh", rows, distances, columns).flatten(0, 1)
    tokens = 1 + grid[0] * grid[1]
    pairs = torch.cat([stretched, table[-3:]])[_pairs(grid, True).to(table.device)]
    return pairs.view(tokens, tokens, -1).permute(2, 0, 1).unsqueeze(0)


def _stretch(window: int, grid: int) -> Tensor:
    """(2·grid − 1, 2·window − 1): linear interpolation between distances −(window − 1) … window − 1."""
    ends = window - 1 if grid > 1 else 0
    wanted = torch.linspace(-ends, ends, 2 * grid - 1)
    known = torch.arange(-(window - 1), window)
    return (1 - (wanted[:, None] - known).abs()).clamp(min=0)


@lru_cache(maxsize=8)
def _pairs(grid: Grid, class_token: bool) -> Tensor:
    """For each pair of tokens its row in the table of ``grid``, flat."""
    index: Tensor = relative.gen_relative_position_index(grid, class_token=class_token).flatten()
    return index
