"""BEiT and ViTs with relative positions on images of any size, and heads that are put on the class token."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.layers.pos_embed_rel import RelPosBias, RelPosMlp
from timm.models.beit import Beit

from tagmask.errors import TagmaskError
from tagmask.models.classifier import Classifier, read_class_token
from tagmask.models.mct import MctClassifier
from tagmask.models.position_bias import AnySizeMlp, table_bias

SMALL = {"depth": 2, "embed_dim": 48, "num_heads": 3, "img_size": 64}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model
    monkeypatch.setattr(
        timm, "create_model", lambda name, **options: create(name, **{**options, **SMALL})
    )


def bias_by_hand(
    table: torch.Tensor, window: tuple[int, int], grid: tuple[int, int]
) -> torch.Tensor:
    """One pair after the other: its distance in units of the window, and the four entries of the table around it."""
    values = table[:-3].view(2 * window[0] - 1, 2 * window[1] - 1, -1)
    places = [(y, x) for y in range(grid[0]) for x in range(grid[1])]
    expected = torch.zeros(table.shape[1], 1 + len(places), 1 + len(places), dtype=table.dtype)
    expected[:, 0, 1:], expected[:, 1:, 0] = table[-3].unsqueeze(-1), table[-2].unsqueeze(-1)
    expected[:, 0, 0] = table[-1]
    for i, one in enumerate(places):
        for j, other in enumerate(places):
            at = []
            for axis in range(2):
                farthest = max(1, grid[axis] - 1)
                at.append(
                    (one[axis] - other[axis]) / farthest * (window[axis] - 1) + window[axis] - 1
                )
            low = [min(int(a), 2 * w - 2) for a, w in zip(at, window, strict=True)]
            for y, x in [
                (low[0], low[1]),
                (low[0] + 1, low[1]),
                (low[0], low[1] + 1),
                (low[0] + 1, low[1] + 1),
            ]:
                share = max(0, 1 - abs(at[0] - y)) * max(0, 1 - abs(at[1] - x))
                if share:
                    expected[:, 1 + i, 1 + j] += share * values[y, x]
    return expected


@pytest.mark.parametrize("grid", [(3, 4), (2, 5), (5, 2), (6, 7), (1, 3)])
def test_stretched_table(grid: tuple[int, int]) -> None:
    torch.manual_seed(0)
    table = torch.randn(5 * 7 + 3, 2, dtype=torch.float64)
    actual = table_bias(table, (3, 4), grid)[0]
    torch.testing.assert_close(actual, bias_by_hand(table, (3, 4), grid), atol=1e-6, rtol=0)


def test_on_its_own_grid_nothing_changes() -> None:
    torch.manual_seed(0)
    own = RelPosBias((3, 4), 2, prefix_tokens=1)
    torch.testing.assert_close(
        table_bias(own.relative_position_bias_table, (3, 4), (3, 4)), own.get_bias()
    )
    for mode in ("cr", "swin"):
        network = RelPosMlp((3, 4), 2, prefix_tokens=1, mode=mode).eval()
        expected = network.get_bias()
        network.__class__ = AnySizeMlp
        network.grid = (3, 4)
        torch.testing.assert_close(network.get_bias(), expected)


def test_the_network_is_asked_for_the_distances_of_the_grid() -> None:
    torch.manual_seed(0)
    small, large = (RelPosMlp(window, 2, prefix_tokens=1).eval() for window in ((3, 4), (5, 2)))
    large.load_state_dict(small.state_dict())
    small.__class__ = AnySizeMlp
    small.grid = (5, 2)
    torch.testing.assert_close(small.get_bias(), large.get_bias())


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["beit_base_patch16_224", "vit_relpos_base_patch16_cls_224"])
def test_any_size_training_copies_and_files(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Classifier(name, 3).eval()
    images = torch.rand(1, 3, 32, 80)
    logits, attention = model(images, return_attention=True)
    assert attention.shape == (1, 2, 11, 11)
    logits.sum().backward()
    learned = [
        p
        for n, p in model.named_parameters()
        if "relative_position_bias_table" in n or "rel_pos.mlp" in n
    ]
    assert (
        max(parameter.grad.abs().max() for parameter in learned if parameter.grad is not None) > 0
    )
    with torch.no_grad():
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            twin(torch.rand(1, 3, 64, 16))  # another grid, which the first must not notice
            torch.testing.assert_close(twin(images), model(images), rtol=0, atol=0)
        model.save(tmp_path)
        torch.testing.assert_close(Classifier.load(tmp_path)(images), model(images), rtol=0, atol=0)


def test_an_average_makes_way_for_the_class_token() -> None:
    torch.manual_seed(0)
    vit = Beit(use_abs_pos_emb=False, num_classes=4, **SMALL).eval()
    torch.nn.init.normal_(vit.fc_norm.weight)
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected = vit.head(vit.fc_norm(vit.forward_features(images)[:, 0]))
        assert not torch.allclose(vit(images), expected)
        read_class_token(vit)
        torch.testing.assert_close(vit(images), expected)


def test_attention_pooling_makes_way_for_the_class_token() -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {"depth": 2, "dynamic_img_size": True, "num_classes": 4}
    vit = timm.create_model("vit_pe_core_tiny_patch16_384", **options).eval()
    assert vit.attn_pool is not None
    images = torch.rand(1, 3, 32, 48)
    with torch.no_grad():
        expected = vit.head(vit.fc_norm(vit.forward_features(images)[:, 0]))
        read_class_token(vit)
        torch.testing.assert_close(vit(images), expected)
    assert not [name for name in vit.state_dict() if name.startswith("attn_pool")]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "name", ["beit_base_patch16_224", "vit_small_patch16_dinov3", "eva02_tiny_patch14_224"]
)
def test_weights_of_a_file_are_converted_by_the_family(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = timm.create_model(name, **SMALL).state_dict()  # with the pooling it is published with
    source.update({key: torch.randn_like(value) for key, value in source.items() if "norm." in key})
    save_file(source, tmp_path / "weights.safetensors")
    vit = Classifier(name, 3, weights=tmp_path / "weights.safetensors").vit.state_dict()
    last = "norm.weight" if "norm.weight" in source else "fc_norm.weight"
    torch.testing.assert_close(vit["norm.weight"], source[last])
    torch.testing.assert_close(vit["blocks.1.mlp.fc2.weight"], source["blocks.1.mlp.fc2.weight"])


def test_several_class_tokens_have_no_bias() -> None:
    with pytest.raises(
        TagmaskError, match="beit_base_patch16_224 has a position bias for one class token only"
    ):
        MctClassifier("beit_base_patch16_224", 3)
