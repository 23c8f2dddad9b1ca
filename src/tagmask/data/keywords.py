"""Keywords in the photos themselves or in .xmp files beside them.

XMP   dc:subject                    words, of nearly every program
      lr:hierarchicalSubject        "animal|dog", of Lightroom
      digiKam:TagsList              "animal/dog", of digiKam
      MicrosoftPhoto:LastKeywordXMP "animal/dog", of Windows
IPTC  record 2, field 25            one per keyword, at most 64 bytes; UTF-8 if field 90 of record 1
                                    says so, else in whatever set of characters the writer used
EXIF  XPKeywords                    "dog;cat", of Windows

Programs write the same keyword to several of these places; it counts once. Of a hierarchy the last
part counts, or its whole path, and the words of dc:subject that are other parts of it do not.
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from PIL import ExifTags, IptcImagePlugin

from tagmask.data.images import opened, strip_suffix
from tagmask.data.table import Row, Table
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import is_regular, parse_xml

EMBEDDED = Path("embedded")  # value of --tags: of a hierarchy the last part
EMBEDDED_PATHS = Path("embedded-paths")  # its whole path
_XMP = ("xmp", "XML:com.adobe.xmp")  # where Pillow puts it: JPEG, WebP, TIFF, AVIF; PNG
_KEYWORDS = (2, 25)
_LONGEST = 64  # bytes of a keyword in IPTC
_MOST_XMP = 16 << 20  # bytes of a .xmp file
_LI = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}li"
_SUBJECT = "{http://purl.org/dc/elements/1.1/}subject"
_HIERARCHIES = {  # field: what is between the parts
    "{http://ns.adobe.com/lightroom/1.0/}hierarchicalSubject": "|",
    "{http://www.digikam.org/ns/1.0/}TagsList": "/",
    "{http://ns.microsoft.com/photo/1.0/}LastKeywordXMP": "/",
    "{http://ns.microsoft.com/photo/1.0}LastKeywordXMP": "/",
}
_INTERNAL = "_Digikam_"  # digiKam's notes to itself begin so
# sets of characters that programs wrote before UTF-8, the likely ones first
_OLD_SETS = (
    *("latin-1", "cp1252", "iso8859-2", "cp1250", "iso8859-15", "mac-roman"),
    *("cp1251", "iso8859-5", "koi8-r", "cp1253", "cp1254", "cp932", "gb18030", "euc-kr"),
)


@dataclass
class _Found:
    """What a photo says."""

    words: list[str] = field(default_factory=list)
    paths: list[tuple[str, ...]] = field(default_factory=list)  # hierarchies, from the top
    old: list[bytes] = field(default_factory=list)  # IPTC's keywords


def embedded_table(images: Path, paths: Iterable[str], whole_paths: bool = False) -> Table:
    """Make a row for each picture, with its keywords; a picture that cannot be read has none.

    Args:
        images: the folder of the images.
        paths: the files in it; those that have no suffix of a picture are left out.
        whole_paths: take hierarchies as their whole path instead of their last part.
    """
    listed = sorted(paths)
    sidecars = {path.lower(): path for path in listed if path.lower().endswith(".xmp")}

    def row(path: str) -> Row:
        beside = []
        for name in (f"{path}.xmp", f"{strip_suffix(path)}.xmp"):
            if name.lower() in sidecars:
                beside.append(images / sidecars[name.lower()])
        try:
            return Row(path, path, keywords(images / path, beside, whole_paths))
        except ImageError:
            return Row(path, path, ())

    pictures = [path for path in listed if strip_suffix(path) != path]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return Table(list(pool.map(row, pictures)), ())


def keywords(
    path: Path, sidecars: Sequence[Path] = (), whole_paths: bool = False
) -> tuple[str, ...]:
    """Return the keywords of a photo, each once, without blanks at their ends.

    Args:
        path: the photo.
        sidecars: .xmp files that belong to it.
        whole_paths: take hierarchies as their whole path, "animal/dog", instead of "dog".

    Raises:
        ImageError: if the file is no picture.
    """
    found = _Found()
    with opened(path) as image:
        packet = next((image.info[key] for key in _XMP if key in image.info), "")
        _read_xmp(packet, found)
        found.words += _exif_keywords(image)
        found.old = _iptc_keywords(image)
    for file in sidecars:
        with suppress(OSError):
            if is_regular(file) and file.stat().st_size <= _MOST_XMP:
                _read_xmp(file.read_bytes(), found)
    return tuple(dict.fromkeys(_merged(found, whole_paths)))


def _merged(found: _Found, whole_paths: bool) -> list[str]:
    """Return the keywords, one word where several places say the same."""
    words = [_clean(word) for word in found.words]
    paths = []
    for path in found.paths:
        parts = tuple(part for part in map(_clean, path) if part)
        if parts and not parts[0].startswith(_INTERNAL):
            paths.append(parts)
    # what IPTC says again is known by the longer words
    known = [*words]
    for parts in paths:
        known += parts
    words += _new_words(found.old, known)
    # a path that goes on in another path of the photo is no keyword of its own
    ends = [path for path in paths if not any(_goes_on(path, other) for other in paths)]
    in_paths = {part for path in paths for part in path}
    merged = ["/".join(path) if whole_paths else path[-1] for path in ends]
    merged += [word for word in words if word and word not in in_paths]
    return merged


def _goes_on(path: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return True if a path is the beginning of a longer one."""
    return len(other) > len(path) and other[: len(path)] == path


def _clean(word: str) -> str:
    """Return a keyword without blanks at its ends, and in composed characters."""
    return unicodedata.normalize("NFC", word.strip("\0 \t\r\n"))


def _new_words(old: Sequence[bytes], known: Sequence[str]) -> list[str]:
    """Return the keywords of IPTC that no other place has.

    IPTC cuts a keyword at 64 bytes, and its set of characters may be unknown. If another place has
    the same words, they show which set it is; the remaining words are read in that set.
    """
    likely = "latin-1"
    unmatched = []
    for value in old:
        name = _set_of(value, known)
        if not name:
            unmatched.append(value)
        elif name != "utf-8" and not value.isascii():
            likely = name
    words = []
    for value in unmatched:
        with suppress(UnicodeDecodeError):
            # a cut may go through the last character
            cut = value if len(value) < _LONGEST else _whole_characters(value)
            words.append(_clean(cut.decode()))
            continue
        words.append(_clean(value.decode(likely, "replace")))
    return words


def _set_of(value: bytes, known: Sequence[str]) -> str:
    """Return the character set in which a keyword is a known word; empty if in none."""
    for name in ("utf-8", *_OLD_SETS):
        for word in known:
            code = word.encode(name, "replace")
            if value == code or (len(value) >= _LONGEST - 3 and code.startswith(value)):
                return name
    return ""


def _whole_characters(value: bytes) -> bytes:
    """Return UTF-8 without a character at its end that was cut."""
    for length in range(len(value), max(len(value) - 4, 0), -1):
        with suppress(UnicodeDecodeError):
            value[:length].decode()
            return value[:length]
    return value


def _read_xmp(packet: Any, found: _Found) -> None:
    """Read the keywords in an XMP packet, which may be bytes or a text."""
    text = packet.decode("utf-8", "replace") if isinstance(packet, bytes) else str(packet)
    text = text.strip("\0\ufeff \r\n\t")
    if not text:
        return
    try:
        root = parse_xml(text, "XMP")
    except TagmaskError:  # a garbled packet, or one with entities of its own, says nothing
        return
    found.words += _items(root, _SUBJECT)
    for name, mark in _HIERARCHIES.items():
        found.paths += [tuple(item.split(mark)) for item in _items(root, name)]


def _items(root: Element, name: str) -> list[str]:
    """Return the texts of a field's list."""
    return [item.text or "" for item in root.iterfind(f".//{name}//{_LI}")]


def _exif_keywords(image: Any) -> list[str]:
    """Return the keywords that Windows writes: UTF-16, separated by semicolons."""
    try:
        value = image.getexif().get(ExifTags.Base.XPKeywords, b"")
        code = value.encode("latin-1") if isinstance(value, str) else bytes(value)
    except Exception:  # a garbled block
        return []
    return re.split("[;\0]", code.decode("utf-16-le", "ignore"))


def _iptc_keywords(image: Any) -> list[bytes]:
    """Return the keywords in a photo's IPTC block, as they are stored."""
    try:
        fields = IptcImagePlugin.getiptcinfo(image) or {}
    except Exception:  # a garbled block, as with EXIF
        return []
    values = fields.get(_KEYWORDS, [])
    if not isinstance(values, list):
        values = [values]
    return [value.strip(b"\0 ") for value in values if isinstance(value, bytes)]
