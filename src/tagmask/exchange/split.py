"""A split into train and val that gives every tag its share of both."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping

from tagmask.errors import first_of


def split_by_tag(
    tags: Mapping[str, Collection[str]],
    fraction: float,
    seed: int,
) -> set[str]:
    """Choose the images for validation.

    The rarest tag chooses first: of its images, in an order drawn by ``seed``, ``fraction`` go to
    val; then the next. No tag loses its last image of train. Images are added until val has its
    ``fraction`` of all. The split depends on names, tags and seed only.

    Args:
        tags: the tags of each image, by name.
        fraction: share of val, 0 … 1; 0 puts all images into train.
        seed: decides which images of a tag are chosen.

    Returns:
        The names of the images of val.
    """
    val: set[str] = set()
    if not fraction:
        return val
    counts: Counter[str] = Counter()  # images with each tag
    for image_tags in tags.values():
        counts.update(set(image_tags))
    in_train = counts.copy()

    def move_to_val(name: str) -> None:
        if name in val or len(val) >= len(tags) - 1:
            return
        if all(in_train[tag] > 1 for tag in tags[name]):
            val.add(name)
            in_train.subtract(set(tags[name]))

    order = _shuffled(tags, seed)
    rarest_first = sorted(counts, key=lambda tag: (counts[tag], tag))
    for tag in rarest_first:
        wanted = max(1, round(fraction * counts[tag]))
        for name in order:
            in_val = counts[tag] - in_train[tag]
            if tag in tags[name] and in_val < wanted:
                move_to_val(name)
    for name in order:
        if len(val) < round(fraction * len(tags)):
            move_to_val(name)
    return val


def _shuffled(names: Collection[str], seed: int) -> list[str]:
    """Return the names in an order that depends on each name and the seed only."""
    key = str(seed).encode()

    def digest(name: str) -> bytes:
        return hashlib.blake2b(name.encode("utf-8", "surrogateescape"), key=key).digest()

    return sorted(names, key=digest)


def tell_split(
    tags: Mapping[str, Collection[str]],
    val: Collection[str],
    seed: int,
) -> list[str]:
    """Write a sentence on the sizes of the parts, and one on tags that are missing in val.

    Args:
        tags: the tags of each image, by name.
        val: the names of the images of val.
        seed: the seed of the split, for the sentence.

    Returns:
        One or two sentences.
    """
    in_train = len(tags) - len(val)
    notes = [
        f"{in_train} images for train and {len(val)} for val, "
        f"divided by tag with --split-seed {seed}."
    ]
    absent = set().union(*tags.values())
    for name in val:
        absent.difference_update(tags[name])
    if absent and val:
        notes.append(
            f"no image of val carries the tags {first_of(sorted(absent))}; there are too few."
        )
    return notes
