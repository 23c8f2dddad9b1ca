"""Label Studio: tasks with brush masks as predictions, for people to correct.

A brush mask is an RGBA picture, run-length packed (https://thi.ng/rle-pack,
https://labelstud.io/tags/brushlabels). All numbers are written bit by bit, highest bit first:

    32 bits  number of words: 4 · height · width
     5 bits  bits per word, less 1: 7
    4×4 bits sizes of the four classes of run lengths in bits, less 1: 2, 3, 7, 15
    then for each run: 1 (equal words follow), 2 bits class, 3/4/8/16 bits length less 1,
    8 bits the word
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np
import numpy.typing as npt

from tagmask.exchange.items import Exported, Labelled, Region, regions
from tagmask.files import is_regular, replacing, write_text
from tagmask.labels import Mask, voc_palette

MODEL_VERSION = "tagmask"  # under which Label Studio lists the predictions
# Label Studio's local files: its document root is the folder that holds the folder of the photos
IMAGE_URL = "/data/local-files/?d={folder}/{file}"
_SIZES = np.array([3, 4, 8, 16])  # bits of a run's length
_LONGEST = 1 << 16

# names of the controls in the labelling interface
_FROM_NAME = "tag"
_TO_NAME = "image"
_HEAD = f"""<View>
  <Image name="{_TO_NAME}" value="${_TO_NAME}" zoom="true"/>
  <BrushLabels name="{_FROM_NAME}" toName="{_TO_NAME}">"""


def write_label_studio(
    items: Iterable[Labelled],
    classes: Sequence[str],
    path: Path,
    *,
    image_url: str = IMAGE_URL,
    pieces: bool = False,
) -> Exported:
    """Write tasks to import, and next to them (``.xml``) the labelling interface that fits them.

    Unsure pixels belong to no brush region.

    Args:
        items: images with their masks, uint8 (H, W).
        classes: names of the labels 1, 2, …
        path: the JSON file with the tasks.
        image_url: where Label Studio finds an image: see ``image_address``.
        pieces: make each connected part of a class a brush region. By default each class of an
            image is one region.

    Returns:
        Counts and notes about what was written.

    Raises:
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
    """
    done = Exported(path)
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        for item in done.checked(items, classes):
            file.write("[\n" if done.images == 1 else ",\n")
            json.dump(task_of(item, classes, image_url, pieces), file, ensure_ascii=False)
        file.write("\n]\n" if done.images else "[]\n")
    interface = path.with_suffix(".xml")
    write_text(interface, labelling_interface(classes))
    done.notes.append(f"the labelling interface for these tasks: {interface}")
    return done


def task_of(
    item: Labelled,
    classes: Sequence[str],
    image_url: str,
    pieces: bool,
) -> dict[str, Any]:
    """Return the task of an image, with its mask as a prediction.

    Args:
        item: the image with its mask. Its tags go with the task, so that ``tagmask serve`` is told
            them too.
        classes: names of the labels 1, 2, …
        image_url: where Label Studio finds an image: see ``image_address``.
        pieces: make each connected part of a class a brush region.
    """
    prediction = {
        "model_version": MODEL_VERSION,
        "score": 1.0,
        "result": brushes(item.mask, classes, pieces),
    }
    data = {_TO_NAME: image_address(item, image_url), "tags": list(item.tags)}
    return {"data": data, "predictions": [prediction]}


def image_address(item: Labelled, image_url: str) -> str:
    """Return where Label Studio finds an image.

    Args:
        item: the image.
        image_url: an address. {file} stands for the image's path in its folder of photos, {folder}
            for the name of that folder; both are quoted as in URLs.
    """
    folder = "photos"
    if item.image is not None:
        above = item.image.absolute().as_posix().removesuffix(item.file)
        folder = PurePosixPath(above).name
    return image_url.replace("{folder}", quote(folder)).replace("{file}", quote(item.file))


def brushes(mask: Mask, classes: Sequence[str], pieces: bool) -> list[dict[str, Any]]:
    """Return a result for each class or piece of a mask, numbered from 1.

    Args:
        mask: uint8 labels (H, W).
        classes: names of the labels 1, 2, …
        pieces: make each connected part of a class a brush region.
    """
    results = []
    for number, (label, region) in enumerate(regions(mask, pieces), start=1):
        name = classes[label - 1]
        results.append(brush(region, name, str(number)))
    return results


def brush(region: Region, name: str, identity: str) -> dict[str, Any]:
    """Return one result of a Label Studio prediction.

    Args:
        region: the pixels, bool (H, W).
        name: the class.
        identity: the result's id, unique in its prediction.
    """
    height, width = region.shape
    return {
        "id": identity,
        "type": "brushlabels",
        "from_name": _FROM_NAME,
        "to_name": _TO_NAME,
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
        "value": {
            "format": "rle",
            "rle": pack(region),
            "brushlabels": [name],
        },
    }


def pack(region: Region) -> list[int]:
    """Return a region (H, W) as the bytes of a packed RGBA picture.

    The picture is 255 in all channels inside and 0 outside.
    """
    words, lengths = _runs(region)
    less_one = lengths - 1
    kinds = np.searchsorted(1 << _SIZES[:3], less_one, side="right")
    # 4 is the flag before the two bits of the class
    heads = (4 | kinds) << (_SIZES[kinds] + 8)
    tokens = heads | less_one << 8 | words

    bits = f"{4 * region.size:032b}{7:05b}"
    for size in _SIZES.tolist():
        bits += f"{size - 1:04b}"
    # a token begins with its flag, a 1, so that no leading zeros are lost
    bits += "".join(f"{token:b}" for token in tokens.tolist())
    bits += "0" * (-len(bits) % 8)
    return list(int(bits, 2).to_bytes(len(bits) // 8, "big"))


def _runs(region: Region) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return word and length of each run of equal words in the RGBA picture, row by row."""
    flat = region.ravel()
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    starts = np.concatenate([[0], changes])
    words = np.where(flat[starts], 255, 0)
    lengths = 4 * np.diff(starts, append=flat.size)
    # a run too long for 16 bits is written in pieces, all but the last as long as possible
    pieces = -(-lengths // _LONGEST)
    words = np.repeat(words, pieces)
    piece_lengths = np.full(len(words), _LONGEST)
    last = np.cumsum(pieces) - 1
    piece_lengths[last] = lengths - (pieces - 1) * _LONGEST
    return words, piece_lengths


class _BitReader:
    """Reads the bits of a packed picture from first to last."""

    def __init__(self, packed: Sequence[int]) -> None:
        self._bits = np.unpackbits(np.array(packed, np.uint8))
        self._position = 0

    def take(self, count: int) -> npt.NDArray[np.uint8]:
        """Return the next bits, each 0 or 1; ValueError if there are fewer."""
        start = self._position
        self._position += count
        if self._position > len(self._bits):
            raise ValueError("the run lengths of a brush end too early")
        return self._bits[start : self._position]

    def number(self, count: int) -> int:
        """Return the number that the next ``count`` bits write."""
        digits = map(str, self.take(count).tolist())
        return int("".join(digits), 2)


def unpack(packed: Sequence[int], shape: tuple[int, int]) -> Region:
    """Return the region (H, W) of a packed picture, as Label Studio or ``pack`` writes it.

    Args:
        packed: bytes, 0 … 255.
        shape: (H, W) of the picture.

    Raises:
        ValueError: the bytes are malformed or of a picture of another size.
    """
    reader = _BitReader(packed)
    height, width = shape
    total = reader.number(32)
    word_size = reader.number(5) + 1
    sizes = [reader.number(4) + 1 for _ in range(4)]
    if word_size != 8 or total != 4 * height * width:
        raise ValueError("the run lengths of a brush are not those of a picture of this size")
    words = np.zeros(total, np.uint8)
    filled = 0
    while filled < total:
        is_repeated = reader.number(1)
        kind = reader.number(2)
        length = reader.number(sizes[kind]) + 1
        end = filled + length
        if end > total:
            raise ValueError("the run lengths of a brush are too long")
        run = reader.take(8 if is_repeated else 8 * length)
        words[filled:end] = np.packbits(run)
        filled = end
    picture = words.reshape(height, width, 4)
    inside: Region = picture[..., 3] > 127  # alpha
    return inside


def is_interface(path: Path) -> bool:
    """Return True if a file is a labelling interface that was written here."""
    if not is_regular(path):
        return False
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(_HEAD)) == _HEAD.encode()
    return False


def labelling_interface(classes: Sequence[str]) -> str:
    """Return the XML to paste under "Labeling Interface" of a project."""
    colours = voc_palette().tolist()
    lines = [_HEAD]
    for label, name in enumerate(classes, start=1):
        red, green, blue = colours[label]
        colour = f"#{red:02x}{green:02x}{blue:02x}"
        lines.append(f'    <Label value={quoteattr(name)} background="{colour}"/>')
    return "\n".join([*lines, "  </BrushLabels>", "</View>", ""])
