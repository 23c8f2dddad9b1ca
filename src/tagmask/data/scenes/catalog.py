"""The built-in data set: photo-like scenes with exact masks, determined by (seed, index) alone.

The scenes are made to separate methods: only a small part of an object reveals its class (plain
maps cover too little), the background often goes with the class (plain maps leak), and an object is
uniform and unlike its surroundings (affinity between patches is a real cue).

A scene is drawn on demand, in two steps. `lay_out` places polygons on a canvas of twice the size,
which determines the mask and the tags. `paint` turns the same canvas into a picture with light,
shadows, textures and noise.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from tagmask.data.catalog import Catalog
from tagmask.data.scenes.grounds import GROUNDS, Brush, Field, paint_ground
from tagmask.data.scenes.objects import BODY_COLOURS, CLASSES, FAVOURITES, Colour, Shape, build
from tagmask.errors import TagmaskError

__all__ = ["CLASSES", "Layout", "Scene", "Scenes", "Thing", "draw_scene", "lay_out", "paint"]

# codes per object: on the canvas k * CODES + 1 is the body of object k, the codes after it are its
# class part
CODES = 32
MIN_VISIBLE = 0.02  # of the picture, for each object

# share of the pixels of an object, and of its class part, that later objects must leave uncovered
MIN_SHOWN = 0.55
BACKGROUND_BOND = 0.3  # probability that the first object's class determines the background
BODY_BOND = 0.85  # probability that an object has the favourite colour of its class
SMALLEST = 32

# pictures cached in memory, about 20 kB each: drawing takes longer than a training step
KEPT = 8000


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
    """The objects on a canvas (2H, 2W), which holds a code for each quarter of a pixel."""

    canvas: Image.Image  # 0 = background
    things: tuple[Thing, ...]  # from back to front
    ground: str

    @property
    def mask(self) -> NDArray[np.uint8]:
        """Return the mask (H, W): 0 = background, c + 1 = class c.

        Each pixel belongs to what covers most of its quarters; on ties, to the frontmost.
        """
        owners = _owners(np.asarray(self.canvas))  # (2H, 2W)
        # from front to back, since argmax takes the first of equal votes
        front_first = range(len(self.things), -1, -1)
        votes = [_quarters(owners == number) for number in front_first]  # (K + 1, H, W)
        labels = [thing.label + 1 for thing in reversed(self.things)]
        labels.append(0)
        winner = np.argmax(votes, axis=0)  # (H, W)
        mask: NDArray[np.uint8] = np.array(labels, dtype=np.uint8)[winner]
        return mask

    @property
    def tags(self) -> tuple[int, ...]:
        """Return the sorted classes that occur in the mask."""
        labels = {thing.label for thing in self.things}
        return tuple(sorted(labels))


def _owners(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return what is where on the canvas: 0 = background, k + 1 = object k."""
    return (codes + np.uint8(CODES - 1)) // np.uint8(CODES)


def _quarters(inside: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Count the quarters of each pixel that are inside: (2H, 2W) -> (H, W), 0..4."""
    ones = inside.view(np.uint8)
    halves = ones[0::2] + ones[1::2]  # (H, 2W)
    total: NDArray[np.uint8] = halves[:, 0::2] + halves[:, 1::2]
    return total


def _place(
    shapes: list[Shape],
    label: int,
    rng: np.random.Generator,
    height: int,
    width: int,
) -> tuple[Thing, list[Shape]]:
    """Turn, scale and move an object to a random position, mostly inside the frame.

    The shapes that are returned are in pixels.
    """
    turn = rng.normal(0, 0.16)
    flip = -1.0 if rng.random() < 0.5 else 1.0
    cosine = math.cos(turn)
    sine = math.sin(turn)
    rotation = np.array([[flip * cosine, flip * sine], [-sine, cosine]])
    points = np.vstack([shape.points for shape in shapes])  # (n, 2)
    turned = points @ rotation
    low = turned.min(axis=0)
    high = turned.max(axis=0)

    extent = rng.uniform(0.4, 0.68) * np.sqrt(height * width)
    extent = min(extent, 0.92 * min(height, width))
    scale = extent / (high - low).max()
    half = (high - low) * scale / 2
    centre = np.array([width, height]) / 2
    # up to a twentieth of the object may leave the frame
    room = centre - 0.9 * half
    middle = centre + rng.uniform(-1, 1, size=2) * np.maximum(room, 0)
    turned_middle = (low + high) / 2
    moved = (turned - turned_middle) * scale + middle

    placed = []
    start = 0
    for shape in shapes:
        end = start + len(shape.points)
        placed.append(Shape(moved[start:end], shape.colour))
        start = end
    colours = dict.fromkeys(shape.colour for shape in shapes if shape.colour is not None)
    thing = Thing(
        label,
        colours=tuple(colours),
        middle=(float(middle[0]), float(middle[1])),
        reach=float(half.max()),
    )
    return thing, placed


def _draw(
    canvas: Image.Image,
    shapes: list[Shape],
    thing: Thing,
    index: int,
) -> None:
    """Draw object `index` onto the canvas, in its codes."""
    pen = ImageDraw.Draw(canvas)
    body_code = index * CODES + 1
    codes = {colour: code for code, colour in enumerate(thing.colours, start=body_code + 1)}
    for shape in shapes:
        fill = body_code if shape.colour is None else codes[shape.colour]
        # Pillow's (0, 0) is a pixel's centre
        corners = 2 * shape.points - 0.5
        pen.polygon(corners.ravel().tolist(), fill=fill)


def _counts(canvas: Image.Image, things: int) -> NDArray[np.int64]:
    """Count the quarters of pixels per object (K, 2): of the whole object, of its class part."""
    histogram = canvas.histogram()
    # code 0 is the background
    codes = np.array(histogram[1 : 1 + things * CODES])
    per_object = codes.reshape(things, CODES)
    whole = per_object.sum(axis=1)
    class_part = per_object[:, 1:].sum(axis=1)
    return np.stack([whole, class_part], axis=1)


def lay_out(index: int, *, seed: int = 0, size: int = 96) -> Layout:
    """Choose the frame, the background and one to three objects that stay visible enough.

    Args:
        index: number of the scene in its series, from 0.
        seed: the series, from 0.
        size: longer side of the picture in pixels, at least 32.

    Raises:
        TagmaskError: an argument is too small.
    """
    if size < SMALLEST or index < 0 or seed < 0:
        raise TagmaskError(
            f"scene {index} of seed {seed} with {size} pixels cannot be drawn; give an index and "
            f"a seed of 0 or more and at least {SMALLEST} pixels."
        )
    rng = np.random.default_rng([seed, index])
    short = round(size * rng.uniform(0.65, 1.0))
    is_upright = rng.random() < 0.35
    height = size if is_upright else short
    width = short if is_upright else size
    label = int(rng.integers(len(CLASSES)))
    wanted = 1 + int(rng.choice(3, p=(0.5, 0.4, 0.1)))
    ground = _choose_ground(label, rng)

    canvas = Image.new("L", (2 * width, 2 * height), 0)
    least = MIN_VISIBLE * 4 * height * width  # quarters of pixels
    things: list[Thing] = []
    alone = np.zeros((0, 2), dtype=np.int64)  # each object's counts before later ones cover it
    for _ in range(6 * wanted):
        shapes = build(label, rng)
        thing, placed = _place(shapes, label, rng, height, width)
        trial = canvas.copy()
        _draw(trial, placed, thing, len(things))
        counts = _counts(trial, len(things) + 1)  # (K + 1, 2)
        are_shown = (counts[:-1] >= MIN_SHOWN * alone).all()
        smallest = counts[:, 0].min()
        if not are_shown or smallest < least:
            continue
        canvas = trial
        alone = np.vstack([alone, counts[-1:]])
        things.append(thing)
        if len(things) == wanted:
            break
        if rng.random() >= 0.1:
            label = int(rng.integers(len(CLASSES)))
    return Layout(canvas, tuple(things), ground)


def _choose_ground(label: int, rng: np.random.Generator) -> str:
    """Return the favourite background of a class, or any."""
    if rng.random() < BACKGROUND_BOND:
        return FAVOURITES[CLASSES[label]]
    names = list(GROUNDS)
    return names[int(rng.integers(len(names)))]


def _body_colours(
    labels: list[int],
    around: list[Field],
    rng: np.random.Generator,
) -> list[NDArray[np.float64]]:
    """Choose a colour per object from one palette, unlike the background and the other objects.

    Each class has a favourite, so that a body hints at the class; only the class part reveals it.
    """
    taken = [np.asarray(mean, dtype=np.float64) for mean in around]
    chosen: list[NDArray[np.float64]] = []
    for label in labels:
        order = rng.permutation(len(BODY_COLOURS)).tolist()
        if rng.random() < BODY_BOND:
            favourite = label % len(BODY_COLOURS)
            order.remove(favourite)
            order.insert(0, favourite)
        shift = rng.uniform(-12, 12, size=3)
        palette = np.array(BODY_COLOURS, dtype=np.float64)[order] + shift  # (12, 3)
        differences = palette[:, None] - np.array(taken)  # (12, taken, 3)
        distances = np.linalg.norm(differences, axis=2)
        gaps = distances.min(axis=1)  # (12,), to the nearest colour that is taken
        far = np.flatnonzero(gaps > 70)
        best = far[0] if len(far) else gaps.argmax()
        colour = palette[best]
        chosen.append(colour)
        taken.append(colour)
    return chosen


def _pattern(brush: Brush, x: Field, y: Field) -> Field:
    """Return a brightness pattern of a body (H, W), about ±0.12, for any class.

    It consists of stripes, of spots, or of coarse or fine mottling.
    """
    kind = brush.rng.integers(4)
    phase = brush.rng.uniform(0, 6)
    turn = brush.rng.uniform(0, math.pi)
    count = brush.rng.uniform(6, 11)
    if kind >= 2:
        height = y.shape[0]
        width = x.shape[1]
        mottling = 0.07 * brush.noise(6) if kind == 2 else 0.05 * brush.noise(2.5)
        return mottling[:height, :width]
    step_x = count * math.cos(turn)
    step_y = count * math.sin(turn)
    wave: Field = np.sin(step_x * x + step_y * y + phase)
    if kind == 1:
        crosswise = np.sin(step_x * y - step_y * x)
        wave = np.tanh(3 * wave * crosswise)
    return np.float32(0.12) * wave


def _flat_colours(
    layout: Layout,
    around: list[Field],
    rng: np.random.Generator,
) -> Field:
    """Return the objects in plain colours (H, W, 3), black outside."""
    labels = [thing.label for thing in layout.things]
    bodies = _body_colours(labels, around, rng)
    palette = np.zeros((256, 3))
    for k, (thing, colour) in enumerate(zip(layout.things, bodies, strict=True)):
        body_code = k * CODES + 1
        first = body_code + 1
        palette[body_code] = colour
        # the class part takes on a little of the body's colour, and noise
        tinted = 0.86 * np.array(thing.colours) + 0.14 * colour
        noise = rng.uniform(-10, 10, size=3)
        palette[first : first + len(thing.colours)] = tinted + noise
    flat = layout.canvas.copy()
    flat.putpalette(_to_uint8(palette).tobytes())
    reduced = flat.convert("RGB").reduce(2)
    colours = np.asarray(reduced, dtype=np.float32)  # (H, W, 3)
    # at edges black is mixed in; dividing by the covered share undoes it
    weights = np.array([0, 4, 2, 4 / 3, 1], dtype=np.float32)
    covered = _quarters(np.asarray(layout.canvas) > 0)  # (H, W)
    return colours * weights[covered][..., None]


def _add(
    picture: Field,
    flat: Field,
    layout: Layout,
    index: int,
    brush: Brush,
    sun: tuple[float, float],
) -> None:
    """Add object `index` to the picture, in place: its shadow, then the lit and textured object."""
    thing = layout.things[index]
    middle_x, middle_y = thing.middle
    sun_x, sun_y = sun
    margin = thing.reach + 7 * brush.unit
    top = max(0, int(middle_y - margin))
    left = max(0, int(middle_x - margin))
    bottom = int(middle_y + margin) + 1
    right = int(middle_x + margin) + 1
    window = np.s_[top:bottom, left:right]
    canvas = np.asarray(layout.canvas)
    codes = canvas[2 * top : 2 * bottom, 2 * left : 2 * right]  # (2h, 2w)
    cover = _quarters(_owners(codes) == index + 1)  # (h, w), 0..4
    body = _quarters(codes == index * CODES + 1)  # (h, w), 0..4

    shadow = _shadow(cover, sun, brush.unit)[..., None]  # (h, w, 1)
    x = (brush.columns[:, left:right] - middle_x) / thing.reach  # (1, w)
    y = (brush.rows[top:bottom] - middle_y) / thing.reach  # (h, 1)
    facing = x * sun_x + y * sun_y  # (h, w), 1 at the lit end
    squared_distance = x * x + y * y
    outer = np.clip(squared_distance - 0.25, 0, 1)
    shade = 0.98 + 0.26 * facing - 0.16 * outer
    pattern = _pattern(brush, x, y)
    shade += pattern * (np.float32(0.25) * body)
    light = np.float32(0.25) * cover * shade
    picture[window] *= 1 - shadow * np.float32(0.5 / 252)
    picture[window] += flat[window] * light[..., None]


def _shadow(
    cover: NDArray[np.uint8],
    sun: tuple[float, float],
    unit: float,
) -> Field:
    """Return the blurred shadow (h, w), 0..252, of what covers 0..4 quarters of each pixel."""
    sharp = Image.fromarray(cover * np.uint8(63))
    blurred = sharp.filter(ImageFilter.BoxBlur(2.2 * unit))
    length = 3.5 * unit
    shift = (1, 0, length * sun[0], 0, 1, length * sun[1])
    shifted = blurred.transform(blurred.size, Image.Transform.AFFINE, shift)
    return np.asarray(shifted, dtype=np.float32)


def paint(
    layout: Layout,
    rng: np.random.Generator,
    unit: float,
) -> NDArray[np.uint8]:
    """Paint the picture of a layout.

    Args:
        layout: the objects and the kind of background.
        rng: random stream for colours, textures and light.
        unit: size of the picture over 96 pixels.

    Returns:
        The picture, uint8 (H, W, 3).
    """
    width = layout.canvas.width // 2
    height = layout.canvas.height // 2
    brush = Brush(rng, height, width, unit)
    picture, around = paint_ground(layout.ground, brush)
    bearing = rng.uniform(-2.6, -0.5)  # the light comes from above
    sun_x = math.cos(bearing)
    sun_y = math.sin(bearing)
    flat = _flat_colours(layout, around, rng)
    covered = _quarters(np.asarray(layout.canvas) > 0)  # (H, W), 0..4
    picture *= 1 - np.float32(0.25) * covered[..., None]
    for k in range(len(layout.things)):
        _add(picture, flat, layout, k, brush, (sun_x, sun_y))

    slope_x = sun_x * (brush.columns / width - 0.5)
    slope_y = sun_y * (brush.rows / height - 0.5)
    light = 1 + 0.16 * (slope_x + slope_y)  # (H, W)
    picture *= (light * rng.uniform(0.9, 1.08))[..., None]
    sharp = Image.fromarray(_to_uint8(picture))
    radius = rng.uniform(0.3, 0.6) * unit
    soft = np.asarray(sharp.filter(ImageFilter.GaussianBlur(radius)))
    # grain is two pixels wide at any size
    channels = [brush.noise(2 / unit) for _ in range(3)]
    grain = np.stack(channels, axis=-1)  # (H, W, 3)
    noisy: Field = soft + rng.uniform(2, 5) * grain
    return _to_uint8(noisy)


def _to_uint8(values: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
    clipped: NDArray[np.uint8] = np.clip(values, 0, 255).astype(np.uint8)
    return clipped


def draw_scene(index: int, *, seed: int = 0, size: int = 96) -> Scene:
    """Draw a scene.

    Args:
        index: number of the scene in its series, from 0.
        seed: the series, from 0.
        size: longer side in pixels, at least 32; the shorter is 0.65 to 1 of that.

    Raises:
        TagmaskError: an argument is too small.
    """
    layout = lay_out(index, seed=seed, size=size)
    image = _paint_scene(layout, index, seed, size)
    return Scene(image, layout.mask, layout.tags)


def _paint_scene(
    layout: Layout,
    index: int,
    seed: int,
    size: int,
) -> NDArray[np.uint8]:
    rng = np.random.default_rng([seed, index, 1])
    return paint(layout, rng, size / 96)


@lru_cache(maxsize=KEPT)
def _picture(index: int, seed: int, size: int) -> NDArray[np.uint8]:
    """Return the picture of a scene; read-only, since it is cached."""
    layout = lay_out(index, seed=seed, size=size)
    image = _paint_scene(layout, index, seed, size)
    image.flags.writeable = False
    return image


class Scenes(Catalog):
    """The first `count` scenes of a series; pictures and masks are drawn on demand."""

    def __init__(self, count: int, seed: int = 0, size: int = 96) -> None:
        """Lay out the scenes, which determines their tags.

        Args:
            count: number of scenes, at least 1.
            seed: the series, from 0.
            size: longer side of the pictures in pixels, at least 32.

        Raises:
            TagmaskError: an argument is too small.
        """
        if count < 1:
            raise TagmaskError(f"{count} scenes are not a data set; ask for 1 or more.")
        self.seed = seed
        self.size = size
        names = (f"scene_{index:06d}" for index in range(count))
        tags = (lay_out(index, seed=seed, size=size).tags for index in range(count))
        super().__init__(CLASSES, names, tags)

    @property
    def has_masks(self) -> bool:
        """Return True if there is a scene, because every scene has a mask."""
        return len(self) > 0

    def scene(self, i: int) -> Scene:
        """Return picture, mask and tags of item `i`, from one drawing."""
        return draw_scene(self.row(i), seed=self.seed, size=self.size)

    @property
    def identity(self) -> dict[str, int]:
        """Return the seed, by which series differ."""
        return {"scene_seed": self.seed}

    def fingerprint(self) -> str:
        """Return a hash as for any catalog, but different for another seed or size."""
        text = f"{super().fingerprint()} {self.seed} {self.size}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def load_image(self, i: int) -> NDArray[np.uint8]:
        """Return the picture of item `i` (H, W, 3), read-only."""
        return _picture(self.row(i), self.seed, self.size)

    def load_mask(self, i: int) -> NDArray[np.uint8]:
        """Return the mask of item `i` (H, W)."""
        layout = lay_out(self.row(i), seed=self.seed, size=self.size)
        return layout.mask
