"""Every stage on a GPU that is pretended (tests/pretend.py): nothing is mixed, and the CPU's results come out."""

import copy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tagmask.acr.views import parse_view
from tagmask.config import (
    AffinitySettings,
    ExploreSettings,
    MapSettings,
    MaskSettings,
    PhotoSettings,
    PseudoSettings,
    ServeSettings,
    TrainSettings,
)
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.exchange import label_studio_server
from tagmask.inference.maps import make_maps
from tagmask.inference.photo_mask import photo_probabilities
from tagmask.methods import METHODS
from tagmask.models.classifier import Classifier
from tagmask.models.deeplab import DeepLabV2
from tagmask.models.device import on_device
from tagmask.models.mct import MctClassifier
from tagmask.reproduction import computation
from tagmask.reproduction.command import _part
from tagmask.runs.plan import _measure
from tagmask.runs.timing import probe
from tagmask.stages.affinity import processes_of
from tagmask.stages.seeds import seed_photo
from tagmask.studio.opening import open_explorer
from tagmask.training.classifier import TwoViews
from tagmask.training.loop import Loop, _leave_cores_to_workers, make_accelerator
from tests.alone import alone, alone_of, do, make_pseudo, train, train_segmenter
from tests.helpers import tiny_classifier, tiny_settings
from tests.pretend import GPU, pretend_gpu
from tests.reproduction.small import small
from tests.runs.tiny import alike, head_run, tiny_run

PHOTO = np.random.default_rng(0).integers(0, 256, (40, 56, 3), dtype=np.uint8)
STAGES = ("train", "seeds", "pseudo", "segment", "predict")
BRUSH = '<BrushLabels name="b" toName="i"><Label value="x"/></BrushLabels>'
LABELS = f'<View><Image name="i" value="$image"/>{BRUSH}</View>'
FAMILIES = (  # each has a way of its own to tell tokens where they are
    *(
        "deit_tiny_distilled_patch16_224",
        "vit_small_patch16_dinov3",
        "vit_relpos_medium_patch16_cls_224",
    ),
    "beit_base_patch16_224",
)


def same_weights(one: Path, other: Path, rtol: float, atol: float) -> None:
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=rtol, atol=atol)


def test_what_a_gpu_refuses_is_refused() -> None:
    with pretend_gpu():
        there, here = torch.ones(3, device=GPU), torch.arange(3)
        for mix in (
            lambda: there + here,
            lambda: here[there.long()],
            lambda: there.masked_fill(here > 1, 0),
            lambda: torch.cat([there, here.float()]),
            lambda: torch.where(here > 1, there, 0.0),
            lambda: torch.nn.Linear(3, 2)(there),
        ):
            with pytest.raises(RuntimeError, match="on the same device"):
                mix()
        with pytest.raises(RuntimeError, match="numpy"):
            there.numpy()
        assert (there * 2)[here[1:]].cpu().numpy().tolist() == [2, 2]
        assert (there + torch.tensor(1.0)).device == here.to(there).device == GPU
    with pytest.raises(RuntimeError):
        torch.ones(3, device=GPU)  # there is none any more
    assert not torch.accelerator.is_available()


def test_all_stages_with_a_head(headed: Path, tmp_path: Path) -> None:
    settings = head_run(tmp_path)
    settings = settings.with_changes(pseudo={"device": "gpu"})  # the CRF too
    with pretend_gpu():
        for name in STAGES:
            do(name, alone_of(settings, name))
    for folder in ("1_classifier", "5_segmenter"):
        same_weights(tmp_path / folder, headed / folder, rtol=1e-3, atol=1e-4)
    for folder in ("2_seeds", "4_pseudo", "6_predictions"):
        alike(tmp_path / folder, headed / folder)


@pytest.mark.parametrize("settings_of", [head_run, tiny_run])
def test_the_plan_measures_every_stage(settings_of: Any, tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    with pretend_gpu():
        example = probe(settings, open_catalog(settings))
        assert example is not None
        rates, memory = _measure(settings, STAGES, example)
        assert rates.keys() == memory.keys() == set(STAGES)
        assert next(example.task.module.parameters()).device == GPU


def test_training_on_kept_tokens_and_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept tokens are made before the network moves, and read after it has."""
    options: dict[str, Any] = {
        "fixed_views": True,
        "freeze": 2,
        "head_first": True,
        "ema": 0.9,
        "save_every": 1,
    }
    options |= {"steps": 3, "batch": 2, "count": 8, "val_every": 0.25, "accumulate": 2, "clip": 1.0}
    plain, dies_at = Loop._one_step, [2]

    def dying(self: Loop, step: int, batches: Any) -> dict[str, float]:
        if step in dies_at:
            dies_at.remove(step)
            raise KeyboardInterrupt
        return plain(self, step, batches)

    train(tiny_settings(tmp_path / "cpu", **options))
    monkeypatch.setattr(Loop, "_one_step", dying)
    with pretend_gpu():
        with pytest.raises(KeyboardInterrupt):
            train(tiny_settings(tmp_path / "gpu", precision="bf16", **options))
        trained = train(tiny_settings(tmp_path / "gpu", precision="bf16", **options))
    assert trained.metrics["val_loss"] > 0
    same_weights(tmp_path / "gpu/1_classifier", tmp_path / "cpu/1_classifier", rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("kind", ["acr", "mct"])
def test_the_losses_of_every_view(kind: Any, tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, kind=kind)
    classifier = (
        tiny_classifier() if kind == "acr" else MctClassifier("tagmask_tiny", 3, img_size=32)
    )
    images, targets = torch.rand(2, 3, 32, 48), torch.eye(3)[:2]
    for name in (
        "vflip",
        "rotate90",
        "rotate180",
        "resize0.5",
        "hide",
        "gray",
        "none",
        "hflip+resize0.5",
    ):
        module = TwoViews(classifier, parse_view(name, classifier.patch_size), settings)
        torch.manual_seed(0)
        expected = copy.deepcopy(module)(images, targets)["loss"]
        with pretend_gpu():
            torch.manual_seed(0)
            loss = on_device(copy.deepcopy(module))(images.to(GPU), targets.to(GPU))["loss"]
            loss.backward()
            assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_maps_by_every_method(method: Any) -> None:
    model: Classifier = (
        MctClassifier("tagmask_tiny", 3, img_size=32) if method == "mct" else tiny_classifier()
    )
    same_maps(model, MapSettings(method=method, size=40))


@pytest.mark.parametrize("family", FAMILIES)
def test_maps_of_every_kind_of_position(family: str) -> None:
    torch.manual_seed(0)
    model = Classifier(family, 3)
    model.vit.blocks = model.vit.blocks[:2]
    same_maps(model, MapSettings(size=3 * model.patch_size, flip=False))


def same_maps(model: Classifier, settings: MapSettings) -> None:
    expected = make_maps(model.eval(), [PHOTO], [[0, 2]], settings)[0]
    with pretend_gpu():
        maps = make_maps(on_device(model), [PHOTO], [[0, 2]], settings)[0]
        assert model.mean.device == GPU
    np.testing.assert_allclose(maps.plain, expected.plain, atol=1e-4)
    np.testing.assert_allclose(maps.refined, expected.refined, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [{"tile": 32, "halo": 32, "flip": False, "scales": (1.0,)}, {"pamr": True, "device": "gpu"}],
)
def test_masks_by_deeplab(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = DeepLabV2(
        "test_resnet", num_classes=4, classes=["a", "b", "c"], multi_scale="tile" not in options
    ).eval()
    settings = MaskSettings(**options)
    expected = photo_probabilities(model, PHOTO, [0, 1], replace(settings, device=None))
    with pretend_gpu():
        chances = photo_probabilities(on_device(model), PHOTO, [0, 1], settings)
    np.testing.assert_allclose(chances.dense(4), expected.dense(4), atol=1e-4)


def test_deeplab_trains(headed: Path, tmp_path: Path) -> None:
    settings = alone_of(tiny_run(tmp_path), "segment").but(
        steps=2,
        pseudo=headed / "4_pseudo",
        val_fraction=0.2,
    )
    train_segmenter(settings.but(out=tmp_path / "cpu"))
    with pretend_gpu():
        train_segmenter(settings.but(out=tmp_path / "gpu"))
    same_weights(tmp_path / "gpu/5_segmenter", tmp_path / "cpu/5_segmenter", rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["walk", "attention"])
def test_walks(method: Any, headed: Path, tmp_path: Path) -> None:
    """AffinityNet is trained on the GPU and used there; the labels are those of the CPU with the same network."""
    net = AffinitySettings(backbone="test_resnet", size=48, batch=2, steps=1, lr=1e-3, head_lr=1.0)
    shutil.copytree(headed, tmp_path / "run")
    settings = alone(
        PseudoSettings,
        out=tmp_path / "run",
        count=12,
        method=method,
        affinity=net,
        restart=True,
        device="gpu",
    )
    with pretend_gpu():
        make_pseudo(settings)
    (tmp_path / "run/4_pseudo").rename(tmp_path / "gpu")
    with pytest.raises(TagmaskError, match=r"--device gpu: torch finds no GPU.*leave it out"):
        make_pseudo(settings)
    make_pseudo(settings.but(restart=False, device=None))
    alike(tmp_path / "run/4_pseudo", tmp_path / "gpu")


def test_explorer_and_services(out: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    Image.fromarray(PHOTO).save(tmp_path / "photos/a.png")
    with pretend_gpu():
        explorer = open_explorer(ExploreSettings(out=out))
        view, learner = explorer.views[0], explorer.learner
        assert learner is not None
        for method in view.methods:
            assert view.affinity(0, method)
        assert 0 <= view.fact(0)["unsure"] < 1
        labels = np.full(view.size(0), 255, np.uint8)
        labels[:20, :20] = 0
        view.save_labels(0, labels)
        learner.learn()
        assert learner.mask(0) is not None
        learner.accept()
        assert learner.trial is None
        files: Any = {"show": tmp_path / "maps.png", "show_affinity": tmp_path / "affinity.png"}
        photo = PhotoSettings(photo=tmp_path / "photos/a.png", model=out / "1_classifier", **files)
        assert "seen by the model" in seed_photo(photo)
        backend = label_studio_server.Backend(
            ServeSettings(out=out, label_studio=True, images=tmp_path / "photos")
        )
        answer = backend.answer(
            "/predict", {"label_config": LABELS, "tasks": [{"id": 1, "data": {"image": "a.png"}}]}
        )
        assert answer is not None
        assert len(answer["results"]) == 1


def test_costs_in_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = small(tmp_path, "computation")
    settings = table.of(TrainSettings)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    monkeypatch.setattr(computation, "TURNS", 1)
    with pretend_gpu():
        catalog = open_catalog(table)
        assert computation.training_megabytes(catalog, settings) >= 0
        assert computation.map_speeds(settings, catalog, 2)["device"] == GPU.type
    monkeypatch.setattr(computation, "_device", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5e6)
    assert computation._peak_megabytes() == 5


def test_processes_of_a_launch_of_tables_choose_their_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[int] = []
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "set_device": chosen.append,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert _part(small(tmp_path, "ablation")) == (3, 4)
    assert chosen == [1]


def test_what_depends_on_whether_there_is_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TagmaskError, match="fp16 needs a GPU; use bf16"):
        make_accelerator(tiny_settings(tmp_path, precision="fp16"), tmp_path)
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    _leave_cores_to_workers(2)
    with pretend_gpu():
        _leave_cores_to_workers(2)
    assert len(threads) == 1  # on the CPU, loading processes need cores
    settings = alone(PseudoSettings, out=tmp_path, device="gpu")
    assert processes_of(settings) == 1  # each would take memory of the GPU
    assert processes_of(settings.but(device="cpu")) is None
