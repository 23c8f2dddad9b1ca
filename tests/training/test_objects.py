"""A classifier that has learned where objects are: saved, loaded, refused, and the same maps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tagmask.config import MapSettings, SeedSettings
from tagmask.data.catalog import Catalog
from tagmask.data.scenes.catalog import CLASSES, Scenes
from tagmask.errors import ImageError, TagmaskError
from tagmask.features.cache import TokenStore
from tagmask.inference.evidence import Which
from tagmask.inference.maps import photo_maps
from tagmask.inference.objectness import Where
from tagmask.models.classifier import Classifier
from tagmask.models.finder import ObjectFinder
from tagmask.models.kinds import load_classifier
from tagmask.stages.seeds import read_seeds
from tagmask.stages.train import Fitted
from tagmask.training.objects import check_fittable, fit_head, fit_objects
from tests.alone import alone, seed_catalog, train
from tests.helpers import tiny_classifier, tiny_settings

COUNT, SIZE = 8, 48
BLOCKS = (1, 3)


def settings(out: Path, **changes: Any) -> Any:
    """Fit without training: there are fewer photos than that asks for."""
    small: dict[str, Any] = {
        "count": COUNT,
        "fixed_views": True,
        "freeze": 2,
        "size": SIZE,
        "head_first": True,
        "objects": True,
        "object_blocks": BLOCKS,
        "object_size": SIZE,
        "train_from": COUNT + 1,
    }
    return tiny_settings(out, **{**small, **changes})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose classifier was fitted and not trained; its files are not to be changed."""
    out = tmp_path_factory.mktemp("fitted")
    assert isinstance(train(settings(out)), Fitted)
    return out


@pytest.fixture
def copied(fitted: Path, tmp_path: Path) -> Path:
    """The folder of that classifier, to be changed."""
    Classifier.load(fitted / "1_classifier").save(tmp_path / "model")
    return tmp_path / "model"


def test_saved_and_loaded_the_numbers_are_the_same(fitted: Path, tmp_path: Path) -> None:
    model = Classifier.load(fitted / "1_classifier")
    assert model.finder is not None
    assert model.finder.blocks == BLOCKS
    assert model.finder.size == SIZE
    assert model.finder.stuff == ()
    assert model.finder.which_weight.shape == (len(CLASSES), 2 * model.vit.embed_dim)
    model.save(tmp_path)
    again = load_classifier(tmp_path)
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert again.finder is not None
    assert again.finder.config() == model.finder.config()
    first, second = (
        (f / "model.safetensors").read_bytes() for f in (fitted / "1_classifier", tmp_path)
    )
    assert first == second


def test_maps_of_a_photo_are_those_of_the_stage(fitted: Path) -> None:
    """From kept tokens in the stage, from fresh ones for a single photo; scenes are not square."""
    seed_catalog(alone(SeedSettings, out=fitted, count=COUNT))
    model, scenes = Classifier.load(fitted / "1_classifier"), Scenes(COUNT)
    for i in range(COUNT):
        seeds = read_seeds(fitted / f"2_seeds/{scenes.name(i)}.npz")
        maps = photo_maps(model, scenes.load_image(i), scenes.tags(i), MapSettings())
        assert maps.refined.shape == (len(scenes.tags(i)), *scenes.load_image(i).shape[:2])
        for kind in ("plain", "refined"):
            stored = np.rint(getattr(maps, kind) * 255).astype(np.uint8)
            np.testing.assert_array_equal(seeds[kind], stored)


def test_without_objects_maps_are_those_of_the_method(fitted: Path) -> None:
    model, image = Classifier.load(fitted / "1_classifier"), Scenes(1).load_image(0)
    plain = photo_maps(model, image, [0], MapSettings(objects=False, flip=False))
    model.finder = None
    expected = photo_maps(model, image, [0], MapSettings(flip=False))
    np.testing.assert_array_equal(plain.refined, expected.refined)
    with pytest.raises(TagmaskError, match="has not learned where objects are"):
        photo_maps(model, image, [0], MapSettings(objects=True))


def test_a_photo_without_tags_has_no_maps(fitted: Path) -> None:
    model = Classifier.load(fitted / "1_classifier")
    maps = photo_maps(model, np.zeros((20, 33, 3), np.uint8), [], MapSettings())
    assert maps.plain.shape == maps.refined.shape == (0, 20, 33)


def test_the_backbone_stays_as_it_is(fitted: Path) -> None:
    """Everything but the head has the published weights, and the summary says why."""
    model = Classifier.load(fitted / "1_classifier")
    untouched = Classifier("tagmask_tiny", len(CLASSES), img_size=SIZE, pretrained=True)
    for name, value in untouched.vit.state_dict().items():
        if not name.startswith("head") and name != "pos_embed":
            assert torch.equal(model.vit.state_dict()[name], value), name
    assert not torch.equal(model.vit.head.weight, untouched.vit.head.weight)


def test_the_fit_is_the_same_every_time(fitted: Path, tmp_path: Path) -> None:
    """Also where no tokens are kept."""
    train(settings(tmp_path, tokens_limit=0))
    assert not (tmp_path / "0_tokens").exists()
    for file in ("model.safetensors", "config.json", "tags.json"):
        first, second = ((f / "1_classifier" / file).read_bytes() for f in (fitted, tmp_path))
        assert first == second, file


def test_a_folder_without_a_finder_loads_as_before(tmp_path: Path) -> None:
    model = tiny_classifier()
    model.save(tmp_path)
    assert "objects" not in json.loads((tmp_path / "config.json").read_text())
    again = Classifier.load(tmp_path)
    assert again.finder is None
    assert again.state_dict().keys() == model.state_dict().keys()


def damage(folder: Path, **changes: Any) -> None:
    """Change entries of the finder in config.json; None removes one."""
    config = json.loads((folder / "config.json").read_text())
    for name, value in changes.items():
        config["objects"][name] = value
        if value is None:
            del config["objects"][name]
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    "changes",
    [
        {"blocks": None},
        {"blocks": []},
        {"blocks": ["1", "3"]},
        {"blocks": [True, 3]},
        {"blocks": [1, 2, 3]},
        {"blocks": 3},
        {"size": None},
        {"size": 0},
        {"size": 48.5},
        {"size": 10**9},
        {"stuff": [len(CLASSES)]},
        {"stuff": [-1]},
        {"stuff": "sky"},
        {"kinds": -1},
        {"kinds": 10**9},
        {"kinds": 3},
    ],
    ids=str,
)
def test_a_damaged_finder_is_refused(changes: dict[str, Any], copied: Path) -> None:
    damage(copied, **changes)
    with pytest.raises(TagmaskError):
        Classifier.load(copied)


def test_the_refusal_names_the_file_and_a_remedy(copied: Path) -> None:
    damage(copied, size=0)
    with pytest.raises(TagmaskError, match=r"config\.json.*; .*\.$"):
        Classifier.load(copied)


@pytest.mark.parametrize("blocks", [[1, 9], [-9, 3]], ids=str)
def test_blocks_that_do_not_exist_are_refused(blocks: list[int], copied: Path) -> None:
    damage(copied, blocks=blocks)
    with pytest.raises(TagmaskError):
        Classifier.load(copied)


@pytest.mark.parametrize("entry", [[], "yes", 3, None], ids=str)
def test_a_finder_that_is_no_table_is_refused(entry: object, copied: Path) -> None:
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "objects": entry}))
    with pytest.raises(TagmaskError):
        Classifier.load(copied)


def test_stuff_that_is_no_tag_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TagmaskError, match=r"--stuff lava is no tag of these photos; they have: "):
        train(settings(tmp_path, stuff="lava"))


def test_stuff_without_objects_is_refused(tmp_path: Path) -> None:
    mistakes = settings(tmp_path, objects=False, stuff=CLASSES[0]).mistakes()
    assert any("--stuff belongs to --objects" in mistake for mistake in mistakes)


def test_stuff_is_kept_with_the_classifier_and_shown_outside(tmp_path: Path) -> None:
    scenes = Scenes(COUNT)
    tag = scenes.tags(0)[0]
    train(settings(tmp_path, stuff=f"{CLASSES[tag]}, {CLASSES[tag]}"))
    model = Classifier.load(tmp_path / "1_classifier")
    assert model.finder is not None
    assert model.finder.stuff == (tag,)
    with_stuff = photo_maps(model, scenes.load_image(0), [tag], MapSettings()).refined
    model.finder.stuff = ()
    as_object = photo_maps(model, scenes.load_image(0), [tag], MapSettings()).refined
    assert np.corrcoef(with_stuff.ravel(), as_object.ravel())[0, 1] < 0


def test_a_backbone_with_two_heads_is_refused(tmp_path: Path) -> None:
    two = {"backbone": "deit_tiny_distilled_patch16_224", "pretrained": False}
    with pytest.raises(TagmaskError, match="has no single linear head on its class token"):
        train(settings(tmp_path, object_blocks=(8, 11), **two))
    assert not (tmp_path / "1_classifier/model.safetensors").exists()


@pytest.mark.parametrize("blocks", [(), (1, 2), (3, 9), (9,)])
def test_blocks_must_end_with_the_last(blocks: tuple[int, ...]) -> None:
    with pytest.raises(TagmaskError, match=r"must be blocks of tagmask_tiny \(0 to 3\) and end"):
        check_fittable(tiny_classifier(), blocks)


def fit_to(catalog: Catalog, out: Path, seed: int = 0) -> tuple[Classifier, Any]:
    model = tiny_classifier(len(catalog.classes), seed=seed).eval()
    store = TokenStore.features_of(model, BLOCKS, SIZE, out, 1.0)
    return model, fit_objects(model, store, catalog, blocks=BLOCKS, size=SIZE)


def test_tokens_are_standardised_over_all_photos(tmp_path: Path) -> None:
    """Mean 0 and deviation 1 of every number, over the cells of all photos together."""
    scenes = Scenes(COUNT)
    model, _ = fit_to(scenes, tmp_path)
    assert model.finder is not None
    store = TokenStore.features_of(model, BLOCKS, SIZE, tmp_path, 1.0)
    cells = [model.finder.standardise(store.get(scenes, i).values[0]) for i in range(COUNT)]
    everything = torch.cat(cells)
    torch.testing.assert_close(
        everything.mean(0), torch.zeros(everything.shape[1]), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(everything.std(0), torch.ones(everything.shape[1]))


def test_the_finder_is_what_was_fitted(tmp_path: Path) -> None:
    """Its numbers, put together by hand, give the refined maps on the token grid."""
    scenes = Scenes(COUNT)
    model, vectors = fit_to(scenes, tmp_path)
    finder = model.finder
    assert finder is not None
    assert vectors.indices == list(range(COUNT))
    assert vectors.pooled.shape == (COUNT, 2, 2 * model.vit.embed_dim)
    assert torch.equal(vectors.targets, torch.from_numpy(scenes.targets(range(COUNT))))
    tokens = TokenStore.features_of(model, BLOCKS, SIZE, tmp_path, 1.0).get(scenes, 0)
    cells = finder.standardise(tokens.values[0])
    where = Where(finder.where_weight, float(finder.where_bias), finder.kinds, finder.kind_scores)
    which = Which(finder.which_weight, finder.which_bias)
    chances = where.probability(cells).reshape(tokens.grid)
    assert 0 < float((chances > 0.5).float().mean()) < 1
    logits = which.logits(cells)
    assert logits.shape == (len(cells), len(CLASSES))


def test_the_head_tells_the_tags_it_was_fitted_to(tmp_path: Path) -> None:
    """The logits of the whole network on the photos as they were seen."""
    from tagmask.features.photo import whole_patches

    scenes = Scenes(COUNT)
    model, vectors = fit_to(scenes, tmp_path)
    fit_head(model, vectors)
    right = 0.0
    for i in range(COUNT):
        picture, _ = whole_patches(model, SIZE, scenes.load_image(i))
        with torch.no_grad():
            logits = model(picture)[0]
        by_hand = model.vit.head(vectors.class_tokens[i])
        torch.testing.assert_close(logits, by_hand, atol=0.05, rtol=0.01)  # half precision
        right += float(((logits > 0) == (vectors.targets[i] > 0)).float().mean()) / COUNT
    assert right > 0.9


def test_photos_that_cannot_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes = Scenes(COUNT)
    load = Scenes.load_image

    def some(self: Scenes, i: int) -> Any:
        if i == 2:
            raise ImageError("damaged")
        return load(self, i)

    monkeypatch.setattr(Scenes, "load_image", some)
    done = train(settings(tmp_path))
    assert isinstance(done, Fitted)
    assert done.broken == {scenes.name(2): "damaged"}
    assert scenes.name(2) in done.summary()
    monkeypatch.setattr(Scenes, "load_image", lambda *_: _raise())
    with pytest.raises(TagmaskError, match="no image could be read"):
        train(settings(tmp_path / "none"))


def _raise() -> None:
    raise ImageError("damaged")


def test_of_many_photos_a_spread_part_is_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The direction to objects from the first photos of an even order, the vectors from all."""
    from tagmask.training.objects import _spread

    assert sorted(_spread(11)) == list(range(11))
    assert max(_spread(64)[:8]) - min(_spread(64)[:8]) >= 48
    monkeypatch.setattr("tagmask.training.objects.MOST_CELLS", 1)
    _, vectors = fit_to(Scenes(COUNT), tmp_path)
    assert vectors.indices == list(range(COUNT))


def test_a_finder_starts_with_nothing() -> None:
    finder = ObjectFinder(BLOCKS, SIZE, 6, 2, kinds=4)
    assert torch.equal(finder.standardise(torch.ones(1, 6)), torch.ones(1, 6))
    again = ObjectFinder.build(finder.config(), 3, 2, max(BLOCKS) + 1)
    assert again.config() == finder.config()
    assert again.kinds.shape == (4, 6)
