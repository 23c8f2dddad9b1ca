"""A split into train and val that gives every tag its share of both."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping

from tagmask.errors import first_of


def split_by_tag(tags: Mapping[str, Collection[str]], fraction: float, seed: int) -> set[str]:
    """The names of the images for validation, of all names with their tags.

    The rarest tag chooses first: of its images, in an order drawn by ``seed``, ``fraction`` go to val; then the next.
    No tag loses its last image of train. Images are added until val has its ``fraction`` of all. The split depends on
    names, tags and seed only.
    """
    key = str(seed).encode()
    order = sorted(
        tags,
        key=lambda name: hashlib.blake2b(name.encode("utf-8", "surrogateescape"), key=key).digest(),
    )
    left = Counter(tag for names in tags.values() for tag in set(names))  # images of train
    wanted = {
        tag: max(1, round(fraction * count)) if fraction else 0 for tag, count in left.items()
    }
    val: set[str] = set()

    def move(name: str) -> None:
        if (
            name not in val
            and all(left[tag] > 1 for tag in tags[name])
            and len(val) < len(tags) - 1
        ):
            val.add(name)
            left.subtract(set(tags[name]))

    for tag in sorted(wanted, key=lambda tag: (left[tag], tag)):
        total = left[tag] + sum(tag in tags[name] for name in val)
        for name in order:
            if tag in tags[name] and total - left[tag] < wanted[tag]:
                move(name)
    for name in order:
        if len(val) < round(fraction * len(tags)):
            move(name)
    return val


def tell_split(tags: Mapping[str, Collection[str]], val: Collection[str], seed: int) -> list[str]:
    """A sentence on the sizes of the parts, and one on tags that are missing in val."""
    counts = f"{len(tags) - len(val)} images for train and {len(val)} for val"
    every, there = ({tag for name in names for tag in tags[name]} for names in (tags, val))
    absent = sorted(every - there)
    note = f"no image of val carries the tags {first_of(absent)}; there are too few."
    return [
        f"{counts}, divided by tag with --split-seed {seed}.",
        *([note] if absent and val else []),
    ]
