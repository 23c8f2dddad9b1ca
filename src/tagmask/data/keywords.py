"""Keywords in the photos themselves, as Lightroom, digiKam and Apple Photos write them.

XMP   dc:subject, a bag of texts
IPTC  record 2, field 25, one per keyword; UTF-8 if field 90 of record 1 says so, else whatever the
      writer used

Most programs write both; the union counts. Hierarchies ("animal|dog" of Lightroom, "animal/dog" of
digiKam) stand in fields of their own, which are not read: dc:subject has their last part.
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from PIL import IptcImagePlugin

from tagmask.data.images import opened, strip_suffix
from tagmask.data.table import Row, Table
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import parse_xml

EMBEDDED = Path("embedded")  # value of --tags
_XMP = ("xmp", "XML:com.adobe.xmp")  # where Pillow puts it: JPEG, WebP, TIFF, AVIF; PNG
_KEYWORDS = (2, 25)
_SUBJECT = (
    ".//{http://purl.org/dc/elements/1.1/}subject//{http://www.w3.org/1999/02/22-rdf-syntax-ns#}li"
)


def embedded_table(images: Path, paths: Iterable[str]) -> Table:
    """Make a row for each picture, with its keywords; a picture that cannot be read has none.

    Args:
        images: the folder of the images.
        paths: the files in it; those that have no suffix of a picture are left out.
    """

    def row(path: str) -> Row:
        try:
            return Row(path, path, keywords(images / path))
        except ImageError:
            return Row(path, path, ())

    pictures = sorted(path for path in paths if strip_suffix(path) != path)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return Table(list(pool.map(row, pictures)), ())


def keywords(path: Path) -> tuple[str, ...]:
    """Return the keywords of a photo, each once, without blanks at their ends.

    Raises:
        ImageError: if the file is no picture.
    """
    with opened(path) as image:
        packet = next((image.info[key] for key in _XMP if key in image.info), "")
        found = [*_xmp_subjects(packet), *_iptc_keywords(image)]
    stripped = [word.strip() for word in found]
    return tuple(dict.fromkeys(word for word in stripped if word))


def _xmp_subjects(packet: Any) -> list[str]:
    """Return the keywords in a photo's XMP packet, which may be bytes or a text."""
    text = packet.decode("utf-8", "replace") if isinstance(packet, bytes) else str(packet)
    text = text.strip("\0\ufeff \r\n\t")
    if not text:
        return []
    try:
        root = parse_xml(text, "XMP")
    except TagmaskError:  # a garbled packet, or one with entities of its own, says nothing
        return []
    return [item.text or "" for item in root.iterfind(_SUBJECT)]


def _iptc_keywords(image: Any) -> list[str]:
    """Return the keywords in a photo's IPTC block."""
    try:
        fields = IptcImagePlugin.getiptcinfo(image) or {}
    except Exception:  # a garbled block, as with EXIF
        return []
    values = fields.get(_KEYWORDS, [])
    if not isinstance(values, list):
        values = [values]
    return [_decoded(value) for value in values]


def _decoded(value: bytes) -> str:
    """Return the text of a keyword."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")  # what programs wrote before they wrote UTF-8
