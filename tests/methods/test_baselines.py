"""Each map method against a few lines that share nothing with it but the classifier."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import timm
import torch

from tagmask.acr.localize import acr, localize, localize_both
from tagmask.errors import TagmaskError
from tagmask.methods import METHODS, method_for
from tagmask.methods.baselines import cam_map, class_attention, grad_cam_map, rollout_map
from tagmask.methods.mctformer import mct
from tagmask.methods.relevance import carry, relevance
from tagmask.methods.trace import class_trace
from tagmask.models.classifier import Classifier
from tagmask.models.mct import MctClassifier
from tests.acr.independent import by_hooks, distance, lively
from tests.helpers import tiny_classifier

Array = npt.NDArray[np.float64]
CLASSES = [[2, 0], [1]]
COMPARED = ["weighted", "cam", "ts_cam", "grad_cam", "generic", "legrad", "rollout"]


@pytest.fixture(
    params=["tagmask_tiny", "deit_tiny_distilled_patch16_224", "vit_small_patch14_reg4_dinov2"],
    scope="module",
)
def model(request: pytest.FixtureRequest) -> Classifier:
    if request.param == "tagmask_tiny":
        return tiny_classifier().double().eval()
    torch.manual_seed(0)
    return lively(Classifier(request.param, 3))


@pytest.fixture(scope="module")
def images(model: Classifier) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.rand(2, 3, 3 * model.patch_size, 4 * model.patch_size, dtype=torch.float64)


def matrices(model: Classifier, image: torch.Tensor, label: int) -> tuple[list[Array], list[Array]]:
    """Attention and its gradients of every block, (heads, N, N) each."""
    attention, gradients = by_hooks(model, image[None], torch.tensor([[label]]))
    return [one[0].numpy() for one in attention], [one[0, 0].numpy() for one in gradients]


def expected_weighted(model: Classifier, image: torch.Tensor, label: int) -> Array:
    """Of the last two blocks, one head and one patch after the other."""
    star = np.zeros(12)
    for attention, gradient in list(zip(*matrices(model, image, label), strict=True))[-2:]:
        for head in range(len(attention)):
            for patch in range(12):
                key = model.prefix + patch
                star[patch] += max(attention[head, 0, key] * gradient[head, 0, key], 0) / len(
                    attention
                )
    return star


def expected_cam(model: Classifier, image: torch.Tensor, label: int) -> Array:
    with torch.no_grad():
        tokens = model.vit.forward_features(image[None])[0, model.prefix :]
        heads = [model.vit.head, *([model.vit.head_dist] if model.prefix == 2 else [])]
        scores = torch.stack(
            [head(tokens)[:, label] - head.bias[label] for head in heads]
        )  # a logit without bias
    return np.asarray(scores.mean(0).clamp(min=0))


def expected_ts_cam(model: Classifier, image: torch.Tensor, label: int) -> Array:
    looked_at = np.zeros(12)
    for attention in matrices(model, image, label)[0]:
        for head in attention:
            looked_at += head[0, model.prefix :] / len(attention)
    return expected_cam(model, image, label) * looked_at


def expected_grad_cam(model: Classifier, image: torch.Tensor, label: int) -> Array:
    entering: list[torch.Tensor] = []
    hook = model.blocks[-2].register_forward_hook(lambda _block, _inputs, out: entering.append(out))
    logit = model(image[None])[0, label]
    hook.remove()
    gradient = torch.autograd.grad(logit, entering[0])[0][0, model.prefix :].numpy()  # (n, D)
    tokens = entering[0][0, model.prefix :].detach().numpy()
    return np.asarray(np.maximum(tokens @ gradient.mean(axis=0), 0))


def expected_generic(model: Classifier, image: torch.Tensor, label: int) -> Array:
    relevance = np.eye(12 + model.prefix)
    for attention, gradient in zip(*matrices(model, image, label), strict=True):
        relevance = relevance + np.maximum(attention * gradient, 0).mean(axis=0) @ relevance
    return relevance[0, model.prefix :]


def expected_legrad(model: Classifier, image: torch.Tensor, label: int) -> Array:
    """The last block of a network that ends behind it, for every block."""
    star = np.zeros(12)
    for depth in range(1, len(model.blocks) + 1):
        short = copy.deepcopy(model)
        short.vit.blocks = short.vit.blocks[:depth]
        gradient = matrices(short, image, label)[1][-1]  # (heads, N, N)
        star += np.maximum(gradient, 0).mean(axis=(0, 1))[model.prefix :]
    return star


def expected_rollout(model: Classifier, image: torch.Tensor, label: int) -> Array:
    flow = np.eye(12 + model.prefix)
    for attention in matrices(model, image, label)[0]:
        mixed = attention.mean(axis=0) + np.eye(12 + model.prefix)
        flow = mixed / mixed.sum(axis=1, keepdims=True) @ flow
    return flow[0, model.prefix :]


EXPECTED: dict[str, Callable[[Classifier, torch.Tensor, int], Array]] = {
    "weighted": expected_weighted,
    "cam": expected_cam,
    "ts_cam": expected_ts_cam,
    "grad_cam": expected_grad_cam,
    "generic": expected_generic,
    "legrad": expected_legrad,
    "rollout": expected_rollout,
}


@pytest.mark.parametrize("name", COMPARED)
def test_maps(name: str, model: Classifier, images: torch.Tensor) -> None:
    found = localize(model, images, CLASSES, METHODS[name].maps, affinity=False)
    assert [one.shape for one in found] == [(2, 3, 4), (1, 3, 4)]
    assert torch.cat(found).max() > torch.cat(found).min() >= 0
    for image, maps, classes in zip(images, found, CLASSES, strict=True):
        assert not maps.requires_grad
        for one, label in zip(maps, classes, strict=True):
            expected = EXPECTED[name](model, image, label).reshape(3, 4)
            np.testing.assert_allclose(
                one.numpy(), expected, rtol=1e-9, atol=1e-12 * expected.max()
            )


@pytest.mark.parametrize(
    "name", ["beit_base_patch16_224", "vit_small_patch16_dinov3", "eva02_tiny_patch14_224"]
)
def test_generic_with_biases_and_rotations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create, small = timm.create_model, {"depth": 3, "embed_dim": 48, "num_heads": 3}
    monkeypatch.setattr(
        timm, "create_model", lambda name, **options: create(name, **{**options, **small})
    )
    torch.manual_seed(0)
    model = lively(Classifier(name, 3))
    images = torch.rand(2, 3, 3 * model.patch_size, 4 * model.patch_size, dtype=torch.float64)
    maps = localize(model, images, CLASSES, METHODS["generic"].maps, affinity=False)
    for image, found, classes in zip(images, maps, CLASSES, strict=True):
        for one, label in zip(found, classes, strict=True):
            np.testing.assert_allclose(
                one.flatten().numpy(), expected_generic(model, image, label), rtol=1e-9
            )


def test_generic_is_what_kept_matrices_give() -> None:
    model, classes = tiny_classifier().double().eval(), torch.tensor([[2, 0], [1, -1]])
    images = torch.rand(2, 3, 32, 40, dtype=torch.float64)
    maps, trace = (
        METHODS["generic"].maps(model, images, classes, range(1, 3)),
        class_trace(model, images, classes),
    )
    row = torch.eye(21, dtype=torch.float64)[:1].expand(2, 2, 1, 21)
    for heads, gradient in zip(reversed(trace.attention), reversed(trace.gradients), strict=True):
        row = row + row @ (gradient * heads.unsqueeze(1)).relu().mean(dim=2)  # (B, K, 1, N)
    assert distance(maps.plain[0], row[0, :, 0, 1:]) < 1e-9
    assert distance(maps.plain[1, 0], row[1, 0, 0, 1:]) < 1e-9
    assert maps.plain[1, 1].abs().max() == 0  # padding
    assert not maps.plain.requires_grad
    for mean, expected in zip(maps.attention, trace.means(model, range(1, 3)), strict=True):
        assert distance(mean, expected) < 1e-6
    with torch.inference_mode():
        again = METHODS["generic"].maps(model, images.clone(), classes, range(0))
    assert distance(again.plain, maps.plain) < 1e-6


@pytest.mark.parametrize("name", ["cam", "grad_cam"])
def test_relu_has_something_to_do(name: str, model: Classifier, images: torch.Tensor) -> None:
    maps = localize(model, images, [[0, 1, 2], [0, 1, 2]], METHODS[name].maps, affinity=False)
    zeros = (torch.cat(maps) == 0).double().mean()
    assert 0.1 < zeros < 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("blocks", "transpose"), [(None, False), (range(1, 4), True)])
@pytest.mark.parametrize("name", COMPARED)
def test_refinement(
    name: str, blocks: range | None, transpose: bool, model: Classifier, images: torch.Tensor
) -> None:
    method = METHODS[name].maps
    plain, refined = localize_both(
        model, images, CLASSES, method, affinity_blocks=blocks, transpose=transpose
    )
    for image, before, after in zip(images, plain, refined, strict=True):
        attention, _ = matrices(model, image, 0)
        chosen = attention if blocks is None else [attention[i] for i in blocks]
        weight = sum(one.mean(axis=0)[model.prefix :, model.prefix :] for one in chosen)  # (n, n)
        for one, maps in zip(before.flatten(1).numpy(), after.flatten(1).numpy(), strict=True):
            np.testing.assert_allclose(maps, one @ weight if transpose else weight @ one, rtol=1e-9)


def test_the_registry() -> None:
    assert list(METHODS) == [
        "acr",
        "weighted",
        "generic",
        "grad_cam",
        "cam",
        "ts_cam",
        "legrad",
        "rollout",
        "mct",
    ]
    assert [name for name, method in METHODS.items() if not method.batched] == ["legrad"]
    assert method_for(tiny_classifier(), "acr").maps is acr
    assert method_for(tiny_mct(), "acr").maps is mct
    assert method_for(tiny_mct(), "cam").maps is METHODS["cam"].maps  # refused when it is called
    with pytest.raises(
        TagmaskError, match="there is no map method 'magic'; choose from acr, weighted, generic"
    ):
        method_for(tiny_classifier(), "magic")


@pytest.mark.parametrize("name", [name for name in METHODS if name != "mct"])
@pytest.mark.parametrize("classes", [1, 3])
def test_an_mctformer_has_its_own_maps_only(name: str, classes: int) -> None:
    with pytest.raises(TagmaskError, match=r"need a classifier with one class token.*--kind acr"):
        localize(tiny_mct(classes), torch.rand(1, 3, 32, 40), [[0]], METHODS[name].maps)


def test_maps_of_an_mctformer_need_one() -> None:
    with pytest.raises(
        TagmaskError, match="needs a class token for each class; train one with --kind mct"
    ):
        localize(tiny_classifier(), torch.rand(1, 3, 32, 40), [[0]], mct)


def tiny_mct(classes: int = 3) -> MctClassifier:
    return MctClassifier("tagmask_tiny", classes)


@pytest.mark.parametrize(
    ("name", "takes"), [("acr", {"layers", "centre"}), ("weighted", {"layers"}), ("cam", set())]
)
def test_options_that_a_method_does_not_know_are_refused(name: str, takes: set[str]) -> None:
    model, images = tiny_classifier(), torch.rand(1, 3, 32, 40)
    options: dict[str, Any] = {"layers": 1, "centre": True}
    for option, value in options.items():
        if option in takes:
            assert localize(model, images, [[0]], METHODS[name].maps, **{option: value})[
                0
            ].shape == (1, 4, 5)
            continue
        with pytest.raises(
            TagmaskError, match=f"{option} is not an option of the map method {name}; leave it out"
        ):
            localize(model, images, [[0]], METHODS[name].maps, **{option: value})


@pytest.mark.parametrize("layers", [1, 3])
def test_weighted_maps_of_other_blocks(layers: int) -> None:
    model, images = tiny_classifier().double().eval(), torch.rand(1, 3, 24, 32, dtype=torch.float64)
    attention, gradients = matrices(model, images[0], 1)
    star = sum(
        np.maximum(a * g, 0).mean(0)[0, 1:]
        for a, g in zip(attention[-layers:], gradients[-layers:], strict=True)
    )
    maps = localize(model, images, [[1]], METHODS["weighted"].maps, affinity=False, layers=layers)
    np.testing.assert_allclose(maps[0].flatten(), star, rtol=1e-9)


def test_cam_by_hand() -> None:
    features = torch.tensor([[[1.0, 2.0], [3.0, -1.0]]])  # two patches
    weight = torch.tensor([[[2.0, -1.0], [-1.0, 0.0]]])  # two classes
    assert cam_map(features, weight).tolist() == [[[0, 7], [0, 0]]]


def test_grad_cam_by_hand() -> None:
    tokens = torch.tensor([[[1.0, 2.0], [3.0, -1.0]]])  # two patches
    gradients = torch.tensor([[[[4.0, 0.0], [0.0, -2.0]]]])  # mean (2, −1)
    assert grad_cam_map(tokens, gradients).tolist() == [[[0, 7]]]


def test_class_attention_by_hand() -> None:
    one = torch.zeros(1, 3, 3)  # class token and two patches
    one[0, 0] = torch.tensor([0.5, 0.2, 0.3])
    torch.testing.assert_close(class_attention([one, one]), torch.tensor([[0.4, 0.6]]))


def test_generic_by_hand() -> None:
    """Head 0 gains (∇A ⊙ A)[0, 1] = 4, head 1 loses 6: Ā[0, 1] = 2. Twice R ← R + ĀR: 2, then 4."""
    attention, gradient = torch.full((1, 2, 2, 2), 1.0), torch.zeros(1, 2, 2, 2)
    gradient[0, :, 0, 1] = torch.tensor([4.0, -6.0])
    row = carry(torch.tensor([[[1.0, 0.0]]]), attention, gradient)
    assert row.tolist() == [[[1, 2]]]
    assert carry(row, attention, gradient).tolist() == [[[1, 4]]]
    assert carry(row, attention[:, :, :1], gradient[:, :, :1]).tolist() == [
        [[1, 4]]
    ]  # of the first token only


def test_rollout_by_hand() -> None:
    """Block 1 sends all to the patch, block 2 half: ½(½, ½) + ½(1, 0) = (¾, ¼), then ¾·½ + ¼·1 = ⅝ at the patch."""
    first = torch.tensor([[[0.0, 1.0], [0.0, 1.0]]])
    second = torch.tensor([[[0.5, 0.5], [0.5, 0.5]]])
    assert rollout_map([first, second], prefix=1).tolist() == [[0.625]]
    assert rollout_map([second, first], prefix=1).tolist() == [[0.5]]


@pytest.mark.parametrize("name", COMPARED)
def test_no_images_have_no_maps(name: str) -> None:
    model = tiny_classifier()
    images = torch.rand(0, 3, 32, 40)
    assert localize_both(model, images, [], METHODS[name].maps) == ([], [])
    assert localize(model, images, [], METHODS[name].maps, affinity=False) == []


def test_relevance_of_no_images() -> None:
    model = tiny_classifier()
    classes = torch.zeros(0, 2, dtype=torch.long)
    maps, attention = relevance(model, torch.rand(0, 3, 32, 40), classes, range(1, 3))
    patches = 4 * 5
    assert maps.shape == (0, 2, patches)
    assert [mean.shape for mean in attention] == [(0, 1 + patches, 1 + patches)] * 2


@pytest.mark.parametrize("name", COMPARED)
def test_bad_input(name: str) -> None:
    model, images, method = tiny_classifier(), torch.rand(1, 3, 32, 40), METHODS[name].maps
    with pytest.raises(
        TagmaskError, match=r"blocks range\(3, 7\) do not exist; tagmask_tiny has blocks 0 to 3"
    ):
        localize(model, images, [[0]], method, affinity_blocks=range(3, 7))
    with pytest.raises(
        TagmaskError, match="class 3 does not exist; this model knows classes 0 to 2"
    ):
        localize(model, images, [[3]], method)
    with pytest.raises(TagmaskError, match="33×40 pixels"):
        localize(model, torch.rand(1, 3, 33, 40), [[0]], method)
