"""Views of an image and their inverses on attention (paper §3.2, Eq. 3–5).

A view f changes the image; ``restore`` is f⁻¹ on the attention matrix of the changed image, class
token at index 0, so that it can be compared with the attention of the original image. Of a model
with T class tokens (``class_tokens``) these stand first, and all stay in place.

The paper writes f⁻¹ for flips and rotations as products with P_w ⊗ P_h and a commutation matrix.
That is one permutation π of the patch tokens applied to rows and columns, so here it is an index:
``A'[..., π, :][..., :, π]``. Deviations: tokens are row-major (the paper's vec() is column-major);
180° is both flips (the paper's line for it is a 90° rotation); grids need not be square. Resizing
has no permutation: the attention is interpolated as a function of two grid positions, and its rows
are scaled back to their sum.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

Grid = tuple[int, int]  # (rows, columns) of patch tokens
GRAY_WEIGHTS = (0.299, 0.587, 0.114)  # ITU-R BT.601, as PIL and torchvision use


class View:
    """Change an image so that the inverse on attention is known; the base class changes nothing."""

    def draw(self) -> "View":
        """Return the fixed view to use for one step.

        A random view draws it here, by torch's generator.
        """
        return self

    def apply(self, images: Tensor) -> Tensor:
        """Return the view of images (B, 3, H, W) with values in [0, 1]."""
        return images

    def grid(self, grid: Grid) -> Grid:
        """Return the token grid of the view of an image whose own token grid is ``grid``."""
        return grid

    def restore(self, attention: Tensor, grid: Grid, class_tokens: int = 1) -> Tensor:
        """Bring the attention of the view back to the original image.

        Args:
            attention: (…, T+n', T+n') of the view.
            grid: Rows and columns (h, w) of the original's patches; n = h·w. It is not the grid of
                the view: a quarter turn exchanges rows and columns, and as h·w = w·h the wrong
                grid cannot be noticed.
            class_tokens: T, which stand first and stay in place.

        Returns:
            (…, T+n, T+n).

        Raises:
            ValueError: If the attention does not have the size of the view's grid.
        """
        _check(attention, self.grid(grid), class_tokens)
        return attention


class Identity(View):
    """Change nothing: both passes see the same image."""


class Permutation(View):
    """Move patches and do nothing else: ``undo`` maps any (…, h', w') array back to (…, h, w)."""

    def undo(self, array: Tensor) -> Tensor:
        """Return the array (…, h', w') with every entry back at its place, (…, h, w)."""
        raise TypeError(f"{type(self).__name__} must define undo")

    def index(self, grid: Grid) -> Tensor:
        """Return π (n,): token i of the original sits at token π[i] of the view."""
        rows, columns = self.grid(grid)
        return self.undo(torch.arange(rows * columns).view(rows, columns)).flatten()

    def restore(self, attention: Tensor, grid: Grid, class_tokens: int = 1) -> Tensor:
        """Permute rows and columns of the attention by π.

        Args:
            attention: (…, T+n, T+n) of the view.
            grid: Rows and columns of the original's patches.
            class_tokens: T, which stand first and stay in place.
        """
        _check(attention, self.grid(grid), class_tokens)
        index = _with_class_tokens(self, grid, class_tokens).to(attention.device)
        entries = (
            index[:, None] * len(index) + index
        ).flatten()  # one flat index is far faster than a pair
        return attention.flatten(-2).index_select(-1, entries).view(attention.shape)


class HorizontalFlip(Permutation):
    """Mirror the image, left to right."""

    def apply(self, images: Tensor) -> Tensor:
        """Return the mirrored images (B, 3, H, W)."""
        return images.flip(-1)

    def undo(self, array: Tensor) -> Tensor:
        """Return the array (…, h, w) mirrored back."""
        return array.flip(-1)


class VerticalFlip(Permutation):
    """Turn the image upside down, without mirroring it."""

    def apply(self, images: Tensor) -> Tensor:
        """Return the flipped images (B, 3, H, W)."""
        return images.flip(-2)

    def undo(self, array: Tensor) -> Tensor:
        """Return the array (…, h, w) flipped back."""
        return array.flip(-2)


class Rotate(Permutation):
    """Rotate the image by 90, 180 or 270 degrees counter-clockwise, as ``torch.rot90`` does.

    After a quarter turn the view of an image of h × w patches has w × h of them. ``restore`` is
    given (h, w), the grid of the original.

    Args:
        degrees: 90, 180 or 270.

    Raises:
        ValueError: If the degrees are others.
    """

    def __init__(self, degrees: int) -> None:
        if degrees not in (90, 180, 270):
            raise ValueError(
                f"a rotation by {degrees} degrees does not keep the patch grid; use 90, 180 or 270"
            )
        self.quarters = degrees // 90

    def apply(self, images: Tensor) -> Tensor:
        """Return the rotated images (B, 3, H', W')."""
        return images.rot90(self.quarters, (-2, -1))

    def undo(self, array: Tensor) -> Tensor:
        """Return the array (…, h', w') rotated back, (…, h, w)."""
        return array.rot90(-self.quarters, (-2, -1))

    def grid(self, grid: Grid) -> Grid:
        """Return the grid with rows and columns exchanged, unless it is a half turn."""
        return (grid[1], grid[0]) if self.quarters % 2 else grid


class AnyRotation(View):
    """Draw one of the three rotations for each step."""

    def draw(self) -> View:
        """Return a rotation by 90, 180 or 270 degrees."""
        return Rotate(90 * int(torch.randint(1, 4, ())))


class OneOf(View):
    """Draw one of several views for every step."""

    def __init__(self, views: Sequence[View]) -> None:
        self.views = tuple(views)

    def draw(self) -> View:
        """Return one of the views, itself drawn."""
        return self.views[int(torch.randint(len(self.views), ()))].draw()


class Resize(View):
    """Make the image smaller or larger.

    ``patch`` is the backbone's patch size, which the new size must be a multiple of.
    """

    def __init__(self, scale: float, patch: int = 16) -> None:
        if not 0 < scale <= 4:
            raise ValueError(f"scale {scale} is outside (0, 4]; use for example 0.5")
        self.scale, self.patch = scale, patch

    def grid(self, grid: Grid) -> Grid:
        """Return the scaled grid, at least one patch each way."""
        return max(1, round(grid[0] * self.scale)), max(1, round(grid[1] * self.scale))

    def apply(self, images: Tensor) -> Tensor:
        """Return the resized images (B, 3, H', W'), bilinear with antialiasing."""
        height, width = images.shape[-2:]
        rows, columns = self.grid((height // self.patch, width // self.patch))
        size = (rows * self.patch, columns * self.patch)
        return F.interpolate(
            images, size=size, mode="bilinear", align_corners=False, antialias=True
        )

    def restore(self, attention: Tensor, grid: Grid, class_tokens: int = 1) -> Tensor:
        """Interpolate the attention as a function of two grid positions, row sums kept.

        Args:
            attention: (…, T+n', T+n') of the view.
            grid: Rows and columns of the original's patches.
            class_tokens: T, which stand first and stay in place.
        """
        _check(attention, self.grid(grid), class_tokens)
        return _interpolate(attention, self.grid(grid), grid, class_tokens)


class HidePatches(View):
    """Paint squares of the image with its mean colour; patches stay where they are."""

    def __init__(self, probability: float = 0.25, patch: int = 16) -> None:
        if not 0 <= probability < 1:
            raise ValueError(f"probability {probability} is outside [0, 1); use for example 0.25")
        self.probability, self.patch = probability, patch

    def apply(self, images: Tensor) -> Tensor:
        """Return the images (B, 3, H, W) with each square hidden at the given probability."""
        batch, _, height, width = images.shape
        cells = (-(-height // self.patch), -(-width // self.patch))
        hidden = (
            torch.rand(batch, 1, *cells).to(images) < self.probability
        )  # drawn on the CPU: same on any device
        hidden = hidden.repeat_interleave(self.patch, -2).repeat_interleave(self.patch, -1)[
            ..., :height, :width
        ]
        return torch.where(hidden, images.mean((-2, -1), keepdim=True), images)


class Grayscale(View):
    """Take the colours out of the image."""

    def apply(self, images: Tensor) -> Tensor:
        """Return the luminance in all three channels, (B, 3, H, W)."""
        weights = images.new_tensor(GRAY_WEIGHTS).view(3, 1, 1)
        return (images * weights).sum(-3, keepdim=True).expand_as(images)


class Compose(View):
    """Apply several views from first to last, and undo them from last to first."""

    def __init__(self, views: Sequence[View]) -> None:
        self.views = tuple(views)

    def draw(self) -> View:
        """Return the composition of what each view draws."""
        return Compose([view.draw() for view in self.views])

    def apply(self, images: Tensor) -> Tensor:
        """Return the images after all views."""
        for view in self.views:
            images = view.apply(images)
        return images

    def grid(self, grid: Grid) -> Grid:
        """Return the grid after all views."""
        for view in self.views:
            grid = view.grid(grid)
        return grid

    def restore(self, attention: Tensor, grid: Grid, class_tokens: int = 1) -> Tensor:
        """Undo the views on the attention, the last first.

        Args:
            attention: (…, T+n', T+n') of the view.
            grid: Rows and columns of the original's patches.
            class_tokens: T, which stand first and stay in place.
        """
        grids = [grid]  # the grid before each view
        for view in self.views:
            grids.append(view.grid(grids[-1]))
        for view, before in zip(reversed(self.views), reversed(grids[:-1]), strict=True):
            attention = view.restore(attention, before, class_tokens)
        return attention


NAMES = "none, hflip, vflip, rotate90, rotate180, rotate270, rotate, resize0.5, hide, gray"


def parse_view(text: str, patch: int) -> View:
    """Return a view from its name.

    Args:
        text: For example ``hflip`` or ``resize0.5``; ``hflip+hide`` is both, ``hflip|rotate`` one
            of the two, drawn for each step.
        patch: The backbone's patch size in pixels.

    Returns:
        The view.

    Raises:
        ValueError: If there is no view of that name, or if its number is out of range.
    """
    if "|" in text:
        return OneOf([parse_view(part, patch) for part in text.split("|")])
    views = [_parse_one(name.strip(), patch) for name in text.split("+")]
    return views[0] if len(views) == 1 else Compose(views)


def _parse_one(name: str, patch: int) -> View:
    plain = {
        "none": Identity(),
        "hflip": HorizontalFlip(),
        "vflip": VerticalFlip(),
        "rotate": AnyRotation(),
        "hide": HidePatches(patch=patch),
        "gray": Grayscale(),
    }
    if name in plain:
        return plain[name]
    try:
        if name.startswith("rotate"):
            return Rotate(int(name.removeprefix("rotate")))
        if name.startswith("resize"):
            return Resize(float(name.removeprefix("resize")), patch)
        if name.startswith("hide"):
            return HidePatches(float(name.removeprefix("hide")), patch)
    except ValueError as error:
        raise ValueError(f"view {name!r} cannot be used: {error}") from None
    raise ValueError(f"there is no view {name!r}; choose from {NAMES}, joined by + or |")


def _check(attention: Tensor, grid: Grid, class_tokens: int) -> None:
    tokens = grid[0] * grid[1] + class_tokens
    if attention.shape[-2:] != (tokens, tokens):
        first = "a class token" if class_tokens == 1 else f"{class_tokens} class tokens"
        raise ValueError(
            f"attention is {tuple(attention.shape[-2:])}, but the view of this grid has "
            f"{grid[0]}×{grid[1]} patches and {first}: ({tokens}, {tokens}) was expected"
        )


def _with_class_tokens(view: Permutation, grid: Grid, count: int) -> Tensor:
    """Return π shifted by the class tokens, which are left in place: (T+n,)."""
    return torch.cat([torch.arange(count), view.index(grid) + count])


def _interpolate(attention: Tensor, source: Grid, target: Grid, kept: int) -> Tensor:
    """Return W A' Wᵀ with W the interpolation between patch centres, row sums of A' kept.

    T class tokens are ``kept`` as they are.
    """
    patch_weights = _grid_weights(source, target).to(attention)  # (n, n')
    weights = torch.block_diag(torch.eye(kept).to(patch_weights), patch_weights)  # (T+n, T+n')
    rows = _rescaled(
        weights @ attention, attention.sum(-1) @ weights.T
    )  # (…, T+n, T+n'): queries moved
    patches = _rescaled(
        rows[..., kept:] @ patch_weights.T, rows[..., kept:].sum(-1)
    )  # (…, T+n, n): keys moved
    return torch.cat([rows[..., :kept], patches], dim=-1)


def _rescaled(rows: Tensor, sums: Tensor) -> Tensor:
    """Scale rows to the given sums, without the negative entries that extrapolation can make."""
    rows = rows.clamp(min=0)
    return rows * (sums / rows.sum(-1).clamp(min=torch.finfo(rows.dtype).tiny)).unsqueeze(-1)


@lru_cache(maxsize=32)
def _grid_weights(source: Grid, target: Grid) -> Tensor:
    """Return bilinear interpolation between two grids as a matrix (n_target, n_source)."""
    return torch.kron(_line_weights(source[0], target[0]), _line_weights(source[1], target[1]))


def _line_weights(source: int, target: int) -> Tensor:
    """Return linear interpolation between cell centres, (target, source).

    It is linear beyond the outer centres, too.
    """
    if source == 1:
        return torch.ones(target, 1, dtype=torch.float64)
    position = (torch.arange(target, dtype=torch.float64) + 0.5) * source / target - 0.5
    left = position.floor().clamp(0, source - 2).long()
    share = position - left  # outside [0, 1] beyond the outer centres
    weights = torch.zeros(target, source, dtype=torch.float64)
    weights[torch.arange(target), left] = 1 - share
    weights[torch.arange(target), left + 1] = share
    return weights
