"""Photos as scientists and phones have them: many bands, 16 bits, places on a map, HEIC, camera traps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask.cli import main
from tagmask.data.folder import read_folder
from tagmask.data.images import is_plain, read_image, write_mask
from tagmask.data.tiff import stretch
from tagmask.errors import ImageError, TagmaskError
from tagmask.exchange.geotiff import write_geotiff
from tagmask.exchange.items import Labelled


def write_tiff(path: Path, values: np.ndarray, **more: Any) -> Any:
    """Write bands (b, H, W); returns rasterio."""
    rasterio: Any = pytest.importorskip("rasterio", reason="rasterio is not installed")
    bands, height, width = values.shape
    kind = {"driver": "GTiff", "count": bands, "dtype": values.dtype.name}
    interpretation = more.pop("colorinterp", None)
    with rasterio.open(path, "w", width=width, height=height, **kind, **more) as file:
        file.write(values)
        if interpretation:
            file.colorinterp = [rasterio.enums.ColorInterp[name] for name in interpretation]
    return rasterio


def test_the_stretch_by_hand() -> None:
    """0 … 100: the 2nd percentile is 2, the 98th 98; what is missing is black and does not count."""
    values = np.arange(101.0)
    shown = stretch(values, np.ones(101, bool))
    assert shown[[0, 2, 50, 98, 100]].tolist() == [0, 0, 128, 255, 255]
    valid = values <= 50
    assert stretch(values, valid)[[1, 25, 49, 100]].tolist() == [0, 128, 255, 0]
    assert stretch(np.array([7.0, 7.0]), np.ones(2, bool)).tolist() == [0, 0]
    assert stretch(np.array([np.nan, np.inf]), np.ones(2, bool)).tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["uint16", "int16", "float32", "uint8"])
@pytest.mark.parametrize("compress", ["none", "lzw"])
def test_bands_of_a_tiff(tmp_path: Path, kind: str, compress: str) -> None:
    """Five bands: the first three, or those that the file calls red, green and blue."""
    random = np.random.default_rng(0)
    bands = (random.random((5, 20, 30)) * 100).astype(kind)
    write_tiff(tmp_path / "first.tif", bands, compress=compress)
    first = read_image(tmp_path / "first.tif")
    assert first.shape == (20, 30, 3)
    low, high = np.percentile(bands[:3].astype(float), (2, 98))
    expected = np.rint(255 * np.clip((bands[:3].astype(float) - low) / (high - low), 0, 1))
    assert np.array_equal(first, np.moveaxis(expected, 0, -1))
    names = ["gray", "blue", "green", "red", "undefined"]
    write_tiff(tmp_path / "named.tif", bands, colorinterp=names)
    write_tiff(tmp_path / "same.tif", bands[[3, 2, 1, 0, 4]])
    assert np.array_equal(read_image(tmp_path / "named.tif"), read_image(tmp_path / "same.tif"))
    assert not is_plain(tmp_path / "first.tif")


def test_colours_of_twelve_bits(tmp_path: Path) -> None:
    """Pillow would give their highest 8 of 16 bits, which is next to black."""
    random = np.random.default_rng(0)
    bands = random.integers(0, 4096, (3, 20, 30)).astype(np.uint16)
    write_tiff(tmp_path / "a.tif", bands, photometric="RGB")
    assert read_image(tmp_path / "a.tif").std() > 60


def test_missing_values_are_black(tmp_path: Path) -> None:
    bands = np.full((4, 4, 4), 1000, np.uint16)
    bands[:, 0] = 3000
    bands[:, 3] = 65535
    write_tiff(tmp_path / "a.tif", bands, nodata=65535)
    assert read_image(tmp_path / "a.tif")[:, 0, 0].tolist() == [255, 0, 0, 0]


def test_sixteen_bits_that_are_twelve(tmp_path: Path) -> None:
    grey = np.linspace(0, 4095, 200).reshape(10, 20).astype(np.uint16)
    for suffix in ("tif", "png"):
        Image.fromarray(grey).save(tmp_path / f"a.{suffix}")
        shown = read_image(tmp_path / f"a.{suffix}")[..., 0]
        assert shown.min() == 0
        assert shown.max() == 255
        assert abs(int(np.median(shown)) - 128) <= 1


@pytest.mark.parametrize("kind", ["uint8", "uint16"])
@pytest.mark.parametrize("compression", ["raw", "tiff_adobe_deflate"])
def test_a_tiff_that_lies_on_its_side(tmp_path: Path, kind: str, compression: str) -> None:
    """Pillow 13 garbles one without compression that it opens by its path."""
    upright = (np.arange(6 * 9).reshape(6, 9) * 1000).astype(kind)
    lying = Image.fromarray(np.ascontiguousarray(np.rot90(upright)))
    lying.save(tmp_path / "a.tif", tiffinfo={274: 6}, compression=compression)
    Image.fromarray(upright).save(tmp_path / "b.tif")
    assert np.array_equal(read_image(tmp_path / "a.tif"), read_image(tmp_path / "b.tif"))


def test_a_deep_tiff_that_lies_on_its_side(tmp_path: Path) -> None:
    bands = np.arange(3 * 4 * 6).reshape(3, 4, 6).astype(np.uint16)
    write_tiff(tmp_path / "upright.tif", bands, photometric="RGB")
    write_tiff(tmp_path / "lying.tif", np.rot90(bands, axes=(1, 2)), photometric="RGB")
    content = bytearray((tmp_path / "lying.tif").read_bytes())
    # GDAL writes no orientation: the entry of the planar configuration, which is 1, makes room
    entry = content.index((284).to_bytes(2, "little") + (3).to_bytes(2, "little"))
    content[entry : entry + 2] = (274).to_bytes(2, "little")
    content[entry + 8] = 6
    (tmp_path / "lying.tif").write_bytes(content)
    assert np.array_equal(read_image(tmp_path / "lying.tif"), read_image(tmp_path / "upright.tif"))


@pytest.mark.parametrize("kind", ["int8", "int16", "uint32", "float32", "float64"])
def test_grey_of_other_numbers(tmp_path: Path, kind: str) -> None:
    """Pillow would read -1 of 8 bits as 255, and refuses the others."""
    values = np.linspace(0 if kind == "uint32" else -100, 100, 200).reshape(1, 10, 20).astype(kind)
    write_tiff(tmp_path / "a.tif", values)
    assert np.array_equal(
        read_image(tmp_path / "a.tif")[..., 0], stretch(values[0], values[0] < 999)
    )


def test_a_deep_photo_is_told_of(tmp_path: Path) -> None:
    write_tiff(tmp_path / "a.tif", np.ones((3, 4, 5), np.uint16))
    (tmp_path / "tags.csv").write_text("file,tags\na.tif,dog\n")
    catalog = read_folder(tmp_path, tmp_path / "tags.csv")
    assert any(
        "stretched from their 2nd to their 98th percentile" in note for note in catalog.notes
    )


def test_damaged_and_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiff(tmp_path / "a.tif", np.ones((5, 40, 50), np.uint16))
    content = (tmp_path / "a.tif").read_bytes()
    (tmp_path / "cut.tif").write_bytes(content[: len(content) // 2])
    with pytest.raises(ImageError, match=r"cut\.tif"):
        read_image(tmp_path / "cut.tif")
    (tmp_path / "no.tif").write_bytes(b"no picture at all")
    with pytest.raises(ImageError, match="is not a picture that can be read"):
        read_image(tmp_path / "no.tif")
    monkeypatch.setitem(__import__("sys").modules, "rasterio", None)
    with pytest.raises(ImageError, match=r"install rasterio: pip install 'tagmask\[geo\]'"):
        read_image(tmp_path / "a.tif")


def test_a_mask_is_at_the_place_of_its_photo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rasterio", reason="rasterio is not installed")
    from rasterio.transform import from_origin

    monkeypatch.chdir(tmp_path)
    Path("photos/sub").mkdir(parents=True)
    place = {"crs": "EPSG:32632", "transform": from_origin(500000, 5600000, 0.5, 0.25)}
    rasterio = write_tiff(Path("photos/sub/field.tif"), np.ones((4, 6, 8), np.uint16), **place)
    Image.new("RGB", (8, 6)).save("photos/plain.png")
    mask = np.zeros((6, 8), np.uint8)
    mask[1:3, 2:5] = 1
    mask[5] = 255
    for name in ("sub/field", "plain"):
        write_mask(Path(f"run/6_predictions/{name}.png"), mask)
    Path("tags.json").write_text(json.dumps({"sub/field": ["grass"], "plain": ["grass"]}))
    data = ("--data", "folder", "--images", "photos", "--tags", "tags.json")
    with pytest.raises(SystemExit) as ended:
        main(["export", "--out", "run", *data, "--format", "geotiff", "--to", "maps"])
    assert ended.value.code == 0, capsys.readouterr().err
    with (
        rasterio.open("photos/sub/field.tif") as photo,
        rasterio.open("maps/sub/field.tif") as made,
    ):
        assert (made.crs, made.transform, made.bounds) == (photo.crs, photo.transform, photo.bounds)
        assert made.nodata == 255
        assert np.array_equal(made.read(1), mask)
        # the upper left corner of the region: two pixels east of the origin, one south
        assert made.xy(1, 2, offset="ul") == (500001.0, 5599999.75)
        assert made.tags(1)["class_1"] == "grass"
    assert "1 photos have no place on a map" in capsys.readouterr().out


def test_other_kinds_of_places(tmp_path: Path) -> None:
    """Control points and a satellite's polynomials stay; of a turned photo they would be wrong."""
    rasterio: Any = pytest.importorskip("rasterio", reason="rasterio is not installed")
    from rasterio.control import GroundControlPoint
    from rasterio.rpc import RPC

    corners = [(0, 0), (0, 8), (6, 8)]
    points = [GroundControlPoint(row, column, 10 + column, 50 - row) for row, column in corners]
    bands = np.ones((3, 6, 8), np.uint8)
    write_tiff(tmp_path / "points.tif", bands, gcps=points, crs="EPSG:4326")
    write_tiff(tmp_path / "camera.tif", bands)
    ones = [1.0] + [0.0] * 19
    with rasterio.open(tmp_path / "camera.tif", "r+") as file:
        file.rpcs = RPC(0, 1, 50, 1, ones, ones, 3, 3, 10, 1, ones, ones, 4, 4)
    scale = {33550: (0.5, 0.5, 0.0), 33922: (0.0, 0.0, 0.0, 500000.0, 4200000.0, 0.0)}
    Image.fromarray(bands[0]).save(tmp_path / "turned.tif", tiffinfo={274: 3, **scale})
    mask = np.ones((6, 8), np.uint8)
    names = ("points", "camera", "turned")
    items = [Labelled(name, mask, tmp_path / f"{name}.tif") for name in names]
    done = write_geotiff(items, ("grass",), tmp_path / "maps")
    assert "1 photos have no place on a map, or are turned" in done.summary()
    with rasterio.open(tmp_path / "maps/points.tif") as file:
        assert [(p.row, p.col, p.x, p.y) for p in file.gcps[0]] == [
            (p.row, p.col, p.x, p.y) for p in points
        ]
    with rasterio.open(tmp_path / "maps/camera.tif") as file:
        assert file.rpcs.lat_off == 50
    with rasterio.open(tmp_path / "maps/turned.tif") as file:
        assert file.transform.is_identity


def test_heic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turned photos too: phones store them on their side."""
    pytest.importorskip("pi_heif", reason="pi-heif is not installed")
    writer: Any = pytest.importorskip(
        "pillow_heif", reason="pillow-heif, which writes HEIC, is not installed"
    )
    pixels = np.zeros((40, 64, 3), np.uint8)
    pixels[:, :32] = 255
    exif = Image.Exif()
    exif[274] = 6
    for name, more in {"plain": {}, "turned": {"exif": exif.tobytes()}}.items():
        picture = writer.from_pillow(Image.fromarray(pixels))
        picture.save(str(tmp_path / f"{name}.HEIC"), quality=95, **more)
    plain = read_image(tmp_path / "plain.HEIC")
    assert plain.shape == (40, 64, 3)
    assert np.array_equal(plain[..., 0] > 128, pixels[..., 0] > 128)
    turned = read_image(tmp_path / "turned.HEIC")
    assert turned.shape == (64, 40, 3)
    assert (turned[:30] > 128).all()
    assert (turned[34:] < 128).all()


def test_heic_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tagmask.data import images

    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    monkeypatch.setattr(images, "_usable", lambda formats: ("JPEG", "PNG"))
    with pytest.raises(ImageError, match=r"install pi-heif: pip install 'tagmask\[heic\]'"):
        read_image(tmp_path / "a.heic")


MEDIA = """mediaID,deploymentID,timestamp,filePath,filePublic,fileMediatype
m1,d1,2026-05-01T10:00:00Z,media/d1/1.jpg,true,image/jpeg
m2,d1,2026-05-01T10:00:05Z,media/d1/2.jpg,true,image/jpeg
m3,d1,2026-05-01T12:00:00Z,media/d1/3.jpg,true,image/jpeg
m4,d2,2026-05-01T10:00:01Z,media/d2/1.jpg,true,image/jpeg
v1,d1,2026-05-01T10:00:00Z,media/d1/film.mp4,true,video/mp4
"""
HEAD = "observationID,deploymentID,mediaID,eventStart,eventEnd,observationLevel,observationType,scientificName\n"
OF_MEDIA = """o1,d1,m1,,,media,animal,Vulpes vulpes
o2,d1,m1,,,media,animal,Meles meles
o3,d1,m2,,,media,human,Homo sapiens
o4,d1,m3,,,media,blank,
o5,d2,m4,,,media,unclassified,
o6,d1,,2026-05-01T00:00:00Z,2026-05-02T00:00:00Z,event,animal,Sus scrofa
"""
OF_EVENTS = """o1,d1,,2026-05-01T11:59:00+02:00,2026-05-01T12:01:00+02:00,event,animal,Sus scrofa
o2,d2,,2026-05-01T09:00:00Z,2026-05-01T09:30:00Z,event,animal,Lynx lynx
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for file in ("d1/1", "d1/2", "d1/3", "d2/1"):
        path = tmp_path / f"trap/media/{file}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3)).save(path)
    (tmp_path / "trap/media.csv").write_text(MEDIA)
    (tmp_path / "trap/datapackage.json").write_text('{"resources": []}')
    return tmp_path / "trap"


def tags(images: Path, source: Path) -> dict[str, set[str]]:
    catalog = read_folder(images, source)
    return {item.name: {catalog.classes[tag] for tag in item.tags} for item in catalog}


def test_a_camera_trap_package(package: Path) -> None:
    (package / "observations.csv").write_text(HEAD + OF_MEDIA)
    expected = {"d1/1": {"Vulpes vulpes", "Meles meles"}, "d1/2": {"human"}}
    assert tags(package / "media", package) == expected
    assert tags(package / "media", package / "datapackage.json") == expected


def test_a_package_whose_photos_lie_on_a_server(package: Path) -> None:
    """As in the example of the standard: the path is an address, the name is that of the camera."""
    address = "https://example.org/assets/1a2b/file"
    table = MEDIA.replace("filePublic", "fileName")
    table = table.replace("media/d1/2.jpg,true", f"{address},2.jpg")
    (package / "media.csv").write_text(table)
    (package / "observations.csv").write_text(HEAD + OF_MEDIA.replace("m1", "m2"))
    assert tags(package / "media", package) == {"d1/2": {"Vulpes vulpes", "Meles meles", "human"}}


def test_a_package_with_events_only(package: Path) -> None:
    (package / "observations.csv").write_text(HEAD + OF_EVENTS)
    assert tags(package / "media", package) == {"d1/1": {"Sus scrofa"}, "d1/2": {"Sus scrofa"}}
    (package / "observations.csv").write_text(HEAD + OF_EVENTS.replace("+02:00", ""))
    with pytest.raises(TagmaskError, match="events need times such as"):
        tags(package / "media", package)
    (package / "observations.csv").write_text("mediaID\nm1\n")
    with pytest.raises(TagmaskError, match="no column observationLevel"):
        tags(package / "media", package)
