"""Kept tokens: the same as fresh ones, and noticed when they are not."""

import errno
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

from tagmask.config import MapSettings, TrainSettings
from tagmask.data.catalog import Catalog
from tagmask.data.images import read_image, write_mask
from tagmask.data.open import open_catalog
from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import TagmaskError
from tagmask.features.cache import TokenStore, _digest_of
from tagmask.features.photo import photo_features, photo_tokens
from tagmask.files import content_digest
from tagmask.inference.maps import photo_maps, token_maps
from tagmask.methods import METHODS
from tagmask.models.classifier import Classifier
from tagmask.models.tail import enter, frozen_digest, tail
from tests.alone import alone, seed_catalog, train
from tests.helpers import tiny_classifier, tiny_settings

FIRST, SIZE = 2, 48


def cut_classifier(**options: Any) -> Classifier:
    model = tiny_classifier(**options).eval()
    model.fixed_views = (SIZE, FIRST)
    return model


def store_in(folder: Path, model: Classifier | None = None, limit: float = 1.0) -> TokenStore:
    return TokenStore.of(model or cut_classifier(), folder, limit)


@pytest.mark.parametrize("first", [1, 2, 4])
def test_the_two_parts_are_the_whole(first: int) -> None:
    """On a grid that is not square, for logits, attention and maps of every method."""
    model = tiny_classifier().eval()
    images = torch.rand(2, 3, 24, 40)
    grid = model.grid(24, 40)
    tokens = enter(model, images, first)
    rest = tail(model, first, grid)
    with torch.no_grad():
        if first == len(model.blocks):
            torch.testing.assert_close(
                model.vit.forward_head(model.vit.norm(tokens)), model(images)
            )
            return
        torch.testing.assert_close(rest(tokens), model(images))
        _, attention = model.attend(images)
        _, later = rest.attend(tokens)
    assert len(later) == len(attention) - first
    torch.testing.assert_close(later[0], attention[first])
    numbers = torch.tensor([[0, 2], [1, -1]])
    for name in ("acr", "weighted"):
        whole = METHODS[name].maps(model, images, numbers, range(first, len(model.blocks)))
        part = METHODS[name].maps(
            rest, tokens, numbers, range(len(rest.blocks)), layers=min(2, len(rest.blocks))
        )
        if len(rest.blocks) >= 2:
            torch.testing.assert_close(part.plain, whole.plain)
        torch.testing.assert_close(part.attention[-1], whole.attention[-1])


def test_training_the_tail_trains_the_whole() -> None:
    model = tiny_classifier()
    rest = tail(model, FIRST, (3, 5))
    rest(torch.rand(1, model.prefix + 15, model.vit.embed_dim)).sum().backward()
    assert model.blocks[FIRST].attn.qkv.weight.grad is not None
    assert model.blocks[FIRST - 1].attn.qkv.weight.grad is None
    assert rest.blocks[0] is model.blocks[FIRST]
    assert len(model.blocks) == 4  # which is unchanged


def test_kept_tokens_are_fresh_tokens(tmp_path: Path) -> None:
    scenes, model = Scenes(3), cut_classifier()
    store = store_in(tmp_path, model)
    for i in range(3):
        fresh = photo_tokens(model, FIRST, SIZE, scenes.load_image(i))
        first, second = store.get(scenes, i), store.get(scenes, i)
        assert torch.equal(first.values, fresh.values)
        assert torch.equal(second.values, fresh.values)
        assert first.grid == second.grid == fresh.grid
        assert second.shape == scenes.load_image(i).shape[:2]
    stored = load_file(tmp_path / f"0_tokens/train/{scenes.name(1)}.safetensors")["tokens"]
    assert stored.dtype == torch.float16
    mirrored = photo_tokens(model, FIRST, SIZE, scenes.load_image(1)[:, ::-1])
    torch.testing.assert_close(
        mirrored.values[0].half(), stored[1], rtol=0, atol=2e-2
    )  # resized, then mirrored


def test_what_is_kept_is_what_the_limit_allows(tmp_path: Path) -> None:
    scenes, model = Scenes(4), cut_classifier()
    whole = store_in(tmp_path / "all", model)
    sizes = [whole.get(scenes, i).values.numel() * 2 for i in range(4)]
    assert whole.used == sum(sizes)
    part = store_in(tmp_path / "part", model, limit=(sizes[0] + sizes[1]) / 1e9)
    values = [part.get(scenes, i).values for i in range(4)]
    assert len(list((tmp_path / "part").rglob("*.safetensors"))) == 2
    for i in range(4):
        assert torch.equal(values[i], whole.get(scenes, i).values)
    none = store_in(tmp_path / "none", model, limit=0)
    none.get(scenes, 0)
    assert not (tmp_path / "none").exists()


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    scenes, model = Scenes(1), cut_classifier()
    store = store_in(tmp_path, model)
    fresh = store.get(scenes, 0).values
    file = tmp_path / f"0_tokens/train/{scenes.name(0)}.safetensors"
    whole = file.read_bytes()
    for damaged in (
        b"",
        whole[: len(whole) // 2],
        whole.replace(b'\\"grid\\": [', b'\\"grid\\": [9'),
        b"no tokens",
    ):
        file.write_bytes(damaged)
        assert torch.equal(store.get(scenes, 0).values, fresh)
        assert file.read_bytes() == whole


def test_another_photo_backbone_or_size_is_noticed(tmp_path: Path) -> None:
    model = cut_classifier()
    before = store_in(tmp_path, model).get(Scenes(1), 0).values
    assert not torch.equal(
        store_in(tmp_path, model).get(Scenes(1, seed=5), 0).values, before
    )  # the same name
    other = cut_classifier(seed=1)
    assert frozen_digest(other, FIRST) != frozen_digest(model, FIRST)
    store_in(tmp_path, other).get(Scenes(1), 0)
    assert json.loads((tmp_path / "0_tokens/train/made_by.json").read_text())[
        "frozen"
    ] == frozen_digest(other, FIRST)
    other.fixed_views = (2 * SIZE, FIRST)
    assert store_in(tmp_path, other).get(Scenes(1), 0).values.shape[1] > 2 * before.shape[1]
    with torch.no_grad():  # what is trained makes no difference
        other.blocks[FIRST].attn.qkv.weight.add_(1)
        other.vit.head.weight.add_(1)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1
    store_in(tmp_path, other)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1


def test_a_full_disk_is_noted_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes, model = Scenes(3), cut_classifier()
    store = store_in(tmp_path, model)
    kept = store.get(scenes, 0).values
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=10**6))
    fresh = store.get(scenes, 1).values
    assert torch.equal(fresh, photo_tokens(model, FIRST, SIZE, scenes.load_image(1)).values)
    store.get(scenes, 2)
    assert len(store.notes) == 1
    assert "no more tokens are kept" in store.notes[0]
    assert torch.equal(store.get(scenes, 0).values, kept)
    monkeypatch.undo()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tagmask.features.cache.save_file", refuse)
    other = store_in(tmp_path / "other", model)
    assert torch.equal(other.get(scenes, 0).values, kept)
    assert len(other.notes) == 1


@pytest.mark.parametrize("method", ["acr", "weighted"])
@pytest.mark.parametrize("flip", [False, True])
def test_maps_from_tokens_are_those_of_the_photo(method: Any, flip: bool) -> None:
    """The photo is a whole number of patches, so that both ways see the same pixels."""
    model, image = (
        cut_classifier(),
        np.random.default_rng(0).integers(0, 255, (32, SIZE, 3), dtype=np.uint8),
    )
    settings = MapSettings(method=method, flip=flip, affinity_blocks=(FIRST, 3))
    from_tokens = token_maps(model, photo_tokens(model, FIRST, SIZE, image), [2, 0], settings)
    again = photo_maps(model, image, [2, 0], settings)
    np.testing.assert_array_equal(again.refined, from_tokens.refined)
    model.fixed_views = None
    ordinary = photo_maps(model, image, [2, 0], MapSettings(**{**vars(settings), "size": SIZE}))
    np.testing.assert_allclose(from_tokens.plain, ordinary.plain, atol=2e-3)
    np.testing.assert_allclose(from_tokens.refined, ordinary.refined, atol=2e-3)


def fixed(out: Path, **changes: Any) -> Any:
    return tiny_settings(
        out, **{"fixed_views": True, "freeze": FIRST, "size": SIZE, "steps": 4, **changes}
    )


@pytest.mark.slow
def test_training_with_and_without_kept_tokens_is_the_same(tmp_path: Path) -> None:
    kept, fresh = train(fixed(tmp_path / "kept")), train(fixed(tmp_path / "fresh", tokens_limit=0))
    first, second = ((done.folder / "model.safetensors").read_bytes() for done in (kept, fresh))
    assert first == second
    assert kept.metrics == fresh.metrics
    assert (tmp_path / "kept/0_tokens").is_dir()
    assert not (tmp_path / "fresh/0_tokens").exists()
    again = train(fixed(tmp_path / "kept", restart=True))  # from what is kept already
    assert (again.folder / "model.safetensors").read_bytes() == first
    assert Classifier.load(kept.folder).fixed_views == (SIZE, FIRST)


@pytest.mark.slow
def test_runs_may_share_their_tokens(tmp_path: Path) -> None:
    """A second run on the same photos reads them; one with another cut keeps its own beside them."""
    shared = tmp_path / "shared"

    def kept() -> dict[Path, int]:
        return {file: file.stat().st_mtime_ns for file in shared.rglob("*.safetensors")}

    first = (train(fixed(tmp_path / "a", tokens=shared)).folder / "model.safetensors").read_bytes()
    before = kept()
    assert before
    assert not (tmp_path / "a/0_tokens").exists()
    assert (
        train(fixed(tmp_path / "b", tokens=shared)).folder / "model.safetensors"
    ).read_bytes() == first
    assert (train(fixed(tmp_path / "c")).folder / "model.safetensors").read_bytes() == first
    assert kept() == before
    train(fixed(tmp_path / "d", tokens=shared, freeze=1))
    assert before.items() < kept().items()


def test_consistency_is_over_the_trained_blocks(tmp_path: Path) -> None:
    """Against a computation by hand, photo by photo, on grids that differ."""
    from tagmask.acr.consistency import consistency_losses, strength
    from tagmask.acr.views import HorizontalFlip
    from tagmask.training.classifier import ClassifierTask

    scenes = Scenes(4)
    settings = fixed(tmp_path, alpha=7.0, beta=3.0)
    task = ClassifierTask(scenes, scenes.subset([]), settings.own, settings.run)
    samples = [task.dataset[(k, k)] for k in range(4)]
    batch: Any = task.dataset.collate(samples)
    batch.pop("broken")
    assert len(set(map(tuple, batch["grids"].tolist()))) > 1
    losses = task.module(**batch)
    expected = torch.zeros(())
    for sample in samples:
        grid = tuple(sample["grids"].tolist())
        rest = tail(task.classifier, FIRST, grid)
        logits, attention = rest.attend(sample["tokens"])
        terms = [
            consistency_losses(mean[:1], HorizontalFlip().restore(mean[1:], grid, 1), "l1", 1)
            for mean in attention
        ]
        activation, affinity = (
            torch.stack([term[k] for term in terms]).sum() / 4 for k in (0, 1)
        )  # of 4 blocks
        targets = sample["targets"][None]
        classes = sum(
            torch.nn.functional.multilabel_soft_margin_loss(row[None], targets) for row in logits
        )
        weights = [strength(w, grid[0] * grid[1]) for w in (7.0, 3.0)]
        expected = expected + (classes + weights[0] * activation + weights[1] * affinity) / 4
    torch.testing.assert_close(losses["loss"], expected)


@pytest.mark.slow
def test_seeds_take_kept_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tagmask.config import SeedSettings
    from tagmask.stages.seeds import read_seeds

    train(fixed(tmp_path))
    options: dict[str, Any] = {"count": 6, "method": "weighted", "affinity_steps": 2}
    seed_catalog(alone(SeedSettings, out=tmp_path, **options))
    model = Classifier.load(tmp_path / "1_classifier")
    scenes = Scenes(6)
    for i in range(6):
        seeds = read_seeds(tmp_path / f"2_seeds/{scenes.name(i)}.npz")
        settings = MapSettings(method="weighted", affinity_steps=2)
        maps = photo_maps(model, scenes.load_image(i), list(scenes.tags(i)), settings)
        np.testing.assert_array_equal(
            seeds["refined"], np.rint(maps.refined * 255).astype(np.uint8)
        )
    monkeypatch.setattr(
        "tagmask.features.cache.photo_tokens", lambda *_: pytest.fail("computed again")
    )
    trained = [
        i for i in range(6) if (tmp_path / f"0_tokens/train/{scenes.name(i)}.safetensors").is_file()
    ]
    assert len(trained) == 6
    seed_catalog(alone(SeedSettings, out=tmp_path, restart=True, **options))


@pytest.mark.parametrize(
    "changes",
    [{"freeze": 0}, {"view": "vflip"}, {"kind": "mct"}, {"drop_path": 0.1}],
    ids=lambda changes: str(changes),
)
def test_fixed_views_that_cannot_be_kept_are_refused(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    assert any(
        "--fixed-views needs --freeze" in mistake
        for mistake in fixed(tmp_path, **changes).mistakes()
    )


def test_a_backbone_that_cannot_be_cut_is_refused(tmp_path: Path) -> None:
    model = Classifier("eva02_tiny_patch14_224", 3) if _has("eva02_tiny_patch14_224") else None
    if model is None:
        pytest.skip("this timm has no such backbone")
    model.fixed_views = (SIZE, FIRST)
    with pytest.raises(TagmaskError, match="cannot be cut behind its frozen blocks"):
        store_in(tmp_path, model)


def _has(name: str) -> bool:
    import timm

    try:
        Classifier(name, 3)
    except TagmaskError:
        return False
    return bool(timm.is_model(name))


PHOTOS = 4
BLOCKS = (1, 3)


def photo_folder(folder: Path, count: int = PHOTOS) -> Path:
    """Write some scenes as PNG files, and their tags beside them; returns the table of tags."""
    scenes = Scenes(count)
    rows = ["file,tags"]
    for i in range(count):
        (folder / "photos").mkdir(parents=True, exist_ok=True)
        Image.fromarray(scenes.load_image(i)).save(folder / f"photos/{i}.png")
        rows.append(f"{i}.png,{';'.join(scenes.classes[c] for c in scenes.tags(i))}")
    (folder / "tags.csv").write_text("\n".join(rows) + "\n")
    return folder / "tags.csv"


def folder_data(folder: Path) -> dict[str, Any]:
    return {"data": "folder", "images": folder / "photos", "tags": folder / "tags.csv"}


def features_in(folder: Path, model: Classifier, blocks: tuple[int, ...] = BLOCKS) -> TokenStore:
    return TokenStore.features_of(model, blocks, SIZE, folder, 1.0)


def kept_file(folder: Path, name: str = "0") -> Path:
    return folder / f"0_tokens/head/{name}.safetensors"


class Reads:
    """Counts how often the content of photos is hashed, and how often they are decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hashed: Counter[str] = Counter()
        self.decoded: Counter[str] = Counter()
        # photos that the test has just written count as settled
        monkeypatch.setattr("tagmask.files._SETTLED", 0.0)

        def hashing(path: Path) -> str:
            self.hashed[path.name] += 1
            return content_digest(path)

        def decoding(path: Path) -> Any:
            self.decoded[path.name] += 1
            return read_image(path)

        monkeypatch.setattr("tagmask.features.cache.content_digest", hashing)
        monkeypatch.setattr("tagmask.data.catalog.read_image", decoding)


def test_a_photo_is_hashed_once_and_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the fit of objects, which sees every photo twice, and the maps.

    The head compares the sizes of photo and label, for which it may decode the photo once more.
    """
    from tagmask.config import SeedSettings, SegmentSettings
    from tests.alone import train_segmenter

    photo_folder(tmp_path)
    for i in range(PHOTOS):
        labels = (Scenes(PHOTOS).load_mask(i) > 0).astype(np.uint8)
        write_mask(tmp_path / f"run/4_pseudo/{i}.png", labels)
    reads = Reads(monkeypatch)
    once = Counter({f"{i}.png": 1 for i in range(PHOTOS)})
    data = folder_data(tmp_path)
    options = {"head_first": True, "objects": True, "train_from": PHOTOS + 1, "count": None}
    sizes = {"object_blocks": BLOCKS, "object_size": SIZE}
    train(fixed(tmp_path / "run", **{**data, **options, **sizes}))
    assert reads.decoded == reads.hashed == once
    seed_catalog(alone(SeedSettings, out=tmp_path / "run", processes=1, **data))
    head: dict[str, Any] = {"net": "head", "head_blocks": BLOCKS, "size": SIZE, "steps": 3}
    assert reads.decoded == reads.hashed == once
    train_segmenter(alone(SegmentSettings, out=tmp_path / "run", **head, **data))
    assert reads.hashed == once
    assert max(reads.decoded.values()) <= 2


def test_a_copy_of_a_photo_is_hashed_and_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another time and inode, the same content."""
    photo_folder(tmp_path)
    model = tiny_classifier().eval()
    catalog = open_catalog(alone(TrainSettings, **folder_data(tmp_path)).run)
    before = features_in(tmp_path / "run", model).get(catalog, 0)
    photo = tmp_path / "photos/0.png"
    photo.rename(tmp_path / "other.png")
    shutil.copyfile(tmp_path / "other.png", photo)
    reads = Reads(monkeypatch)
    after = features_in(tmp_path / "run", model).get(catalog, 0)
    assert torch.equal(after.values, before.values)
    assert not reads.decoded
    assert reads.hashed == {"0.png": 1}


def test_a_changed_photo_of_equal_size_is_noticed(tmp_path: Path) -> None:
    """As many bytes, and its time set back, as some tools do."""
    (tmp_path / "photos").mkdir()
    photo = tmp_path / "photos/0.bmp"  # whose size is that of the pixels
    image = np.random.default_rng(0).integers(0, 255, (24, 40, 3), dtype=np.uint8)
    Image.fromarray(image).save(photo)
    catalog = Catalog(["thing"], ["0"], [[0]], images=[photo])
    model = tiny_classifier().eval()
    store = features_in(tmp_path / "run", model)
    before = store.get(catalog, 0).values
    status = photo.stat()
    Image.fromarray(255 - image).save(photo)
    os.utime(photo, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert photo.stat().st_size == status.st_size
    assert photo.stat().st_mtime_ns == status.st_mtime_ns
    after = store.get(catalog, 0).values
    assert not torch.equal(after, before)
    fresh = photo_features(model, BLOCKS, SIZE, 255 - image)
    assert torch.equal(after, fresh.values)


@pytest.mark.parametrize("part", [0.3, 0.6, 0.99])
def test_a_flipped_byte_is_noticed_and_the_file_made_again(part: float, tmp_path: Path) -> None:
    model, scenes = tiny_classifier().eval(), Scenes(1)
    store = features_in(tmp_path, model)
    fresh = store.get(scenes, 0)
    file = kept_file(tmp_path, scenes.name(0))
    whole = file.read_bytes()
    place = int(part * len(whole))
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    again = features_in(tmp_path, model).get(scenes, 0)
    assert torch.equal(again.values, fresh.values)
    assert again.class_token is not None
    assert fresh.class_token is not None
    assert torch.equal(again.class_token, fresh.class_token)
    assert file.read_bytes() == whole


def test_files_of_the_user_survive_a_change_of_network(tmp_path: Path) -> None:
    model, scenes = tiny_classifier().eval(), Scenes(2)
    store = features_in(tmp_path, model)
    for i in range(2):
        store.get(scenes, i)
    folder = tmp_path / "0_tokens/head"
    own = {
        folder / "notes.txt": b"mine",
        folder / "below/weights.safetensors": b"not even a safetensors file",
        folder / "below/numbers.safetensors": save({"mine": torch.ones(2)}),
    }
    for file, content in own.items():
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    features_in(tmp_path, tiny_classifier(seed=1).eval()).get(scenes, 0)
    for file, content in own.items():
        assert file.read_bytes() == content
    kept = [file for file in folder.rglob("*.safetensors") if file not in own]
    assert kept == [kept_file(tmp_path, scenes.name(0))]  # that of the other scene is gone


def craft(
    file: Path, about: str | dict[str, Any] | None = None, **changes: torch.Tensor | None
) -> None:
    """Write a token file with other tensors, and a note that says they are whole."""
    tensors = load_file(file)
    with safe_open(file, framework="pt") as opened:
        note = json.loads(opened.metadata()["about"])
    for name, tensor in changes.items():
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    note["numbers"] = _digest_of(tensors)
    if isinstance(about, dict):
        note |= about
    text = about if isinstance(about, str) else json.dumps(note)
    save_file(tensors, file, metadata={"about": text})


CRAFTED: dict[str, dict[str, Any]] = {
    "deep": {"about": "[" * 200_000},
    "deep in a note": {"about": '{"grid": ' + "[" * 200_000 + "]" * 200_000 + "}"},
    "no note": {"about": "null"},
    "a list": {"about": "[1, 2]"},
    "a text": {"about": '"grid"'},
    "NaN in the note": {"about": {"grid": [float("nan"), 2]}},
    "infinity in the note": {"about": {"grid": [float("inf"), 2]}},
    "texts as grid": {"about": {"grid": ["a", "b"]}},
    "no tokens": {"tokens": None},
    "single precision": {"tokens": torch.zeros(1, 40, 2 * 96)},
    "too few tokens": {"tokens": torch.zeros(1, 3, 2 * 96).half()},
}
BELIEVED: dict[str, dict[str, Any]] = {
    "no class token": {"class": None},
    "empty grid": {"about": {"grid": []}},
    "a grid of one number": {"about": {"grid": [3]}},
    "a grid of broken numbers": {"about": {"grid": [2.5, 2]}},
    "a negative grid": {"about": {"grid": [-2, -3]}},
    "another grid": {"about": {"grid": [1, 1]}},
    "a negative shape": {"about": {"shape": [-7, 9]}},
    "flat tokens": {"tokens": torch.zeros(40).half()},
    "another width": {"tokens": torch.zeros(1, 30, 5).half()},
    "another width of the class token": {"class": torch.zeros(5).half()},
    "no views": {"tokens": torch.zeros(0, 30, 2 * 96).half()},
    "NaN": {"tokens": torch.full((1, 30, 2 * 96), float("nan")).half()},
}


@pytest.mark.parametrize(
    "changes",
    [
        *(pytest.param(changes, id=name) for name, changes in CRAFTED.items()),
        *(pytest.param(changes, id=name) for name, changes in BELIEVED.items()),
    ],
)
def test_a_crafted_file_is_made_again(changes: dict[str, Any], tmp_path: Path) -> None:
    """A file with a note that fits its numbers, but not the form of what was asked for."""
    model, scenes = tiny_classifier().eval(), Scenes(1)
    store = features_in(tmp_path, model)
    fresh = store.get(scenes, 0)
    craft(kept_file(tmp_path, scenes.name(0)), **changes)
    again = store.get(scenes, 0)
    assert again.grid == fresh.grid
    assert again.shape == fresh.shape
    assert torch.equal(again.values, fresh.values)
    assert again.class_token is not None
    assert fresh.class_token is not None
    assert torch.equal(again.class_token, fresh.class_token)
