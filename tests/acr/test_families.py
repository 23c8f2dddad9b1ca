"""The shortcut on every kind of block that it knows, and a table of what tagmask makes of timm's families."""

import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from tagmask.acr.attention import attend_per_head, record_attention
from tagmask.acr.gradients import class_rows, why_no_shortcut
from tagmask.acr.localize import pad_classes
from tagmask.errors import TagmaskError
from tagmask.models.classifier import Classifier
from tests.acr.independent import by_hooks, distance, lively

PAGE = Path(__file__).parents[2] / "docs/reference/backbones.md"
SMALL = {"depth": 3, "embed_dim": 96, "num_heads": 3}
KINDS: dict[str, dict[str, Any]] = {  # a name of timm's, and what makes it small
    "vit_small_patch16_dinov3": {"depth": 3},  # rotary positions, registers, LayerScale
    "vit_tiny_patch16_dinov3_qkvb": {"depth": 3},
    "eva02_tiny_patch14_224": {
        "depth": 3
    },  # absolute and rotary positions, SwiGLU, separate projections
    "eva02_enormous_patch14_clip_224": {**SMALL, "mlp_ratio": 2},  # norms after attention and MLP
    "vit_pe_core_tiny_patch16_384": {
        "depth": 3
    },  # pooled by attention unless asked for the class token
    "vit_pe_spatial_tiny_patch16_512": {"depth": 3},
    "vit_small_patch16_rope_mixed_224": SMALL,  # other rotations in every block
    "vit_base_patch16_sapiens2": {
        **SMALL,
        "num_heads": 4,
        "num_kv_heads": 2,
    },  # two heads share keys and values
    "beit_base_patch16_224": SMALL,  # a position bias in every block
    "vit_relpos_medium_patch16_cls_224": SMALL,  # made by a small network
    "vit_relpos_base_patch16_clsgap_224": {**SMALL, "rel_pos_type": "bias"},
    "vit_base_patch16_xp_224": SMALL,  # attention and MLP side by side
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model

    def create_small(name: str, **options: Any) -> Any:
        return create(name, **{**KINDS.get(name, {}), **options})

    monkeypatch.setattr(timm, "create_model", create_small)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("layers", [1, 2])
def test_shortcut_is_plain_autograd_is_one_backward_per_class(name: str, layers: int) -> None:
    torch.manual_seed(0)
    model = lively(Classifier(name, 4))
    assert why_no_shortcut(model) == ""
    images = torch.rand(2, 3, 2 * model.patch_size, 3 * model.patch_size, dtype=torch.float64)
    classes = pad_classes([[0, 3], [2]])
    short = class_rows(model, images, classes, layers, range(3))
    exact = class_rows(model, images, classes, layers, range(3), exact_graph=True)
    matrices, gradients = by_hooks(model, images, classes)
    means = [model.without_extra_tokens(matrix.mean(1)) for matrix in matrices]
    of_patches = [gradient[..., 0, model.prefix :] for gradient in gradients[-layers:]]
    rows = [matrix[..., 0, model.prefix :] for matrix in matrices[-layers:]]
    for actual in (short, exact):
        pairs = [(actual.attention, means), (actual.gradients, of_patches), (actual.rows, rows)]
        assert (
            max(distance(a, b) for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True))
            < 1e-9
        )
        torch.testing.assert_close(actual.logits, model(images))
    assert min(gradient.abs().max() for gradient in short.gradients) > 1e-6


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", [*KINDS, "deit_tiny_distilled_patch16_224", "tagmask_tiny"])
@pytest.mark.parametrize(
    ("blocks", "checkpoint"),
    [(range(3), False), (range(3), True), (range(2), False), (None, False)],
)
def test_a_training_in_which_only_class_tokens_leave_the_last_block(
    name: str, blocks: range | None, checkpoint: bool
) -> None:
    """Logits, attention and the gradient of every weight are those of the network as timm runs it."""
    torch.manual_seed(0)
    is_drawn_twice = "relpos" in name  # the position bias has a dropout of its own
    model = lively(Classifier(name, 4, drop_path=0.0 if is_drawn_twice else 0.3)).train()
    images = torch.rand(2, 3, 2 * model.patch_size, 3 * model.patch_size, dtype=torch.float64)
    weights = [parameter for parameter in model.vit.parameters() if parameter.requires_grad]
    leaving: list[int] = []  # tokens that reach the final norm
    model.vit.norm.register_forward_hook(lambda *parts: leaving.append(parts[2].shape[1]))

    def losses(by_timm: bool) -> list[torch.Tensor | None]:
        torch.manual_seed(1)  # of the stochastic depth
        if by_timm:
            with record_attention([model.blocks[i] for i in blocks or ()]) as attention:
                logits = model.vit(images)
        else:
            whole = blocks is None
            recorded = (
                (model.branches(images), [])
                if whole
                else model.attend_branches(images, blocks, checkpoint)
            )
            logits, attention = recorded[0][:, 0], recorded[1]
        attention = [model.without_extra_tokens(mean) if by_timm else mean for mean in attention]
        loss = logits.square().sum() + sum(
            (i + 1) * mean.square().sum() for i, mean in enumerate(attention)
        )
        return [logits, *attention, *torch.autograd.grad(loss, weights, allow_unused=True)]

    expected, actual = losses(True), losses(False)
    places = 2 if "distilled" in name else 1
    assert set(leaving) == {model.prefix + 6, places}
    assert len(expected) == len(actual)
    for theirs, ours in zip(expected, actual, strict=True):
        assert (theirs is None) == (ours is None)
        if theirs is not None and ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    assert not any("forward" in block.__dict__ for block in model.blocks)  # nothing is left behind


SIZES = {
    *(
        "tiny",
        "xsmall",
        "small",
        "plus",
        "dwee",
        "dpwee",
        "pwee",
        "wee",
        "dlittle",
        "little",
        "medium",
        "mediumd",
    ),
    *(
        "betwixt",
        "base",
        "large",
        "huge",
        "giant",
        "giantopt",
        "gigantic",
        "enormous",
        "so150m",
        "so150m2",
        "so400m",
    ),
    *("intern300m", "1b", "3b", "5b", "7b"),
}
VITS = [
    "beit",
    "deit",
    "eva",
    "vision_transformer",
    "vision_transformer_hybrid",
    "vision_transformer_relpos",
]
OTHERS = [
    "cait",
    "coat",
    "convit",
    "crossvit",
    "levit",
    "mvitv2",
    "naflexvit",
    "pit",
    "tnt",
    "volo",
    "xcit",
]


def families() -> dict[str, str]:
    """Names without sizes: the first model of that name. Modules other than ViTs are one family each."""
    first = {module: timm.list_models(module=module)[0] for module in OTHERS}
    for name in [name for module in VITS for name in timm.list_models(module=module)]:
        kept = [
            part
            for part in name.split("_")
            if part not in SIZES and not re.fullmatch(r"(patch)?\d+", part)
        ]
        first.setdefault("_".join(kept), name)
    return {
        **first,
        "mvitv2": "mvitv2_base_cls",
        "vit_pe_lang": "vit_pe_lang_large_patch14_448",
    }  # have a class token


def verdict(name: str) -> str:
    """What tagmask makes of a model: its maps by shortcut or autograd, or a refusal; empty without a class token."""
    with torch.device("meta"):  # shapes without numbers
        try:
            model = Classifier(name, 3)
        except TagmaskError as error:
            parts = [part for part, _ in timm.create_model(name).named_parameters()]
            has_token = "has no class token" not in str(error) and any(
                "cls_token" in part for part in parts
            )
            return "refused" if has_token else ""
        try:
            with torch.no_grad(), record_attention(model.blocks, attend_per_head):
                model(torch.rand(1, 3, 2 * model.patch_size, 3 * model.patch_size))
        except TagmaskError:
            return "refused"
    return "autograd" if why_no_shortcut(model) else "shortcut"


@pytest.mark.slow
def test_the_table_of_families(monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model

    def shallow(name: str, **options: Any) -> Any:
        try:
            return create(name, depth=2, **options)
        except (TypeError, AssertionError, ValueError):
            return create(name, **options)

    monkeypatch.setattr(timm, "create_model", shallow)
    verdicts = {family: verdict(name) for family, name in families().items()}
    written = dict(
        re.findall(
            r"^\| `([a-z0-9_]+)` \|[^|]*\| (\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    assert written == {family: answer for family, answer in verdicts.items() if answer}
