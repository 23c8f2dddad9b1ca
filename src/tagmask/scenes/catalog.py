"""The built-in data set: photo-like scenes with exact masks, drawn on demand and determined by (seed, index) alone.

The scenes are made to separate methods: only a small part of an object reveals its class (plain maps cover too
little), the background often goes with the class (plain maps leak), and an object is uniform and unlike its
surroundings (affinity between patches is a real cue).

A scene is drawn in two steps. `lay_out` places polygons on a canvas of twice the size, which determines the mask and
the tags. `paint` turns the same canvas into a picture with light, shadows, textures and noise.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from tagmask.data.catalog import Catalog
from tagmask.errors import TagmaskError
from tagmask.scenes.grounds import GROUNDS, Brush, Field, paint_ground
from tagmask.scenes.objects import BODY_COLOURS, CLASSES, FAVOURITES, Colour, Shape, build

__all__ = ["CLASSES", "Layout", "Scene", "Scenes", "Thing", "draw_scene", "lay_out", "paint"]

CODES = 32  # per object: on the canvas k * CODES + 1 is the body of object k, the codes after it are its class part
MIN_VISIBLE = 0.02  # of the picture, for each object
MIN_SHOWN = 0.55  # of the pixels of an object, and of its class part, that must stay uncovered by later objects
BACKGROUND_BOND = 0.3  # probability that the first object's class determines the background
BODY_BOND = 0.85  # probability that an object has the favourite colour of its class
SMALLEST = 32
KEPT = (
    8000  # pictures cached in memory, about 20 kB each: drawing takes longer than a training step
)


@dataclass(frozen=True)
class Scene:
    """A picture with its exact mask."""

    image: NDArray[np.uint8]  # (H, W, 3)
    mask: NDArray[np.uint8]  # (H, W): 0 = background, c + 1 = class c
    tags: tuple[int, ...]  # sorted classes that occur in the mask


@dataclass(frozen=True)
class Thing:
    """An object on the canvas."""

    label: int
    colours: tuple[Colour, ...]  # of the codes after that of the body
    middle: tuple[float, float]  # (x, y) in pixels of the picture
    reach: float  # half its longer side, in pixels


@dataclass(frozen=True)
class Layout:
    """What is where: `canvas` (2H, 2W) holds a code for each quarter of a pixel, 0 = background."""

    canvas: Image.Image
    things: tuple[Thing, ...]  # from back to front
    ground: str

    @property
    def mask(self) -> NDArray[np.uint8]:
        """(H, W): each pixel belongs to what covers most of its quarters; on ties, to the frontmost."""
        owners, front = _owners(np.asarray(self.canvas)), range(len(self.things), -1, -1)
        votes = [_quarters(owners == number) for number in front]
        labels = np.array([0, *(thing.label + 1 for thing in self.things)], dtype=np.uint8)[::-1]
        winner: NDArray[np.uint8] = labels[np.argmax(votes, axis=0)]
        return winner

    @property
    def tags(self) -> tuple[int, ...]:
        """Sorted classes that occur in the mask."""
        return tuple(sorted({thing.label for thing in self.things}))


def _owners(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What is where on the canvas: 0 = background, k + 1 = object k."""
    return (codes + np.uint8(CODES - 1)) // np.uint8(CODES)


def _quarters(inside: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """How many quarters of each pixel are inside: (2H, 2W) -> (H, W), 0..4."""
    n = inside.view(np.uint8)
    total: NDArray[np.uint8] = n[0::2, 0::2] + n[0::2, 1::2] + n[1::2, 0::2] + n[1::2, 1::2]
    return total


def _place(
    shapes: list[Shape], label: int, rng: np.random.Generator, height: int, width: int
) -> tuple[Thing, list[Shape]]:
    """Turn, scale and move an object to a random place, mostly inside the frame; shapes are then in pixels."""
    turn = rng.normal(0, 0.16)
    flip = -1.0 if rng.random() < 0.5 else 1.0
    c, s = math.cos(turn), math.sin(turn)
    rotation = np.array([[flip * c, flip * s], [-s, c]])
    turned = np.vstack([shape.points for shape in shapes]) @ rotation
    low, high = turned.min(axis=0), turned.max(axis=0)
    extent = rng.uniform(0.4, 0.68) * np.sqrt(height * width)
    extent = min(extent, 0.92 * min(height, width))
    scale = extent / (high - low).max()
    half = (high - low) * scale / 2
    room = (
        np.array([width, height]) / 2 - 0.9 * half
    )  # up to a twentieth of the object may leave the frame
    middle = np.array([width, height]) / 2 + rng.uniform(-1, 1, size=2) * np.maximum(room, 0)
    colours = tuple(dict.fromkeys(shape.colour for shape in shapes if shape.colour is not None))
    thing = Thing(label, colours, (float(middle[0]), float(middle[1])), float(half.max()))
    moved = (turned - (low + high) / 2) * scale + middle
    ends = accumulate(len(shape.points) for shape in shapes)
    return thing, [
        Shape(moved[end - len(s.points) : end], s.colour)
        for end, s in zip(ends, shapes, strict=True)
    ]


def _draw(canvas: Image.Image, shapes: list[Shape], thing: Thing, index: int) -> None:
    pen = ImageDraw.Draw(canvas)
    code = {colour: index * CODES + 2 + i for i, colour in enumerate(thing.colours)}
    for shape in shapes:
        fill = index * CODES + 1 if shape.colour is None else code[shape.colour]
        pen.polygon(
            (2 * shape.points - 0.5).ravel().tolist(), fill=fill
        )  # PIL's (0, 0) is a pixel's centre


def _counts(canvas: Image.Image, things: int) -> NDArray[np.int64]:
    """Quarters of pixels per object (K, 2): of the whole object, of its class part."""
    histogram = np.array(canvas.histogram()[1 : 1 + things * CODES]).reshape(things, CODES)
    return np.stack([histogram.sum(axis=1), histogram[:, 1:].sum(axis=1)], axis=1)


def lay_out(index: int, *, seed: int = 0, size: int = 96) -> Layout:
    """Choose the frame, the background and one to three objects, each of which stays visible enough."""
    if size < SMALLEST or index < 0 or seed < 0:
        raise TagmaskError(
            f"scene {index} of seed {seed} with {size} pixels cannot be drawn; give an index and a seed of 0 or "
            f"more and at least {SMALLEST} pixels."
        )
    rng = np.random.default_rng([seed, index])
    short = round(size * rng.uniform(0.65, 1.0))
    height, width = (size, short) if rng.random() < 0.35 else (short, size)
    canvas = Image.new("L", (2 * width, 2 * height), 0)
    things: list[Thing] = []
    alone = np.zeros((0, 2), dtype=np.int64)  # each object's counts before later ones cover it
    label = int(rng.integers(len(CLASSES)))
    wanted = 1 + int(rng.choice(3, p=(0.5, 0.4, 0.1)))
    bonded = rng.random() < BACKGROUND_BOND
    ground = (
        FAVOURITES[CLASSES[label]] if bonded else list(GROUNDS)[int(rng.integers(len(GROUNDS)))]
    )
    for _ in range(6 * wanted):
        thing, shapes = _place(build(label, rng), label, rng, height, width)
        trial = canvas.copy()
        _draw(trial, shapes, thing, len(things))
        counts = _counts(trial, len(things) + 1)
        kept = (counts[:-1] >= MIN_SHOWN * alone).all()
        if kept and counts[:, 0].min() >= MIN_VISIBLE * 4 * height * width:
            canvas, alone = trial, np.vstack([alone, counts[-1:]])
            things.append(thing)
            if len(things) == wanted:
                break
            label = label if rng.random() < 0.1 else int(rng.integers(len(CLASSES)))
    return Layout(canvas, tuple(things), ground)


def _body_colours(
    labels: list[int], around: list[Field], rng: np.random.Generator
) -> list[NDArray[np.float64]]:
    """A colour per object from one palette for all classes, unlike the background and the other objects.

    Each class has a favourite, so that a body hints at the class; only the class part reveals it.
    """
    taken = [np.asarray(mean, dtype=np.float64) for mean in around]
    chosen: list[NDArray[np.float64]] = []
    for label in labels:
        order = rng.permutation(len(BODY_COLOURS))
        if rng.random() < BODY_BOND:
            order = np.array(
                sorted(order, key=lambda colour: colour != label % len(BODY_COLOURS))
            )  # stable
        palette = np.array(BODY_COLOURS, dtype=np.float64)[order] + rng.uniform(-12, 12, size=3)
        gaps = np.linalg.norm(palette[:, None] - np.array(taken), axis=2).min(axis=1)
        far = np.flatnonzero(gaps > 70)
        chosen.append(palette[far[0] if len(far) else gaps.argmax()])
        taken.append(chosen[-1])
    return chosen


def _pattern(brush: Brush, x: Field, y: Field) -> Field:
    """Brightness pattern of a body (H, W), about ±0.12: stripes, spots or mottling, for any class."""
    kind, phase = brush.rng.integers(4), brush.rng.uniform(0, 6)
    turn, count = brush.rng.uniform(0, math.pi), brush.rng.uniform(6, 11)
    if kind >= 2:
        noise = 0.07 * brush.noise(6) if kind == 2 else 0.05 * brush.noise(2.5)
        return noise[: y.shape[0], : x.shape[1]]
    c, s = count * math.cos(turn), count * math.sin(turn)
    along: Field = np.sin(c * x + s * y + phase)
    if kind == 1:
        along = np.tanh(3 * along * np.sin(c * y - s * x))
    return np.float32(0.12) * along


def _flat_colours(layout: Layout, around: list[Field], rng: np.random.Generator) -> Field:
    """The objects in plain colours (H, W, 3), black outside."""
    palette = np.zeros((256, 3))
    for k, colour in enumerate(
        _body_colours([thing.label for thing in layout.things], around, rng)
    ):
        start, others = k * CODES + 1, layout.things[k].colours
        palette[start] = colour
        # the class part takes on a little of the body's colour, and noise
        part = 0.86 * np.array(others) + 0.14 * colour + rng.uniform(-10, 10, size=3)
        palette[start + 1 : start + 1 + len(others)] = part
    flat = layout.canvas.copy()
    flat.putpalette(np.clip(palette, 0, 255).astype(np.uint8).tobytes())
    cover = _quarters(np.asarray(layout.canvas) > 0)  # black is mixed in at edges: undo it
    weight = np.array([0, 4, 2, 4 / 3, 1], dtype=np.float32)[cover]  # (H, W)
    return np.asarray(flat.convert("RGB").reduce(2), dtype=np.float32) * weight[..., None]


def _add(
    picture: Field, flat: Field, layout: Layout, index: int, brush: Brush, sun: tuple[float, float]
) -> None:
    """Add object `index` to the picture, in place: first its shadow, then the lit and textured object."""
    codes, thing = np.asarray(layout.canvas), layout.things[index]
    margin, (middle_x, middle_y) = thing.reach + 7 * brush.unit, thing.middle
    top, left = max(0, int(middle_y - margin)), max(0, int(middle_x - margin))
    window = np.s_[top : int(middle_y + margin) + 1, left : int(middle_x + margin) + 1]
    fine = np.s_[2 * window[0].start : 2 * window[0].stop, 2 * window[1].start : 2 * window[1].stop]
    cover = _quarters(_owners(codes[fine]) == index + 1)  # (h, w), 0..4
    body = _quarters(codes[fine] == index * CODES + 1)
    shift = (1, 0, 3.5 * brush.unit * sun[0], 0, 1, 3.5 * brush.unit * sun[1])
    blurred = Image.fromarray(cover * np.uint8(63)).filter(ImageFilter.BoxBlur(2.2 * brush.unit))
    shadow = blurred.transform(blurred.size, Image.Transform.AFFINE, shift)
    x = (brush.columns[:, window[1]] - middle_x) / thing.reach  # (1, w)
    y = (brush.rows[window[0]] - middle_y) / thing.reach  # (h, 1)
    facing = x * sun[0] + y * sun[1]  # 1 at the lit end
    shade = 0.98 + 0.26 * facing - 0.16 * np.clip(x * x + y * y - 0.25, 0, 1)
    shade += _pattern(brush, x, y) * (np.float32(0.25) * body)
    picture[window] *= 1 - np.asarray(shadow, dtype=np.float32)[..., None] * np.float32(0.5 / 252)
    picture[window] += flat[window] * (np.float32(0.25) * cover * shade)[..., None]


def paint(layout: Layout, rng: np.random.Generator, unit: float) -> NDArray[np.uint8]:
    """The picture (H, W, 3) of a layout; `unit` is the size of this picture over 96 pixels."""
    width, height = layout.canvas.width // 2, layout.canvas.height // 2
    brush = Brush(rng, height, width, unit)
    picture, around = paint_ground(layout.ground, brush)
    bearing = rng.uniform(-2.6, -0.5)  # the light comes from above
    sun = (math.cos(bearing), math.sin(bearing))
    flat = _flat_colours(layout, around, rng)
    picture *= 1 - np.float32(0.25) * _quarters(np.asarray(layout.canvas) > 0)[..., None]
    for k in range(len(layout.things)):
        _add(picture, flat, layout, k, brush, sun)
    light = 1 + 0.16 * (
        sun[0] * (brush.columns / width - 0.5) + sun[1] * (brush.rows / height - 0.5)
    )
    picture *= (light * rng.uniform(0.9, 1.08))[..., None]
    sharp = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))
    soft = np.asarray(sharp.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.6) * unit)))
    grain = np.stack(
        [brush.noise(2 / unit) for _ in range(3)], axis=-1
    )  # two pixels wide at any size
    noisy: Field = soft + rng.uniform(2, 5) * grain
    return np.clip(noisy, 0, 255).astype(np.uint8)


def draw_scene(index: int, *, seed: int = 0, size: int = 96) -> Scene:
    """Scene `index` of the series `seed`; its longer side is `size` pixels, the shorter 0.65 to 1 of that."""
    layout = lay_out(index, seed=seed, size=size)
    return Scene(_paint(layout, index, seed, size), layout.mask, layout.tags)


def _paint(layout: Layout, index: int, seed: int, size: int) -> NDArray[np.uint8]:
    return paint(layout, np.random.default_rng([seed, index, 1]), size / 96)


@lru_cache(maxsize=KEPT)
def _picture(index: int, seed: int, size: int) -> NDArray[np.uint8]:
    """The picture of a scene; read-only, since it is cached."""
    image = _paint(lay_out(index, seed=seed, size=size), index, seed, size)
    image.flags.writeable = False
    return image


class Scenes(Catalog):
    """The first `count` scenes of a series; pictures and masks are drawn on demand."""

    def __init__(self, count: int, seed: int = 0, size: int = 96) -> None:
        if count < 1:
            raise TagmaskError(f"{count} scenes are not a data set; ask for 1 or more.")
        self.seed, self.size = seed, size
        names = (f"scene_{index:06d}" for index in range(count))
        tags = (lay_out(index, seed=seed, size=size).tags for index in range(count))
        super().__init__(CLASSES, names, tags)

    @property
    def has_masks(self) -> bool:
        """Every scene has a mask."""
        return len(self) > 0

    def scene(self, i: int) -> Scene:
        """Picture, mask and tags of item `i`, from one drawing."""
        return draw_scene(self.row(i), seed=self.seed, size=self.size)

    @property
    def identity(self) -> dict[str, int]:
        return {"scene_seed": self.seed}

    def fingerprint(self) -> str:
        """As for any catalog, but different for another seed or size."""
        return hashlib.sha256(
            f"{super().fingerprint()} {self.seed} {self.size}".encode()
        ).hexdigest()[:32]

    def load_image(self, i: int) -> NDArray[np.uint8]:
        return _picture(self.row(i), self.seed, self.size)

    def load_mask(self, i: int) -> NDArray[np.uint8]:
        return lay_out(self.row(i), seed=self.seed, size=self.size).mask
