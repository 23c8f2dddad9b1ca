"""Tags as other tools keep them; a tool is known by what its file contains.

X-AnyLabeling  NAME.json per image
               {"imagePath": "a.jpg", "shapes": […], "tags": ["dog"]}
Label Studio   JSON export
               [{"data": {"image": URL}, "annotations": [{"result": [{"type": "choices", …}]}]}, …]
FiftyOne       samples.json
               {"samples": [{"filepath": "data/a.jpg", FIELD: {"_cls": "Classifications", …}}, …]}
Hugging Face   metadata.jsonl
               {"file_name": "a.jpg", "tags": ["dog"]} on each line
CVAT           annotations.xml ("CVAT for images 1.1", also zipped)
               <image name="a.jpg"><tag label="dog"/></image>
"""

import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeGuard, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree.ElementTree import Element

from tagmask.data.images import strip_suffix
from tagmask.errors import TagmaskError
from tagmask.files import MAX_TEXT, check_readable, parse_xml, read_text

Entry = tuple[str, Any, Any]  # place, file and tags, as they were read
# the first of these that a table has is its column of tags
TAG_COLUMNS = ("tags", "labels", "label", "categories", "classes", "keywords")
_GROUND_TRUTH = "ground_truth"  # FiftyOne's own name for a field of tags
ZIP_FAULTS = (
    OSError,
    ValueError,
    EOFError,
    RuntimeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
    MemoryError,
)
_T = TypeVar("_T")


def pick(value: Any, form: type[_T], *keys: str) -> _T:
    """Return what is below some keys in objects within objects.

    Args:
        value: the outermost object.
        form: the type that is wanted; an empty one is returned if there is no such value.
        *keys: the keys from the outermost object inwards.
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, form) else form()


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Return the objects of a list; none if it is no list."""
    if not isinstance(value, list):
        return iter(())
    return (entry for entry in value if isinstance(entry, dict))


def json_entries(source: Path, value: Any) -> list[Entry] | None:
    """Return the entries of a tool's JSON file; None if it is of no tool.

    Args:
        source: what an error calls the file.
        value: what the file holds.

    Raises:
        TagmaskError: if the file is of a tool, but not as it is needed.
    """
    if pick(value, str, "imagePath") and isinstance(value.get("shapes"), list):
        return [("the file", value["imagePath"], _texts(value.get("tags")))]
    samples = pick(value, list, "samples")
    if samples and all(isinstance(sample, dict) for sample in samples):
        return _fiftyone_entries(source, samples)
    if isinstance(value, list) and value and all(isinstance(task, dict) for task in value):
        return _label_studio_entries(source, value)
    return None


def _label_studio_entries(source: Path, tasks: list[dict[str, Any]]) -> list[Entry] | None:
    """Return the entries of Label Studio's tasks; None if these are no tasks."""
    if any("annotation_id" in task for task in tasks):
        raise TagmaskError(
            f"{source} is Label Studio's short form JSON-MIN; export the project as JSON."
        )
    if not all(isinstance(task.get("data"), dict) for task in tasks):
        return None
    entries: list[Entry] = []
    for number, task in enumerate(tasks, 1):
        entries.append((f"task {number}", image_of(task["data"]), task_choices(task)))
    return entries


def line_entries(source: Path, lines: Sequence[tuple[str, Any]]) -> list[Entry] | None:
    """Return the entries of Hugging Face's metadata.jsonl; None if it is something else.

    Args:
        source: what an error calls the file.
        lines: the lines, each with its place ("line 3") and its value.

    Raises:
        TagmaskError: if there is no column of tags, or more than one.
    """
    if not lines:
        return None
    names: dict[str, None] = {}  # each once, in order
    for _, value in lines:
        if not isinstance(value, dict) or "file_name" not in value:
            return None
        names.update(dict.fromkeys(value))
    lists = []
    for name in names:
        if _is_list_of_tags([value.get(name) for _, value in lines]):
            lists.append(name)
    column = next((name for name in TAG_COLUMNS if name in lists), None)
    if column is None and len(lists) == 1:
        column = lists[0]
    if column is None:
        found = f"several: {', '.join(lists)}" if lists else "none"
        raise TagmaskError(
            f'{source} needs one column of lists of tags, and has {found}; call it "tags".'
        )
    return [(place, value["file_name"], value.get(column) or []) for place, value in lines]


def cvat_entries(source: Path) -> list[Entry]:
    """Return the entries of CVAT's XML, also in the zip that CVAT exports."""
    entries: list[Entry] = []
    for number, image in enumerate(cvat_images(source), 1):
        tags = [tag.get("label") for tag in image.iterfind("tag")]
        entries.append((f"image {number}", image.get("name"), tags))
    return entries


def cvat_images(source: Path) -> Iterable[Element]:
    """Return the images of "CVAT for images 1.1"."""
    check_readable(source)
    is_zip = source.suffix.lower() == ".zip" or zipfile.is_zipfile(source)
    text = _text_in_zip(source) if is_zip else read_text(source)
    root = parse_xml(text, source)
    if root.tag != "annotations" or root.find("image") is None:
        raise TagmaskError(
            f'{source} lists no images; export the task from CVAT as "CVAT for images 1.1".'
        )
    return root.iterfind("image")


def _text_in_zip(source: Path) -> str:
    """Return the text of annotations.xml in a zip."""
    try:
        with zipfile.ZipFile(source) as archive:
            if archive.getinfo("annotations.xml").file_size > MAX_TEXT:
                raise TagmaskError(
                    f"{source}: annotations.xml is larger than {MAX_TEXT / 1e9:g} GB; "
                    "check the file."
                )
            return archive.read("annotations.xml").decode("utf-8-sig")
    except KeyError:
        raise TagmaskError(
            f'{source} holds no annotations.xml; export "CVAT for images 1.1" from CVAT.'
        ) from None
    except ZIP_FAULTS as error:
        raise TagmaskError(
            f"{source} cannot be read ({error}); export it from CVAT again."
        ) from None


def task_choices(task: dict[str, Any]) -> list[str]:
    """Return the choices in all annotations of a Label Studio task that were not cancelled."""
    choices: dict[str, None] = {}  # each once, in order
    for annotation in objects(task.get("annotations")):
        if annotation.get("was_cancelled") is True:
            continue
        for result in objects(annotation.get("result")):
            names = _texts(pick(result, list, "value", "choices"))
            choices.update(dict.fromkeys(names))
    return list(choices)


def image_of(data: dict[str, Any], key: str = "image") -> str | None:
    """Return the path of a Label Studio task's image; None if there is none.

    Args:
        data: the task's data.
        key: where the image is. If there is no text, the first value that names a picture counts.
    """
    if isinstance(data.get(key), str):
        texts = [data[key]]
    else:
        texts = [text for text in data.values() if isinstance(text, str)]
    paths = [_path_of(text) for text in texts]
    for path in paths:
        if strip_suffix(path) != path:
            return path
    return paths[0] if len(paths) == 1 else None


def _path_of(address: str) -> str:
    """Return the path that an address of Label Studio stands for; a plain path stays as it is."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    if not parts.scheme and not address.startswith("/data/"):
        return address
    # files of a local storage are served under one address, with their path as the query
    query = parse_qs(parts.query)
    local = query.get("d", [""])[0]
    path = local or unquote(parts.path)
    if path.startswith("/data/upload/"):
        return path.rpartition("/")[2]  # uploads lie in no folder of the user
    return path


def _fiftyone_entries(source: Path, samples: list[dict[str, Any]]) -> list[Entry]:
    """Return the entries of FiftyOne's samples."""
    fields: list[str] = []
    for sample in samples:
        for name, value in sample.items():
            is_tags = pick(value, str, "_cls") in ("Classifications", "Classification")
            if is_tags and name not in fields:
                fields.append(name)
    if not fields or (len(fields) > 1 and _GROUND_TRUTH not in fields):
        found = f"several: {', '.join(fields)}" if fields else "none"
        raise TagmaskError(
            f'{source} needs one field of Classifications, and has {found}; call it "ground_truth".'
        )
    field = _GROUND_TRUTH if _GROUND_TRUTH in fields else fields[0]
    entries: list[Entry] = []
    for number, sample in enumerate(samples, 1):
        labels = _fiftyone_labels(sample.get(field))
        entries.append((f"sample {number}", sample.get("filepath"), labels))
    return entries


def _fiftyone_labels(value: Any) -> list[Any]:
    """Return the labels of a field, which holds one classification or several."""
    if pick(value, str, "_cls") == "Classification":
        classifications = [value]
    else:
        classifications = pick(value, list, "classifications")
    return [label.get("label") for label in objects(classifications)]


def is_list_of_texts(value: Any) -> TypeGuard[list[str]]:
    """Return True if a value is a list of texts, or an empty list."""
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _texts(value: Any) -> list[str]:
    """Return the texts in a list that are not blank; none if it is no list."""
    if not isinstance(value, list):
        return []
    return [text for text in value if isinstance(text, str) and text.strip()]


def _is_list_of_tags(values: Sequence[Any]) -> bool:
    """Return True if a column holds lists of texts or nothing, and not only empty lists."""
    given = [value for value in values if value is not None]
    return all(is_list_of_texts(value) for value in given) and any(given)
