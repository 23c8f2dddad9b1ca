"""Every way to ask for a photo's mask or maps gives what the run gave: a network knows its use."""

import dataclasses
import json
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import tagmask
from tagmask.cli.commands import run_command
from tagmask.cli.parse import parse, use_of_network
from tagmask.config import (
    ExploreSettings,
    MapSettings,
    MaskSettings,
    ServeSettings,
    read_toml,
    use_of,
)
from tagmask.data.images import read_mask
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.exchange import cvat_function, label_studio_server
from tagmask.exchange.label_studio import labelling_interface, unpack
from tagmask.features.photo import whole_patches
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import load_segmenter
from tagmask.models.storage import write_network_use
from tagmask.runs import record
from tagmask.runs import run as runs
from tagmask.stages.seeds import read_seeds
from tagmask.studio.opening import open_explorer
from tagmask.studio.view import RunView
from tests.alone import alone_of, predict_catalog, run
from tests.runs.tiny import head_run

PREDICT: dict[str, Any] = {
    "flip": False,
    "scales": (1.0,),
    "crf": True,
    "crf_size": 32,
    "use_tags": True,
}
SEEDS: dict[str, Any] = {"affinity_steps": 2, "flip": False, "size": 48, "batch": 1}
PHOTO = 3  # of the run


def unusual_run(out: Path, **changes: Any) -> Any:
    """Return the settings of a small run whose maps and masks are not made by default."""
    settings = head_run(out, **changes)
    return settings.with_changes(seeds=SEEDS, predict=PREDICT)


@dataclasses.dataclass(frozen=True)
class Asked:
    """A run, one of its photos as a file, and what the run made of it."""

    out: Path
    photo: Path
    tags: list[str]
    classes: tuple[str, ...]
    mask: np.ndarray[Any, Any]
    maps: Mapping[str, np.ndarray[Any, Any]]

    @property
    def words(self) -> str:
        return ",".join(self.tags)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    folder = tmp_path_factory.mktemp("doors")
    settings = unusual_run(folder / "run")
    run(settings)
    catalog = open_catalog(settings)
    (folder / "photos").mkdir()
    photo = folder / "photos/photo.png"
    Image.fromarray(catalog.load_image(PHOTO)).save(photo)
    name = catalog.name(PHOTO)
    mask = read_mask(settings.out / f"6_predictions/{name}.png", len(catalog.classes))
    maps = read_seeds(settings.out / f"2_seeds/{name}.npz")
    tags = [catalog.classes[c] for c in catalog.tags(PHOTO)]
    return Asked(settings.out, photo, tags, tuple(catalog.classes), mask, maps)


@pytest.fixture
def copied(asked: Asked, tmp_path: Path) -> Path:
    shutil.copytree(asked.out, tmp_path / "run")
    return tmp_path / "run"


def when(file: Path) -> tuple[int, int]:
    """Return what changes if a file is written again."""
    return file.stat().st_ino, file.stat().st_mtime_ns


def told(folder: Path) -> Any:
    return json.loads((folder / "config.json").read_text()).get("use")


def test_the_networks_are_told(asked: Asked) -> None:
    use = {"affinity_blocks": [0, 1], "affinity_steps": 2, "flip": False, "size": 48}
    assert told(asked.out / "1_classifier") == use
    assert told(asked.out / "5_segmenter") == {"scales": [1.0], "flip": False, "crf_size": 32}
    assert tagmask.load(asked.out / "1_classifier").use == use
    network = json.loads((asked.out / "5_segmenter/config.json").read_text())
    assert network["use_version"] == 1


def mask_by_command(asked: Asked, to: Path, *flags: str) -> np.ndarray[Any, Any]:
    words = [str(asked.photo), "--model", str(asked.out / "5_segmenter"), "--tags", asked.words]
    run_command("predict", [*words, "--mask", str(to), *flags])
    return read_mask(to, len(asked.classes))


def test_the_command_gives_the_mask_of_the_run(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert np.array_equal(mask_by_command(asked, tmp_path / "mask.png"), asked.mask)
    assert len(np.unique(asked.mask)) > 1
    with pytest.raises(SystemExit):
        mask_by_command(asked, tmp_path / "mask.png", "--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert "(default: 32)" in shown


def test_python_gives_the_mask_of_the_run(asked: Asked) -> None:
    model = load_segmenter(asked.out / "5_segmenter")
    assert np.array_equal(tagmask.predict(model, asked.photo, asked.tags), asked.mask)
    model.use = {}
    assert not np.array_equal(tagmask.predict(model, asked.photo, asked.tags), asked.mask)


def test_flags_override(asked: Asked, tmp_path: Path) -> None:
    """Also those that are defaults of the class."""
    model = load_segmenter(asked.out / "5_segmenter")
    changes: dict[str, Any] = {"flip": True, "crf": False}
    expected = tagmask.predict(model, asked.photo, asked.tags, **changes)
    actual = mask_by_command(asked, tmp_path / "mask.png", "--flip", "--no-crf")
    assert np.array_equal(actual, expected)
    assert not np.array_equal(actual, asked.mask)
    model.use = {}
    whole = tagmask.predict(model, asked.photo, asked.tags, scales=(1.0,), crf_size=32, **changes)
    assert np.array_equal(whole, expected)


def serve_settings(asked: Asked, *flags: str) -> ServeSettings:
    words = ["--out", str(asked.out), "--label-studio", "--images", str(asked.photo.parent)]
    words += ["--port", "0", *flags]
    start = use_of_network(MaskSettings, words, "5_segmenter")
    return parse(ServeSettings, words, "serve", "", start)


def test_label_studio_gets_the_mask_of_the_run(asked: Asked) -> None:
    assert serve_settings(asked, "--flip").flip
    server = label_studio_server.build_server(serve_settings(asked))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    task = {"id": 1, "data": {"image": "/data/local-files/?d=photo.png", "tags": asked.tags}}
    request = {"tasks": [task], "label_config": labelling_interface(asked.classes)}
    try:
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/predict", json.dumps(request).encode(), headers)
        answer = json.loads(connection.getresponse().read())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    mask = np.zeros_like(asked.mask)
    for result in answer["results"][0]["result"]:
        size = (result["original_height"], result["original_width"])
        region = unpack(result["value"]["rle"], size)
        mask[region] = asked.classes.index(result["value"]["brushlabels"][0]) + 1
    assert np.array_equal(mask, asked.mask)


def test_cvat_gets_the_mask_of_the_run(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our side of it; ``tests/exchange/test_live.py`` asks with CVAT's own code, if it is there."""
    annotation: Any = ModuleType("cvat_sdk.auto_annotation")
    annotation.label_spec = lambda name, number, type: name
    annotation.DetectionFunctionSpec = SimpleNamespace
    annotation.mask = lambda number, region: (number, region)
    masks: Any = ModuleType("cvat_sdk.masks")
    masks.encode_mask = lambda region: region
    package: Any = ModuleType("cvat_sdk")
    package.auto_annotation = annotation
    for module in (package, annotation, masks):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    table = asked.out.parent / "tags.csv"
    table.write_text(f"file,tags\nphoto.png,{';'.join(asked.tags)}\n")
    function = cvat_function.create(str(asked.out / "5_segmenter"), str(table))
    assert tuple(function.spec.labels) == asked.classes
    mask = np.zeros_like(asked.mask)
    context = SimpleNamespace(frame_name="photo.png", conv_mask_to_poly=False)
    for number, region in function.detect(context, Image.open(asked.photo)):
        mask[region] = number + 1
    assert np.array_equal(mask, asked.mask)


def test_maps_are_those_of_the_run(asked: Asked, tmp_path: Path) -> None:
    model = tagmask.load(asked.out / "1_classifier")
    assert isinstance(model.network, tagmask.Classifier)
    for kind, affinity in (("refined", True), ("plain", False)):
        maps = tagmask.localize(model, asked.photo, asked.tags, affinity=affinity)
        values = np.stack([maps[tag] for tag in asked.tags])  # (k, H, W)
        assert np.array_equal(np.rint(values * 255).astype(np.uint8), asked.maps[kind])
        to = tmp_path / f"{kind}.npz"
        words = [str(asked.photo), "--model", str(asked.out / "1_classifier")]
        run_command("seeds", [*words, "--tags", asked.words, "--out", str(to)])
        assert np.array_equal(read_seeds(to)[kind], values.astype(np.float16))
    once = tagmask.localize(model, asked.photo, asked.tags, affinity_steps=1)
    assert not np.array_equal(once[asked.tags[0]], maps[asked.tags[0]])
    to = tmp_path / "once.npz"
    run_command(
        "seeds",
        [*words, "--tags", asked.words, "--out", str(to), "--affinity-steps", "1"],
    )
    assert np.array_equal(read_seeds(to)["refined"][0], once[asked.tags[0]].astype(np.float16))


def test_the_explorer_sees_a_photo_as_the_run_does(asked: Asked) -> None:
    settings = ExploreSettings(
        photo=asked.photo, model=asked.out / "1_classifier", tags=asked.words
    )
    (view,) = open_explorer(settings).views
    assert isinstance(view, RunView)
    *_, span = view._seen(0)
    sides = [side / max(asked.mask.shape) for side in asked.mask.shape]
    patch = view.classifier.patch_size
    assert span == [pytest.approx(48 * side / patch, abs=0.6 / patch) for side in sides]


def test_onnx_tells_the_use_and_agrees(asked: Asked, tmp_path: Path) -> None:
    """Of a photo that is square in whole patches and was reduced to ``size`` as tagmask does it.

    The file squeezes other photos to a square, and reduces them without a filter: it then agrees
    less (on 0.69 to 0.99 of the pixels of the twelve photos of this run).
    """
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    to = tmp_path / "net.onnx"
    run_command("export", ["--out", str(asked.out), "--onnx", str(to)])
    session = runtime.InferenceSession(str(to), providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    model = load_segmenter(asked.out / "5_segmenter")
    assert isinstance(model, HeadSegmenter)
    assert json.loads(metadata["use"]) == model.use
    assert json.loads(metadata["size"]) == model.size == 48
    assert torch.tensor(json.loads(metadata["mean"])).allclose(model.mean.flatten())
    assert torch.tensor(json.loads(metadata["std"])).allclose(model.std.flatten())
    image = np.array(Image.open(asked.photo))  # (H, W, 3)
    picture, grid = whole_patches(model.classifier, model.size, image)
    assert grid[0] == grid[1]
    small = picture * model.std + model.mean  # (1, 3, size, size) in [0, 1]
    (answer,) = session.run(None, {"image": small.numpy()})
    probabilities = torch.nn.functional.interpolate(
        torch.from_numpy(answer), image.shape[:2], mode="bilinear"
    )[0]
    absent = [c + 1 for c, name in enumerate(asked.classes) if name not in asked.tags]
    probabilities[absent] = 0
    # the CRF is not in the file
    expected = tagmask.predict(model, asked.photo, asked.tags, crf=False)
    assert (probabilities.argmax(0).numpy() == expected).mean() >= 0.99


def test_a_second_run_has_nothing_to_do(copied: Path) -> None:
    before = when(copied / "5_segmenter/config.json")
    summary = run(unusual_run(copied))
    assert not summary.made
    assert "nothing to do" in summary.summary()
    assert when(copied / "5_segmenter/config.json") == before


def test_only_the_use_is_written_if_only_it_changes(copied: Path) -> None:
    weights = when(copied / "5_segmenter/model.safetensors")
    settings = unusual_run(copied)
    summary = run(settings.with_changes(predict={"crf": False, "crf_size": None}))
    assert "predict" in summary.made
    assert not {"train", "seeds", "pseudo", "segment"} & set(summary.made)
    assert told(copied / "5_segmenter") == {"scales": [1.0], "flip": False, "crf": False}
    assert when(copied / "5_segmenter/model.safetensors") == weights


def test_a_stage_on_its_own_tells_too(copied: Path, tmp_path: Path) -> None:
    settings = alone_of(unusual_run(copied), "predict")
    again = settings.but(crf=False, restart=True)
    elsewhere = again.but(out=tmp_path / "new", model=copied / "5_segmenter")
    before = told(copied / "5_segmenter")
    predict_catalog(elsewhere)
    assert told(copied / "5_segmenter") == before
    predict_catalog(again)
    assert told(copied / "5_segmenter") == use_of(MaskSettings, again.own)
    assert told(copied / "5_segmenter")["crf"] is False


@pytest.mark.parametrize("kill", [1, 2])
def test_a_kill_after_the_use_is_written_costs_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: int
) -> None:
    """The first network that is told is the classifier, the second the segmenter."""
    tell = write_network_use
    calls = []

    def tell_and_die(folder: Path, use: Mapping[str, Any]) -> None:
        tell(folder, use)
        calls.append(folder.name)
        if len(calls) == kill:
            raise KeyboardInterrupt

    settings = unusual_run(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(runs, "write_network_use", tell_and_die)
        with pytest.raises(KeyboardInterrupt):
            run(settings)
    trained = ["train", "segment"][:kill]
    assert told(tmp_path / "run" / calls[-1])
    weights = {folder: when(settings.out / folder / "model.safetensors") for folder in calls}
    assert not set(trained) & set(run(settings).made)
    for folder, before in weights.items():
        assert when(settings.out / folder / "model.safetensors") == before


def test_a_folder_without_use_keeps_its_notes(copied: Path) -> None:
    """As main made it before networks were told anything."""
    for folder in ("1_classifier", "5_segmenter"):
        file = copied / folder / "config.json"
        config = json.loads(file.read_text())
        del config["use"], config["use_version"]
        file.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
        note = json.loads((copied / folder / "done.json").read_text())
        del note["configs"]
        (copied / folder / "done.json").write_text(json.dumps(note))
    assert not run(unusual_run(copied)).made
    assert told(copied / "1_classifier")
    assert told(copied / "5_segmenter")
    assert not run(unusual_run(copied)).made


def test_weights_are_not_read_again_for_the_use(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of gigabytes the hash in done.json counts, although config.json is younger."""
    monkeypatch.setattr(record, "_QUICK_BYTES", 0)
    folder = copied / "5_segmenter"
    note = record.Record(folder, "model.safetensors")
    note.finish(json.loads((folder / "done.json").read_text())["made_from"])
    time.sleep(0.02)  # the clock of the disk is coarse
    write_network_use(folder, {"crf": False})
    expected = json.loads((folder / "done.json").read_text())["contents"]
    with monkeypatch.context() as patch:
        patch.setattr(record, "file_digest", lambda *_: pytest.fail("the weights were read"))
        assert note.contents() == expected
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "size": 64}))
    assert note.contents() != expected


def test_another_change_of_config_json_is_seen(copied: Path) -> None:
    file = copied / "5_segmenter/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "size": 64}))
    assert "segment" in run(unusual_run(copied)).made


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"use": [1]}, r"config\.json is not as tagmask writes it \(use is \[1\]\)"),
        ({"use": {"crf": {"a": 1}}}, r"config\.json is not as tagmask writes it \(use is"),
        ({"use": {"scales": [1e999]}}, r"config\.json is not as tagmask writes it \(use is"),
        ({"use_version": 2}, r"config\.json tells the use of its network in version 2, but"),
        ({"use_version": True}, r"config\.json tells the use of its network in version True"),
        ({"use_version": None}, r"config\.json tells the use of its network in version None"),
        ({"use": {"out": "x"}}, r"config\.json: use: there is no setting 'out'"),
        ({"use": {"flip": 3}}, r"config\.json: use: flip = 3 is not of the form bool"),
    ],
)
def test_a_damaged_use_is_refused(
    copied: Path, asked: Asked, changes: dict[str, Any], sentence: str
) -> None:
    file = copied / "5_segmenter/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(TagmaskError, match=sentence):
        tagmask.load(copied / "5_segmenter")
    with pytest.raises(TagmaskError, match=sentence):
        run_command("predict", [str(asked.photo), "--model", str(copied / "5_segmenter")])


def test_a_use_beyond_its_limits_is_refused(asked: Asked) -> None:
    model = load_segmenter(asked.out / "5_segmenter")
    model.use = {"crf_size": -1}
    with pytest.raises(TagmaskError, match="--crf-size -1 must be"):
        tagmask.predict(model, asked.photo)


def test_a_network_keeps_its_use(asked: Asked, tmp_path: Path) -> None:
    model = load_segmenter(asked.out / "5_segmenter")
    model.save(tmp_path)
    assert (tmp_path / "config.json").read_bytes() == (
        asked.out / "5_segmenter/config.json"
    ).read_bytes()
    model.use = {}
    model.save(tmp_path)
    assert "use" not in (tmp_path / "config.json").read_text()


def test_what_is_told() -> None:
    settings = MapSettings(method="weighted", affinity_blocks=(6, 11), objects=False, batch=1)
    expected = {"method": "weighted", "affinity_blocks": [6, 11], "objects": False}
    assert use_of(MapSettings, settings) == expected
    assert use_of(MaskSettings, MaskSettings(device="cpu")) == {}


@pytest.mark.parametrize("where", ["another run", "the same run"])
def test_photos_of_a_folder_get_masks_as_the_network_was_told(
    asked: Asked, copied: Path, tmp_path: Path, where: str
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    shutil.copy(asked.photo, photos / "photo.png")
    words = ["--photos", str(photos)]
    out = copied
    if where == "another run":
        out = tmp_path / "new"
        words += ["--model", str(asked.out / "5_segmenter")]
    else:
        shutil.rmtree(out / "6_predictions")
    run_command("predict", ["--out", str(out), *words])
    expected = tagmask.load(asked.out).predict(asked.photo).mask
    made = read_mask(out / "6_predictions/photo.png", len(asked.classes))
    assert np.array_equal(made, expected)
    section = read_toml(out / "config.toml")["predict"]
    assert (section["scales"], section["flip"], section["crf_size"]) == ([1.0], False, 32)
    run_command("predict", ["--out", str(out), *words, "--no-crf", "--restart"])
    assert read_toml(out / "config.toml")["predict"]["crf"] is False
