"""Views and their inverses: the index form against the paper's matrices, and against the definition."""

import pytest
import torch
from torch import Tensor

from tagmask.acr.views import (
    AnyRotation,
    Compose,
    Grayscale,
    Grid,
    HidePatches,
    HorizontalFlip,
    Identity,
    Permutation,
    Resize,
    Rotate,
    VerticalFlip,
    View,
    parse_view,
)

GRIDS: list[Grid] = [(3, 5), (4, 4), (1, 6)]
EIGHT = {  # the symmetries of a rectangle: (transposes, flips rows, flips columns) after transposing
    "none": (False, False, False),
    "hflip": (False, False, True),
    "vflip": (False, True, False),
    "rotate180": (False, True, True),
    "rotate90": (True, True, False),
    "rotate270": (True, False, True),
    "hflip+rotate90": (True, False, False),
    "hflip+rotate270": (True, True, True),
}


def attention_of(tokens: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Permutation-equivariant attention (n+1, n+1) of tokens (n+1, d)."""
    return (tokens @ query @ (tokens @ key).T).softmax(-1)


def exchange(size: int) -> Tensor:
    """P: ones on the anti-diagonal."""
    return torch.eye(size, dtype=torch.float64).flip(0)


def commutation(rows: int, columns: int) -> Tensor:
    """C with C vec(X) = vec(Xᵀ) for X rows×columns and column-major vec."""
    matrix = torch.zeros(rows * columns, rows * columns, dtype=torch.float64)
    for r in range(rows):
        for c in range(columns):
            matrix[r * columns + c, c * rows + r] = 1
    return matrix


def kronecker_matrix(name: str, grid: Grid) -> Tensor:
    """K with vec(f(X)) = K vec(X), vec column-major as in the paper: f(X) = P_h X P_w or P_h Xᵀ P_w."""
    transposes, flips_rows, flips_columns = EIGHT[name]
    rows, columns = grid[::-1] if transposes else grid
    left = exchange(rows) if flips_rows else torch.eye(rows, dtype=torch.float64)
    right = exchange(columns) if flips_columns else torch.eye(columns, dtype=torch.float64)
    product = torch.kron(right.T.contiguous(), left.contiguous())  # vec(L Y R) = (Rᵀ ⊗ L) vec(Y)
    return product @ commutation(*grid) if transposes else product


def to_column_major(grid: Grid) -> Tensor:
    """Permutation matrix from row-major to column-major tokens of a grid."""
    return commutation(grid[1], grid[0])


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", list(EIGHT))
def test_index_form_equals_kronecker_form(name: str, grid: Grid) -> None:
    view = parse_view(name, 1)
    patches = grid[0] * grid[1]
    changed = torch.rand(patches + 1, patches + 1, dtype=torch.float64)
    inner = kronecker_matrix(name, grid)
    before, after = to_column_major(grid), to_column_major(view.grid(grid))
    # f⁻¹(A′) = Kᵀ A′ K in the paper's order; conjugate by the change of token order
    moved = before.T @ inner.T @ after @ changed[1:, 1:] @ after.T @ inner @ before
    restored = view.restore(changed, grid)
    torch.testing.assert_close(restored[1:, 1:], moved, rtol=0, atol=0)
    torch.testing.assert_close(restored[0, 0], changed[0, 0], rtol=0, atol=0)
    torch.testing.assert_close(
        restored[0, 1:], changed[0, 1:] @ after.T @ inner @ before, rtol=0, atol=0
    )
    torch.testing.assert_close(
        restored[1:, 0], before.T @ inner.T @ after @ changed[1:, 0], rtol=0, atol=0
    )


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", list(EIGHT))
def test_restored_attention_of_the_view_is_the_attention_of_the_image(
    name: str, grid: Grid
) -> None:
    torch.manual_seed(0)
    view = parse_view(name, 1)
    image = torch.rand(1, 3, *grid, dtype=torch.float64)  # one pixel per patch
    class_token = torch.rand(1, 3, dtype=torch.float64)
    query, key = torch.rand(2, 3, 4, dtype=torch.float64)

    def attention(picture: Tensor) -> Tensor:
        return attention_of(torch.cat([class_token, picture[0].flatten(1).T]), query, key)

    torch.testing.assert_close(
        view.restore(attention(view.apply(image)), grid), attention(image), rtol=0, atol=1e-14
    )


def test_rotation_by_hand() -> None:
    # X = [[0, 1, 2], [3, 4, 5]] turned 90° counter-clockwise is [[2, 5], [1, 4], [0, 3]]
    assert Rotate(90).index((2, 3)).tolist() == [4, 2, 0, 5, 3, 1]
    assert Rotate(90).grid((2, 3)) == (3, 2)
    assert Rotate(180).index((2, 3)).tolist() == [5, 4, 3, 2, 1, 0]
    assert HorizontalFlip().index((2, 3)).tolist() == [2, 1, 0, 5, 4, 3]
    assert VerticalFlip().index((2, 3)).tolist() == [3, 4, 5, 0, 1, 2]


def test_compose_undoes_in_reverse_order() -> None:
    view = Compose([HorizontalFlip(), Rotate(90), Resize(2, patch=1)])
    assert view.grid((2, 3)) == (6, 4)
    changed = torch.rand(25, 25).softmax(-1)
    step = Resize(2, patch=1).restore(changed, (3, 2))
    step = HorizontalFlip().restore(Rotate(90).restore(step, (2, 3)), (2, 3))
    torch.testing.assert_close(view.restore(changed, (2, 3)), step)


def linear_attention(grid: Grid) -> Tensor:
    """Attention whose patch part is linear in the query's and in the key's position on the unit square."""
    rows, columns = grid
    y = (torch.arange(rows, dtype=torch.float64) + 0.5) / rows
    x = (torch.arange(columns, dtype=torch.float64) + 0.5) / columns
    place = torch.cartesian_prod(y, x)  # (n, 2)
    queries, keys = (
        1 + place @ torch.tensor([0.3, -0.2]).double(),
        1 + place @ torch.tensor([0.5, 0.7]).double(),
    )
    to_class = 0.1 + 0.2 * place[:, 0]
    patches = (1 - to_class)[:, None] * (keys / keys.sum())[None] + 0 * queries[:, None]
    first = torch.cat([torch.tensor([0.25]).double(), 0.75 * keys / keys.sum()])
    return torch.cat([first[None], torch.cat([to_class[:, None], patches], 1)])


@pytest.mark.parametrize(
    ("grid", "scale"), [((4, 6), 0.5), ((3, 5), 2.0), ((6, 4), 1.5), ((8, 12), 0.75)]
)
def test_resize_restores_linear_functions_exactly(grid: Grid, scale: float) -> None:
    view = Resize(scale, patch=1)
    restored = view.restore(linear_attention(view.grid(grid)), grid)
    torch.testing.assert_close(restored, linear_attention(grid), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("scale", [0.4, 0.5, 1.3, 2.0])
def test_resize_restores_constants_and_keeps_row_sums(scale: float) -> None:
    view, grid = Resize(scale, patch=1), (5, 8)
    patches = view.grid(grid)[0] * view.grid(grid)[1]
    constant = torch.full((patches + 1, patches + 1), 0.5 / patches, dtype=torch.float64)
    constant[:, 0] = 0.5
    restored = view.restore(constant, grid)
    torch.testing.assert_close(restored[:, 1:], torch.full((41, 40), 0.5 / 40, dtype=torch.float64))
    torch.testing.assert_close(restored[:, 0], torch.full((41,), 0.5, dtype=torch.float64))
    rough = (4 * torch.randn(2, patches + 1, patches + 1, dtype=torch.float64)).softmax(-1)
    sums = view.restore(rough, grid).sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    assert (view.restore(rough, grid) >= 0).all()


def test_resize_is_not_a_picture_of_the_flat_matrix() -> None:
    # one bright key in the corner of a 4×4 grid must stay in the corner of the 2×2 grid's four cells
    attention = torch.zeros(5, 5, dtype=torch.float64)
    attention[:, 4] = 1  # every query looks at the lower right of a 2×2 grid
    restored = Resize(0.5, patch=1).restore(attention, (4, 4))[1:, 1:].view(16, 4, 4)
    assert (restored[:, 2:, 2:].sum((-2, -1)) > restored[:, :2, :2].sum((-2, -1))).all()
    assert (restored[:, 3, 3] >= restored.flatten(1).max(-1).values - 1e-12).all()


@pytest.mark.parametrize(
    "view", [HorizontalFlip(), VerticalFlip(), Rotate(90), Rotate(270), Rotate(180)]
)
def test_index_undoes_apply(view: Permutation) -> None:
    picture = torch.rand(1, 3, 2, 3)
    changed = view.apply(picture).flatten(2)  # (1, 3, n)
    torch.testing.assert_close(changed[..., view.index((2, 3))], picture.flatten(2), rtol=0, atol=0)


def test_hide_and_gray_leave_attention_alone() -> None:
    attention = torch.rand(7, 7)
    for view in (HidePatches(), Grayscale(), Identity()):
        assert view.restore(attention, (2, 3)) is attention


def test_hide_patches_paints_whole_cells_with_the_mean() -> None:
    torch.manual_seed(0)
    picture = torch.rand(4, 3, 16, 24)
    hidden = HidePatches(0.5, patch=8).apply(picture)
    changed = (
        (hidden != picture).any(1).view(4, 2, 8, 3, 8).transpose(2, 3).flatten(3)
    )  # (4, 2, 3, 64)
    assert set(changed.float().mean(-1).flatten().tolist()) == {0.0, 1.0}
    cell = int(changed[0].all(-1).flatten().float().argmax())
    row, column = divmod(cell, 3)
    torch.testing.assert_close(hidden[0, :, row * 8, column * 8], picture[0].mean((-2, -1)))
    torch.manual_seed(0)
    torch.rand(4, 3, 16, 24)
    torch.testing.assert_close(HidePatches(0.5, patch=8).apply(picture), hidden)


def test_gray_has_equal_channels_of_known_brightness() -> None:
    picture = torch.zeros(1, 3, 1, 1)
    picture[0, 1] = 1
    assert Grayscale().apply(picture).flatten().tolist() == pytest.approx([0.587] * 3)


def test_any_rotation_draws_each_of_three() -> None:
    torch.manual_seed(0)
    drawn = [AnyRotation().draw() for _ in range(60)]
    assert {view.quarters for view in drawn if isinstance(view, Rotate)} == {1, 2, 3}


def test_resize_makes_images_of_whole_patches() -> None:
    assert Resize(0.5, patch=16).apply(torch.rand(1, 3, 80, 112)).shape == (1, 3, 32, 64)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flip", "no view 'flip'"),
        ("rotate45", "use 90, 180 or 270"),
        ("resize9", "outside"),
        ("hidex", "hidex"),
    ],
)
def test_unknown_views_are_refused_with_a_sentence(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_view(name, 16)


@pytest.mark.parametrize("view", [HorizontalFlip(), Rotate(90), Resize(0.5, patch=1), Identity()])
def test_attention_of_another_grid_is_refused(view: View) -> None:
    with pytest.raises(ValueError, match="was expected"):
        view.restore(torch.rand(9, 9), (3, 5))


def test_one_of_several_views_is_drawn() -> None:
    torch.manual_seed(0)
    view = parse_view("hflip|vflip+gray|rotate", 8)
    drawn = [view.draw() for _ in range(60)]
    names = {type(candidate).__name__ for candidate in drawn}
    assert names == {"HorizontalFlip", "Compose", "Rotate"}
    image = torch.rand(1, 3, 8, 8)
    first = next(candidate for candidate in drawn if type(candidate) is HorizontalFlip)
    assert torch.equal(first.apply(image), image.flip(-1))
    with pytest.raises(ValueError, match="no view 'turn'"):
        parse_view("hflip|turn", 8)
