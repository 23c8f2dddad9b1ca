"""Training a classifier: the loss, resuming, many processes, broken images."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tagmask.acr.views import HorizontalFlip, Identity, Resize, parse_view
from tagmask.config.presets import MCT_RECIPE
from tagmask.data.catalog import Catalog
from tagmask.data.datasets import TagDataset
from tagmask.data.open import open_catalog
from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import TagmaskError
from tagmask.models.classifier import Classifier
from tagmask.training.classifier import ClassifierTask, TwoViews
from tagmask.training.loop import Loop
from tests.alone import train
from tests.helpers import kill_once, process_of, silent_command, tiny_classifier, tiny_settings

FLAGS = [
    "--preset",
    "scenes",
    "--count",
    "24",
    "--size",
    "32",
    "--batch",
    "4",
    "--log-every",
    "1",
    "--warmup",
    "2",
    "--val-every",
    "1",
]


def final(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "1_classifier" / "model.safetensors")


def assert_identical(first_run: Path, second_run: Path) -> None:
    first, second = final(first_run), final(second_run)
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


def test_loss_is_the_sum_of_its_parts_by_another_path(tmp_path: Path) -> None:
    model = tiny_classifier().eval()
    images, targets = torch.rand(2, 3, 32, 32), torch.tensor([[1.0, 0, 1], [0, 1, 0]])
    losses = TwoViews(model, HorizontalFlip(), tiny_settings(tmp_path, alpha=50, beta=70))(
        images, targets
    )
    first, attention = model(model.normalize(images), return_attention=True)
    second, other = model(model.normalize(images.flip(-1)), return_attention=True)
    grid = attention[..., 1:, 1:].reshape(2, 4, 4, 4, 4, 4)
    turned = other[..., 1:, 1:].reshape(2, 4, 4, 4, 4, 4).flip(3, 5)
    affinity = (grid - turned).abs().mean()
    row = attention[..., 0, 1:].reshape(2, 4, 4, 4) - other[..., 0, 1:].reshape(2, 4, 4, 4).flip(-1)
    classes = sum(
        F.binary_cross_entropy_with_logits(logits, targets) for logits in (first, second)
    )  # the soft margin loss is the mean cross entropy
    expected = classes + 16 / 576 * (50 * row.abs().mean() + 70 * affinity)
    assert losses["loss"].item() == pytest.approx(expected.item(), rel=1e-5)
    assert losses["affinity"].item() == pytest.approx(affinity.item(), rel=1e-5)
    assert losses["affinity"].item() > 1e-4


def test_views_of_another_size_run_apart(tmp_path: Path) -> None:
    model = tiny_classifier().eval()
    settings = tiny_settings(tmp_path)
    images, targets = torch.rand(1, 3, 32, 48), torch.zeros(1, 3)
    losses = TwoViews(model, Resize(0.5, patch=8), settings)(images, targets)
    _, attention = model(model.normalize(images), return_attention=True)
    small = Resize(0.5, patch=8).apply(images)
    _, other = model(model.normalize(small), return_attention=True)
    restored = Resize(0.5, patch=8).restore(other, (4, 6))
    assert losses["activation"].item() == pytest.approx(
        (attention - restored)[..., 0, 1:].abs().mean().item(), rel=1e-5
    )


@pytest.mark.parametrize(
    "view",
    ["none", "hflip+vflip", "rotate", "rotate90", "hflip+resize0.5", "hflip+hide", "hflip+gray"],
)
def test_the_gradient_of_every_view_predicts_the_change_of_the_loss(
    view: str, tmp_path: Path
) -> None:
    model = tiny_classifier().double()
    module = TwoViews(
        model, parse_view(view, 8), tiny_settings(tmp_path, view=view, alpha=50, beta=70)
    )
    assert_gradient_predicts_loss(
        module, torch.rand(2, 3, 32, 32).double(), torch.ones(2, 3).double()
    )


def assert_gradient_predicts_loss(
    module: TwoViews, images: torch.Tensor, targets: torch.Tensor
) -> None:
    """loss(w − t·g) = loss(w) − t·|g|² for a small t, for the total loss and for what is compared alone."""

    def losses() -> dict[str, torch.Tensor]:
        torch.manual_seed(3)  # the same rotation, the same hidden patches
        return module(images, targets)  # type: ignore[no-any-return]

    weights = [weight for weight in module.parameters() if weight.requires_grad]
    for name in ("loss", "affinity"):
        before = losses()
        gradients = torch.autograd.grad(before[name], weights, allow_unused=True)
        square = sum(float((gradient**2).sum()) for gradient in gradients if gradient is not None)
        assert square > 0 or (
            name == "affinity" and before[name] == 0
        )  # the same image twice has distance 0
        step = 1e-6 / max(square, 1e-12) ** 0.5
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                if gradient is not None:
                    weight.sub_(step * gradient)
        assert (before[name] - losses()[name]).item() == pytest.approx(
            step * square, rel=1e-3, abs=1e-13
        )


def test_no_attention_is_recorded_without_consistency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_classifier()
    monkeypatch.setattr(type(model), "attend_branches", None)
    losses = TwoViews(model, HorizontalFlip(), tiny_settings(tmp_path, alpha=0, beta=0))(
        torch.rand(1, 3, 32, 32), torch.ones(1, 3)
    )
    assert losses["affinity"].item() == 0


def test_without_view_and_consistency_images_are_seen_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is that of one pass; the paper's baseline sees both views."""
    model = tiny_classifier().eval()
    images, targets = torch.rand(2, 3, 32, 32), torch.tensor([[1.0, 0, 1], [0, 1, 0]])
    settings = tiny_settings(tmp_path, alpha=0, beta=0, view="none")
    seen = []
    plain = type(model).branches

    def branches(self: Classifier, batch: torch.Tensor) -> torch.Tensor:
        seen.append(len(batch))
        return plain(self, batch)

    monkeypatch.setattr(type(model), "branches", branches)
    losses = TwoViews(model, Identity(), settings)(images, targets)
    assert seen == [2]
    expected = F.binary_cross_entropy_with_logits(model(model.normalize(images)), targets)
    assert losses["loss"].item() == pytest.approx(expected.item(), rel=1e-6)
    assert losses["activation"] == losses["affinity"] == 0
    losses["loss"].backward()
    seen.clear()
    TwoViews(model, HorizontalFlip(), tiny_settings(tmp_path, alpha=0, beta=0))(images, targets)
    assert seen == [4]


def test_no_consistency_without_a_second_view(tmp_path: Path) -> None:
    assert tiny_settings(tmp_path, alpha=0, beta=0, view="none").mistakes() == []
    (mistake,) = tiny_settings(tmp_path, alpha=1, beta=0, view="none").mistakes()
    assert "give --view hflip, or --alpha 0 --beta 0" in mistake


def test_training_learns_and_leaves_its_files(tmp_path: Path) -> None:
    trained = train(tiny_settings(tmp_path, steps=30, count=40, batch=8, lr=1e-3))
    rows = [json.loads(line) for line in (trained.folder / "log.jsonl").read_text().splitlines()]
    losses = [row["classes"] for row in rows if "classes" in row]
    assert len(losses) == 30
    assert np.mean(losses[-5:]) < np.mean(losses[:3]) - 0.1
    assert any("map" in row for row in rows)
    names = {file.name for file in trained.folder.iterdir()}
    assert names == {"model.safetensors", "config.json", "log.jsonl", "resume.safetensors", "best"}
    assert 'backbone = "tagmask_tiny"' in (tmp_path / "config.toml").read_text()
    assert "validation mAP" in trained.summary()


def test_same_seed_same_weights_other_seed_other_weights(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(tiny_settings(tmp_path / name, seed=seed, steps=3, view="hflip+hide"))
    assert_identical(tmp_path / "a", tmp_path / "b")
    assert not torch.equal(
        final(tmp_path / "a")["head.weight"], final(tmp_path / "c")["head.weight"]
    )


@pytest.mark.parametrize(
    "options", [{}, {"optimizer": "sgd", "lr": 0.01, "ema": 0.9, "accumulate": 2, "view": "rotate"}]
)
def test_stopped_after_any_step_and_resumed_is_bit_identical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    train(tiny_settings(tmp_path / "whole", **options))
    plain = Loop._one_step

    def dying(self: Loop, step: int, batches: Any) -> dict[str, float]:
        if step in dies_at:
            dies_at.remove(step)
            raise KeyboardInterrupt
        return plain(self, step, batches)

    monkeypatch.setattr(Loop, "_one_step", dying)
    dies_at = [1, 3, 4]
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            train(tiny_settings(tmp_path / "parts", save_every=1, **options))
    train(tiny_settings(tmp_path / "parts", save_every=1, **options))
    assert_identical(tmp_path / "whole", tmp_path / "parts")
    steps = [
        json.loads(line)
        for line in (tmp_path / "parts/1_classifier/log.jsonl").read_text().splitlines()
    ]
    assert [row["step"] for row in steps if "lr" in row] == [1, 2, 3, 4, 5, 6]


def test_sigkill_and_resume_is_bit_identical(tmp_path: Path) -> None:
    words = ["train", *FLAGS, "--steps", "12", "--save-every", "2", "--out"]
    whole = process_of(silent_command, [*words, str(tmp_path / "whole")])
    whole.start()
    log = tmp_path / "killed/1_classifier/log.jsonl"
    is_amid = lambda: log.exists() and log.read_text().count('"lr"') >= 5  # noqa: E731
    kill_once(is_amid, silent_command, [*words, str(tmp_path / "killed")])
    resumed = process_of(silent_command, [*words, str(tmp_path / "killed")])
    resumed.start()
    for process in (whole, resumed):
        process.join()
        assert process.exitcode == 0
    assert_identical(tmp_path / "whole", tmp_path / "killed")


def test_two_processes_give_the_gradients_of_one(tmp_path: Path) -> None:
    # one step of plain SGD with lr 1: the change of the weights is the gradient
    flags = "--steps 1 --optimizer sgd --lr 1 --momentum 0 --weight-decay 0 --clip 0 --warmup 0 --alpha 100 --beta 100"
    command = ["tagmask", "train", *FLAGS, *flags.split(), "--out"]
    one = process_of(silent_command, [*command[1:], str(tmp_path / "one")])
    one.start()
    launch = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes",
        "2",
    ]
    launch += [
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
        "--main_process_port",
        "0",
    ]
    launch += ["-m", *command, str(tmp_path / "two")]
    done = subprocess.run(launch, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("classifier:") == 1  # one of the processes speaks
    one.join()
    assert one.exitcode == 0
    single, pair = final(tmp_path / "one"), final(tmp_path / "two")
    torch.manual_seed(0)
    start = initial_weights(tmp_path)
    for name in single:
        torch.testing.assert_close(single[name], pair[name], rtol=1e-4, atol=1e-6)
    assert (single["head.weight"] - start["head.weight"]).abs().max() > 1e-3


def initial_weights(tmp_path: Path) -> dict[str, torch.Tensor]:
    settings = tiny_settings(tmp_path)
    training, val = open_catalog(settings.run).split(settings.val_fraction, settings.seed)
    weights: dict[str, torch.Tensor] = ClassifierTask(
        training, val, settings.own, settings.run
    ).classifier.vit.state_dict()
    return weights


def test_accumulated_parts_give_the_joint_gradient(tmp_path: Path) -> None:
    plain = {"steps": 1, "optimizer": "sgd", "lr": 1.0, "momentum": 0.0, "clip": 0.0, "warmup": 0}
    train(tiny_settings(tmp_path / "joint", **plain))
    train(tiny_settings(tmp_path / "parts", accumulate=4, **plain))
    for name, value in final(tmp_path / "joint").items():
        torch.testing.assert_close(value, final(tmp_path / "parts")[name], rtol=1e-4, atol=1e-6)


def test_average_of_weights_by_hand(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "optimizer": "sgd",
        "lr": 0.1,
        "momentum": 0.0,
        "power": 1.0,
        "warmup": 0,
    }
    start = initial_weights(tmp_path)["head.weight"]
    train(tiny_settings(tmp_path / "plain", steps=1, **options))
    train(tiny_settings(tmp_path / "average", steps=1, ema=0.75, **options))
    after = final(tmp_path / "plain")["head.weight"]
    torch.testing.assert_close(
        final(tmp_path / "average")["head.weight"], 0.75 * start + 0.25 * after
    )


def test_frozen_blocks_do_not_move(tmp_path: Path) -> None:
    start = initial_weights(tmp_path)
    train(tiny_settings(tmp_path, freeze=2, weight_decay=0.5))
    moved = {name for name, value in final(tmp_path).items() if not torch.equal(value, start[name])}
    assert all(name.startswith(("blocks.2", "blocks.3", "norm.", "head.")) for name in moved)
    assert "blocks.2.attn.qkv.weight" in moved


def test_mixed_precision_trains(tmp_path: Path) -> None:
    trained = train(tiny_settings(tmp_path, precision="bf16", steps=2))
    assert np.isfinite(trained.metrics["val_loss"])


def test_tensorboard_events_can_be_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained = train(tiny_settings(tmp_path, tensorboard=True, steps=2))
    events = EventAccumulator(str(trained.folder / "tensorboard"))
    events.Reload()
    rows = [json.loads(line) for line in (trained.folder / "log.jsonl").read_text().splitlines()]
    logged = [row["loss"] for row in rows if "loss" in row]
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(logged, rel=1e-5)


def test_other_settings_do_not_mix_with_an_earlier_training(tmp_path: Path) -> None:
    train(tiny_settings(tmp_path, steps=2, lr=0.002))
    with pytest.raises(TagmaskError, match=r"lr was 0\.002 and is now 0\.5.*--restart"):
        train(tiny_settings(tmp_path, steps=2, lr=0.5))
    train(tiny_settings(tmp_path, steps=2, lr=0.001, restart=True))


def test_a_setting_that_is_left_out_is_another(tmp_path: Path) -> None:
    train(tiny_settings(tmp_path, steps=2))
    with pytest.raises(TagmaskError, match=r"steps was 2 and is now the default.*--restart"):
        train(tiny_settings(tmp_path, steps=None, epochs=1))


def test_a_restart_forgets_the_resume_point_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny_settings(tmp_path, steps=2))
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_train", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(tiny_settings(tmp_path, steps=2, restart=True))
    assert not (tmp_path / "1_classifier/resume.safetensors").exists()
    train(tiny_settings(tmp_path, steps=2))
    rows = [
        json.loads(line) for line in (tmp_path / "1_classifier/log.jsonl").read_text().splitlines()
    ]
    assert [row["step"] for row in rows if "loss" in row] == [
        1,
        2,
    ]  # trained again, not found finished


def test_no_validation_image_can_be_read(tmp_path: Path) -> None:
    for i in range(6):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.new("RGB", (40, 40), (40 * i, 90, 20)).save(tmp_path / f"photos/{i}.png")
    (tmp_path / "tags.csv").write_text(
        "file,tags\n" + "".join(f"{i}.png,{'ab'[i % 2]}\n" for i in range(6))
    )
    data = {"data": "folder", "images": tmp_path / "photos", "tags": tmp_path / "tags.csv"}
    options = tiny_settings(tmp_path / "run", steps=2, val_fraction=0.2, **data)
    _, val = open_catalog(options).split(options.val_fraction, options.seed)
    assert len(val) == 1
    (tmp_path / f"photos/{val.name(0)}.png").write_bytes(b"no picture")
    trained = train(options)
    assert "mAP" not in trained.summary()
    assert (tmp_path / "run/1_classifier/model.safetensors").is_file()


def test_finished_training_is_not_done_again(tmp_path: Path) -> None:
    train(tiny_settings(tmp_path, steps=2))
    before = (tmp_path / "1_classifier/model.safetensors").stat().st_mtime_ns
    again = train(tiny_settings(tmp_path, steps=2))
    assert (tmp_path / "1_classifier/model.safetensors").stat().st_mtime_ns == before
    assert "map" in again.metrics


def test_a_broken_resume_point_is_told(tmp_path: Path) -> None:
    train(tiny_settings(tmp_path, steps=2))
    (tmp_path / "1_classifier/resume.safetensors").write_bytes(b"half")
    with pytest.raises(TagmaskError, match=r"resume\.safetensors cannot be read.*--restart"):
        train(tiny_settings(tmp_path, steps=2))


def test_a_resume_point_of_another_network_is_told(tmp_path: Path) -> None:
    train(tiny_settings(tmp_path, steps=2))
    file = tmp_path / "1_classifier/resume.safetensors"
    with safe_open(file, framework="pt") as stored:
        about = stored.metadata()
    save_file({"module/other": torch.zeros(2)}, file, metadata=about)
    with pytest.raises(TagmaskError, match=r"resume\.safetensors is of another network.*--restart"):
        train(tiny_settings(tmp_path, steps=2))
    save_file({"module/other": torch.zeros(2)}, file, metadata={"state": "{}"})
    with pytest.raises(TagmaskError, match=r"resume\.safetensors cannot be read.*--restart"):
        train(tiny_settings(tmp_path, steps=2))


def photos(folder: Path, count: int) -> None:
    folder.mkdir()
    rows = ["file,tags"]
    for i in range(count):
        color = (200, 30, 30) if i % 2 else (30, 30, 200)
        Image.new("RGB", (40 + i, 30), color).save(folder / f"{i:03}.jpg")
        rows.append(f"{i:03}.jpg,{'red' if i % 2 else 'blue'}")
    (folder / "tags.csv").write_text("\n".join(rows))


def folder_settings(tmp_path: Path, **changes: Any) -> Any:
    images = tmp_path / "photos"
    return tiny_settings(
        tmp_path / "run", data="folder", images=images, tags=images / "tags.csv", **changes
    )


def test_broken_images_are_listed_and_skipped(tmp_path: Path) -> None:
    photos(tmp_path / "photos", 20)
    for i in (3, 8):
        (tmp_path / f"photos/{i:03}.jpg").write_bytes(b"not a photo")
    trained = train(folder_settings(tmp_path, steps=20, val_fraction=0.0))
    assert trained.broken == ["003", "008"]
    assert json.loads((trained.folder / "broken_images.json").read_text()) == ["003", "008"]
    assert "2 images could not be read and were skipped: 003, 008" in trained.summary()


def test_nothing_but_broken_images_is_an_error(tmp_path: Path) -> None:
    photos(tmp_path / "photos", 4)
    for i in range(4):
        (tmp_path / f"photos/{i:03}.jpg").write_bytes(b"")
    with pytest.raises(TagmaskError, match="images in a row cannot be used"):
        train(folder_settings(tmp_path, val_fraction=0.0))


def test_diverging_training_stops_with_advice(tmp_path: Path) -> None:
    with pytest.raises(
        TagmaskError, match=r"the loss is nan.*lower --lr|the loss is inf.*lower --lr"
    ):
        train(tiny_settings(tmp_path, optimizer="sgd", lr=1e9, clip=0.0, warmup=0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"freeze": 7}, "more than the 4 blocks"),
        ({"consistency_blocks": (2, 9)}, "blocks 0 to 3"),
        ({"size": 30}, "multiples of 8"),
    ],
)
def test_settings_that_do_not_fit_the_backbone(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(TagmaskError, match=message):
        train(tiny_settings(tmp_path, **changes))


def test_crops_by_the_long_side_keep_proportions(tmp_path: Path) -> None:
    """A circle stays a circle, at a scale between the two, with the mean colour around it."""
    size = 40
    y, x = np.mgrid[:60, :90]
    disc = np.repeat(
        (((y - 30) ** 2 + (x - 45) ** 2 < 20**2) * 255).astype(np.uint8)[..., None], 3, axis=2
    )
    (tmp_path / "disc").mkdir()
    Image.fromarray(disc).save(tmp_path / "disc/one.png")
    catalog = Catalog(["disc"], ["one"], [[0]], images=[tmp_path / "disc/one.png"])
    data = TagDataset(catalog, size, (36, 44), seed=0, fill=(0.5, 0.5, 0.5))
    samples = [data[(position, 0)]["images"] for position in range(20)]  # (3, 40, 40)
    heights = [int((sample[0] > 0.75).any(1).sum()) for sample in samples]
    widths = [int((sample[0] > 0.75).any(0).sum()) for sample in samples]
    scales = [height / 40 for height in heights]  # the disc is 39 or 40 pixels high
    assert all(abs(height - width) <= 1 for height, width in zip(heights, widths, strict=True))
    assert 36 / 90 - 0.03 < min(scales) < max(scales) < 44 / 90 + 0.03
    assert max(scales) - min(scales) > 0.03
    padded = samples[0][0].min(1).values  # rows above and below the image have one colour
    assert ((padded - 0.5).abs() < 0.01).any()


def test_random_augmentation_changes_colours_and_depends_on_the_position_alone(
    tmp_path: Path,
) -> None:
    catalog = Scenes(1)
    plain, augmented, again = (
        TagDataset(catalog, 32, 1.0, 0, augment) for augment in (False, True, True)
    )
    different = [
        not torch.equal(plain[(p, 0)]["images"], augmented[(p, 0)]["images"]) for p in range(12)
    ]
    assert sum(different) >= 8
    for position in range(4):
        assert torch.equal(augmented[(position, 0)]["images"], again[(position, 0)]["images"])
        assert (
            0
            <= augmented[(position, 0)]["images"].min()
            <= augmented[(position, 0)]["images"].max()
            <= 1
        )


def test_mctformers_recipe_trains(tmp_path: Path) -> None:
    recipe = {**MCT_RECIPE, "epochs": 1.0, "batch": 4, "warmup": 0}
    base = tiny_settings(tmp_path, kind="mct", steps=None, warmup=0, val_fraction=0.0)
    trained = train(base.but(**recipe))
    rows = [json.loads(line) for line in (trained.folder / "log.jsonl").read_text().splitlines()]
    rates = [row["lr"] for row in rows if "lr" in row]
    expected = [6.25e-5 * (1 + math.cos(math.pi * step / 6)) / 2 for step in range(6)]
    assert rates == pytest.approx(expected)
