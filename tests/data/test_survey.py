"""What the plan says about tags before anything is trained."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tagmask.data.catalog import Catalog
from tagmask.data.survey import tag_notes, tag_table


def catalog(
    tags: Sequence[tuple[int, ...]], classes: tuple[str, ...] = ("cat", "dog", "sofa")
) -> Catalog:
    return Catalog(classes, [f"photo {i}" for i in range(len(tags))], tags)


def test_tags_are_counted_most_first() -> None:
    assert tag_table(catalog([(0,), (0, 1), (1,), (1, 2), (1,)])) == [
        "dog       4   cat       2   sofa      1"
    ]


def test_nothing_to_say_about_good_tags() -> None:
    assert tag_notes(catalog([(0,), (1,), (2,), (0, 1), (1, 2)] * 10)) == []


def test_a_tag_on_every_photo() -> None:
    (note,) = tag_notes(catalog([(0,), (0, 1), (0, 2)] * 12))
    assert note.startswith(
        'every photo is tagged "cat": there is nothing to tell it from. Add photos without it'
    )


def test_tags_that_always_come_together() -> None:
    (note,) = tag_notes(catalog([(0, 1), (2,), (0, 1, 2)] * 12))
    assert note.startswith(
        '"cat" and "dog" always come together, so they cannot be told apart. Add photos with only'
    )


def test_tags_with_few_photos() -> None:
    (note,) = tag_notes(catalog([(0,), (1,)] * 9 + [(0, 1)] + [(2,)] * 9))
    assert note == (
        '"sofa" (9) has fewer than 10 photos; their masks may be poor. Add photos, or leave the tags out.'
    )


def test_a_tag_that_never_comes_alone() -> None:
    (note,) = tag_notes(catalog([(0,), (0, 1), (2,)] * 12))
    assert note.startswith('every photo tagged "dog" is also tagged "cat", so their masks may be')


def test_tags_that_exclude_each_other() -> None:
    (note,) = tag_notes(catalog([(0,), (1,), (2,)] * 12))
    assert note.startswith("every photo has exactly one of the tags, so they could be told apart")
    assert tag_notes(catalog([(0,), (1,), (2,), ()] * 12)) == []


def test_copies_are_found_by_content_alone(tmp_path: Path) -> None:
    """Two copies under other names, and files of the same size that differ in their first or last byte alone."""
    pixels = np.random.default_rng(0).integers(
        0, 255, (64, 64, 3), dtype=np.uint8
    )  # more than 4096 bytes
    Image.fromarray(pixels).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "b.png").write_bytes(content)
    (tmp_path / "c.png").write_bytes(content[:-1] + b"x")
    (tmp_path / "d.png").write_bytes(b"x" + content[1:])
    names = ["a", "b", "c", "d", "gone"]
    paths = [tmp_path / f"{name}.png" for name in names]
    photos = Catalog(("cat", "dog"), names, [(0,), (0,), (1,), (1,), (1,)], images=paths)
    copies = [note for note in tag_notes(photos) if "copies" in note]
    assert copies[0].startswith("1 photos are copies of others (a = b). Delete them")
