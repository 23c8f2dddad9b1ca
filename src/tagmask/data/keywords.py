"""Keywords in the photos themselves, as Lightroom, digiKam and Apple Photos write them.

XMP   dc:subject, a bag of texts
IPTC  record 2, field 25, one per keyword; UTF-8 if field 90 of record 1 says so, else whatever the writer used

Most programs write both; the union counts. Hierarchies ("animal|dog" of Lightroom, "animal/dog" of digiKam) stand in
fields of their own, which are not read: dc:subject has their last part.
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
    """A row for each picture, with its keywords; a picture that cannot be read has none."""

    def row(path: str) -> Row:
        try:
            return Row(path, path, keywords(images / path))
        except ImageError:
            return Row(path, path, ())

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return Table(
            list(pool.map(row, sorted(path for path in paths if strip_suffix(path) != path))), ()
        )


def keywords(path: Path) -> tuple[str, ...]:
    """The keywords of a photo, each once, without blanks at their ends; ImageError if it is no picture."""
    with opened(path) as image:
        found = [
            *_xmp_subjects(next((image.info[key] for key in _XMP if key in image.info), "")),
            *_iptc(image),
        ]
    return tuple(dict.fromkeys(word.strip() for word in found if word.strip()))


def _xmp_subjects(packet: Any) -> list[str]:
    text = packet.decode("utf-8", "replace") if isinstance(packet, bytes) else str(packet)
    text = text.strip("\0\ufeff \r\n\t")
    try:
        return (
            [item.text or "" for item in parse_xml(text, "XMP").iterfind(_SUBJECT)] if text else []
        )
    except TagmaskError:  # a garbled packet, or one with entities of its own, says nothing
        return []


def _iptc(image: Any) -> list[str]:
    try:
        fields = IptcImagePlugin.getiptcinfo(image) or {}
    except Exception:  # a garbled block, as with EXIF
        return []
    values = fields.get(_KEYWORDS, [])
    return [_decoded(value) for value in (values if isinstance(values, list) else [values])]


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")  # what programs wrote before they wrote UTF-8
