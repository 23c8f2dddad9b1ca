"""Label Studio: tasks with brush masks as predictions, for people to correct.

A brush mask is an RGBA picture, run-length packed (https://thi.ng/rle-pack, https://labelstud.io/tags/brushlabels). All
numbers are written bit by bit, highest bit first:

    32 bits  number of words: 4 · height · width
     5 bits  bits per word, less 1: 7
    4×4 bits sizes of the four classes of run lengths in bits, less 1: 2, 3, 7, 15
    then for each run: 1 (equal words follow), 2 bits class, 3/4/8/16 bits length less 1, 8 bits the word
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np
import numpy.typing as npt

from tagmask.export.items import Exported, Labelled, Region, regions
from tagmask.files import replacing, write_text
from tagmask.labels import voc_palette

_SIZES = np.array([3, 4, 8, 16])  # bits of a run's length
_LONGEST = 1 << 16
_FROM_NAME, _TO_NAME = "tag", "image"  # of the controls in the labelling interface
_HEAD = f"""<View>
  <Image name="{_TO_NAME}" value="${_TO_NAME}" zoom="true"/>
  <BrushLabels name="{_FROM_NAME}" toName="{_TO_NAME}">"""


def write_label_studio(
    items: Iterable[Labelled],
    classes: Sequence[str],
    path: Path,
    *,
    image_url: str = "/data/local-files/?d={file}",
    pieces: bool = False,
) -> Exported:
    """Write tasks to import, and next to them (``.xml``) the labelling interface that fits them.

    ``image_url`` is where Label Studio finds an image; {file} stands for its path with folders, quoted as in URLs.
    Each class of an image is one brush region, or with ``pieces`` each connected part of it. Unsure pixels belong to
    no region.
    """
    done = Exported(path)
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        for number, item in enumerate(done.checked(items, classes)):
            file.write(",\n" if number else "[\n")
            brushes = [
                brush(region, classes[label - 1], f"{identity}")
                for identity, (label, region) in enumerate(regions(item.mask, pieces), start=1)
            ]
            task = {
                "data": {_TO_NAME: image_url.replace("{file}", quote(item.file))},
                "predictions": [{"model_version": "tagmask", "result": brushes}],
            }
            json.dump(task, file, ensure_ascii=False)
        file.write("\n]\n" if done.images else "[]\n")
    interface = path.with_suffix(".xml")
    write_text(interface, labelling_interface(classes))
    done.notes.append(f"the labelling interface for these tasks: {interface}")
    return done


def brush(region: Region, name: str, identity: str) -> dict[str, Any]:
    """One result of a Label Studio prediction."""
    height, width = region.shape
    return {
        "id": identity,
        "type": "brushlabels",
        "from_name": _FROM_NAME,
        "to_name": _TO_NAME,
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
        "value": {"format": "rle", "rle": pack(region), "brushlabels": [name]},
    }


def pack(region: Region) -> list[int]:
    """A region (H, W) as the bytes of a packed RGBA picture, 255 in all channels inside and 0 outside."""
    flat = region.ravel()
    starts = np.concatenate([[0], np.flatnonzero(flat[1:] != flat[:-1]) + 1])
    words = np.where(flat[starts], 255, 0)
    lengths = 4 * np.diff(starts, append=flat.size)
    pieces = -(-lengths // _LONGEST)  # a run too long for 16 bits is written in pieces
    words = np.repeat(words, pieces)
    left = np.full(len(words), _LONGEST)
    left[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * _LONGEST
    more = left - 1
    kind = np.searchsorted(1 << _SIZES[:3], more, side="right")
    tokens = (
        ((4 | kind) << (_SIZES[kind] + 8)) | more << 8 | words
    )  # 4: the flag before the two bits of the class
    header = f"{4 * flat.size:032b}{7:05b}" + "".join(f"{size - 1:04b}" for size in _SIZES.tolist())
    bits = header + "".join(
        f"{token:b}" for token in tokens.tolist()
    )  # a token begins with its flag, a 1
    bits += "0" * (-len(bits) % 8)
    return list(int(bits, 2).to_bytes(len(bits) // 8, "big"))


def unpack(packed: Sequence[int], shape: tuple[int, int]) -> Region:
    """The region (H, W) of a packed picture, as Label Studio or ``pack`` writes it; ValueError if it is malformed."""
    bits = np.unpackbits(np.array(packed, np.uint8))
    place = 0

    def take(count: int) -> npt.NDArray[np.uint8]:
        nonlocal place
        place += count
        if place > len(bits):
            raise ValueError("the run lengths of a brush end too early")
        return bits[place - count : place]

    def number(count: int) -> int:
        return int("".join(map(str, take(count).tolist())), 2)

    total, word = number(32), number(5) + 1
    sizes = [number(4) + 1 for _ in range(4)]
    if word != 8 or total != 4 * shape[0] * shape[1]:
        raise ValueError("the run lengths of a brush are not those of a picture of this size")
    words, filled = np.zeros(total, np.uint8), 0
    while filled < total:
        repeated = number(1)
        length = number(sizes[number(2)]) + 1
        if filled + length > total:
            raise ValueError("the run lengths of a brush are too long")
        words[filled : filled + length] = np.packbits(take(8 if repeated else 8 * length))
        filled += length
    alpha: Region = words.reshape(*shape, 4)[..., 3] > 127
    return alpha


def is_interface(path: Path) -> bool:
    """Whether a file is a labelling interface that was written here."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(_HEAD)) == _HEAD.encode()
    return False


def labelling_interface(classes: Sequence[str]) -> str:
    """The XML to paste under "Labeling Interface" of a project."""
    colours = voc_palette().tolist()
    lines = [_HEAD]
    for label, name in enumerate(classes, start=1):
        colour = "#{:02x}{:02x}{:02x}".format(*colours[label])
        lines.append(f'    <Label value={quoteattr(name)} background="{colour}"/>')
    return "\n".join([*lines, "  </BrushLabels>", "</View>", ""])
