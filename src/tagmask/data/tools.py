"""Tags as other tools keep them; a tool is known by what its file contains.

X-AnyLabeling  NAME.json per image  {"imagePath": "a.jpg", "shapes": […], "tags": ["dog"]}
Label Studio   JSON export          [{"data": {"image": URL}, "annotations": [{"result": [{"type": "choices", …}]}]}, …]
FiftyOne       samples.json         {"samples": [{"filepath": "data/a.jpg", FIELD: {"_cls": "Classifications", …}}, …]}
Hugging Face   metadata.jsonl       {"file_name": "a.jpg", "tags": ["dog"]} on each line
CVAT           annotations.xml      <image name="a.jpg"><tag label="dog"/></image> ("CVAT for images 1.1", also zipped)
"""

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree.ElementTree import Element

from tagmask.data.images import strip_suffix
from tagmask.errors import TagmaskError
from tagmask.files import MAX_TEXT, parse_xml, read_text

Entry = tuple[str, Any, Any]  # place, file and tags, as they were read
TAG_COLUMNS = (
    "tags",
    "labels",
    "label",
    "categories",
    "classes",
    "keywords",
)  # the first of these that is there
_T = TypeVar("_T")


def pick(value: Any, form: type[_T], *keys: str) -> _T:
    """What is below ``keys`` in objects within objects, or an empty ``form`` if there is no such value there."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, form) else form()


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of a list."""
    return (
        (entry for entry in value if isinstance(entry, dict))
        if isinstance(value, list)
        else iter(())
    )


def json_entries(source: Path, value: Any) -> list[Entry] | None:
    """The entries of a tool's JSON file; None if it is of no tool."""
    if pick(value, str, "imagePath") and isinstance(value.get("shapes"), list):
        return [("the file", value["imagePath"], _texts(value.get("tags")))]
    if pick(value, list, "samples") and all(
        isinstance(sample, dict) for sample in value["samples"]
    ):
        return _fiftyone(source, value["samples"])
    if isinstance(value, list) and value and all(isinstance(task, dict) for task in value):
        if any("annotation_id" in task for task in value):
            raise TagmaskError(
                f"{source} is Label Studio's short form JSON-MIN; export the project as JSON."
            )
        if all(isinstance(task.get("data"), dict) for task in value):
            return [
                (f"task {n}", image_of(task["data"]), task_choices(task))
                for n, task in enumerate(value, 1)
            ]
    return None


def line_entries(source: Path, lines: Sequence[tuple[str, Any]]) -> list[Entry] | None:
    """The entries of Hugging Face's metadata.jsonl; None if it is something else."""
    if not lines or not all(isinstance(value, dict) and "file_name" in value for _, value in lines):
        return None
    names = dict.fromkeys(name for _, value in lines for name in value)
    lists = [name for name in names if _is_list_of_tags([value.get(name) for _, value in lines])]
    column = next(
        (name for name in TAG_COLUMNS if name in lists), lists[0] if len(lists) == 1 else None
    )
    if column is None:
        found = f"several: {', '.join(lists)}" if lists else "none"
        raise TagmaskError(
            f'{source} needs one column of lists of tags, and has {found}; call it "tags".'
        )
    return [(place, value["file_name"], value.get(column) or []) for place, value in lines]


def cvat_entries(source: Path) -> list[Entry]:
    """The entries of CVAT's XML, also in the zip that CVAT exports."""
    return [
        (f"image {number}", image.get("name"), [tag.get("label") for tag in image.iterfind("tag")])
        for number, image in enumerate(cvat_images(source), 1)
    ]


def cvat_images(source: Path) -> Iterable[Element]:
    """The images of "CVAT for images 1.1"."""
    root = parse_xml(
        _text_in_zip(source) if zipfile.is_zipfile(source) else read_text(source), source
    )
    if root.tag != "annotations" or root.find("image") is None:
        raise TagmaskError(
            f'{source} lists no images; export the task from CVAT as "CVAT for images 1.1".'
        )
    return root.iterfind("image")


def _text_in_zip(source: Path) -> str:
    try:
        with zipfile.ZipFile(source) as archive:
            if archive.getinfo("annotations.xml").file_size > MAX_TEXT:
                raise TagmaskError(
                    f"{source}: annotations.xml is larger than {MAX_TEXT / 1e9:g} GB; check the file."
                )
            return archive.read("annotations.xml").decode("utf-8-sig")
    except KeyError:
        raise TagmaskError(
            f'{source} holds no annotations.xml; export "CVAT for images 1.1" from CVAT.'
        ) from None
    except (
        OSError,
        ValueError,
        EOFError,
        RuntimeError,
        NotImplementedError,
        zipfile.BadZipFile,
        MemoryError,
    ) as error:
        raise TagmaskError(
            f"{source} cannot be read ({error}); export it from CVAT again."
        ) from None


def task_choices(task: dict[str, Any]) -> list[str]:
    """The choices in all annotations of a Label Studio task that were not cancelled."""
    results = [
        result
        for annotation in objects(task.get("annotations"))
        if annotation.get("was_cancelled") is not True
        for result in objects(annotation.get("result"))
    ]
    return list(
        dict.fromkeys(
            name for result in results for name in _texts(pick(result, list, "value", "choices"))
        )
    )


def image_of(data: dict[str, Any], key: str = "image") -> str | None:
    """The path of a Label Studio task's image: under ``key``, or the first value that names a picture."""
    texts = (
        [data[key]]
        if isinstance(data.get(key), str)
        else [text for text in data.values() if isinstance(text, str)]
    )
    paths = [_path_of(text) for text in texts]
    return next(
        (path for path in paths if strip_suffix(path) != path),
        paths[0] if len(paths) == 1 else None,
    )


def _path_of(address: str) -> str:
    """The path that an address of Label Studio stands for; a plain path stays as it is."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    if not parts.scheme and not address.startswith("/data/"):
        return address
    path = parse_qs(parts.query).get("d", [""])[0] or unquote(parts.path)
    return (
        path.rpartition("/")[2] if path.startswith("/data/upload/") else path
    )  # uploads lie in no folder of the user


def _fiftyone(source: Path, samples: list[dict[str, Any]]) -> list[Entry]:
    kinds = ("Classifications", "Classification")
    fields = list(
        dict.fromkeys(k for s in samples for k, v in s.items() if pick(v, str, "_cls") in kinds)
    )
    if not fields or (len(fields) > 1 and "ground_truth" not in fields):
        found = f"several: {', '.join(fields)}" if fields else "none"
        raise TagmaskError(
            f'{source} needs one field of Classifications, and has {found}; call it "ground_truth".'
        )
    field = "ground_truth" if "ground_truth" in fields else fields[0]
    return [
        (f"sample {n}", s.get("filepath"), list(_labels(s.get(field))))
        for n, s in enumerate(samples, 1)
    ]


def _labels(value: Any) -> Iterator[Any]:
    single = (
        [value]
        if pick(value, str, "_cls") == "Classification"
        else pick(value, list, "classifications")
    )
    return (label.get("label") for label in objects(single))


def _texts(value: Any) -> list[str]:
    """The texts in a list that are not blank."""
    return (
        [text for text in value if isinstance(text, str) and text.strip()]
        if isinstance(value, list)
        else []
    )


def _is_list_of_tags(values: Sequence[Any]) -> bool:
    given = [value for value in values if value is not None]
    strings = all(
        isinstance(value, list) and all(isinstance(tag, str) for tag in value) for value in given
    )
    return strings and any(given)
