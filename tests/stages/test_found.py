"""What is said of masks: shares counted by hand, tags that are missing, and all photos in a line."""

import json

import numpy as np

from tagmask.labels import as_percent
from tagmask.stages.found import FoundTags, describe, not_found, shares_in

CLASSES = ("cat", "dog", "sofa")


def test_shares_by_hand() -> None:
    mask = np.zeros((4, 5), np.uint8)
    mask[0, :] = 2
    mask[1, 0] = 3
    mask[2, :2] = 255  # unsure: no class, but a part of the photo
    assert shares_in(mask, 3) == {1: 5 / 20, 2: 1 / 20}
    assert shares_in(mask, 2) == {1: 5 / 20}


def test_a_few_pixels_are_not_nothing() -> None:
    assert as_percent(0) == "0.0 %"
    assert as_percent(1e-6) == "under 0.1 %"
    assert as_percent(0.001) == "0.1 %"
    assert as_percent(0.12345) == "12.3 %"
    assert as_percent(1) == "100.0 %"


def test_the_largest_comes_first() -> None:
    assert describe({0: 0.1, 2: 0.25}, CLASSES) == "classes: sofa 25.0 %, cat 10.0 % of the photo"
    assert describe({}, CLASSES) == "the mask is all background."


def test_tags_that_are_missing_are_named_once_with_what_it_means() -> None:
    assert not_found({0: 0.1}, ["cat"], CLASSES) == ""
    assert not_found({0: 0.1}, [], CLASSES) == ""
    one = not_found({0: 0.1}, ["dog", "cat", "dog"], CLASSES)
    assert one.startswith("not found: dog; no pixel was given this tag: it is not on the photo")
    two = not_found({}, ["dog", "cat"], CLASSES)
    assert two.startswith("not found: dog, cat; no pixel was given these tags: they are")


def counted(are_told: bool) -> FoundTags:
    found = FoundTags(CLASSES, are_told)
    found.add({0: 0.2}, [0, 1])
    found.add({0: 0.4, 2: 0.1}, [0])  # a person has corrected the second: there is a sofa
    found.add({}, [1])
    return found


def test_one_line_on_photos_with_tags() -> None:
    """Cat: (0.2 + 0.4) / 2, and over all three photos 0.6 / 3; dog on none of two."""
    line = counted(True).line()
    assert line.startswith(
        "tags found: cat on 2 of its 2 photos (where it is found: 30.0 % of the photo; "
        "over all photos: 20.0 %), dog on 0 of its 2 photos"
    )
    assert "; a tag that was not found is not on the photo, too small" in line
    assert "sofa" not in line
    assert "\n" not in line
    whole = FoundTags(CLASSES, True)
    whole.add({0: 0.5}, [0])
    assert whole.line() == (
        "tags found: cat on 1 of its 1 photos (where it is found: 50.0 % of the photo; "
        "over all photos: 50.0 %)"
    )


def test_one_line_on_photos_without_tags() -> None:
    assert counted(False).line() == (
        "found on 3 photos: cat on 2 (where it is found: 30.0 % of the photo; over all photos: "
        "20.0 %), sofa on 1 (where it is found: 10.0 % of the photo; over all photos: 3.3 %), "
        "nothing on 1"
    )
    assert FoundTags(CLASSES, False).line() == ""


def test_of_many_tags_the_most_frequent_are_named() -> None:
    names = [f"tag {k}" for k in range(11)]
    found = FoundTags(names, False)
    for k in range(11):
        for c in range(k, 11):
            found.add({c: 0.5}, [])
    line = found.line()
    assert "tag 10 on 11 " in line
    assert "tag 7 on 8 " in line
    assert "tag 6 " not in line
    assert line.endswith(" and 7 more")


def test_processes_add_up() -> None:
    whole = counted(True)
    whole.merge(json.loads(json.dumps(counted(True).to_json())))
    assert whole.line() == counted(True).line().replace(" its 2 ", " its 4 ").replace(
        "cat on 2", "cat on 4"
    )
    other = FoundTags(CLASSES, False)
    other.merge(counted(False).to_json())
    assert other.line() == counted(False).line()
