"""The objects of the built-in scenes: one family of bodies for all classes, and a part that reveals the class.

In an object's coordinates x points right, y points down, and the body is about two units long. The shape of a body
says nothing about the class; the class part is 10 to 25 % of the object.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]  # (n, 2)
Colour = tuple[int, int, int]

BODY_COLOURS: tuple[Colour, ...] = (
    (196, 92, 62),  # terracotta
    (222, 176, 60),  # mustard
    (126, 134, 58),  # olive
    (46, 140, 132),  # teal
    (104, 168, 214),  # sky
    (62, 78, 156),  # indigo
    (142, 92, 168),  # violet
    (218, 134, 152),  # rose
    (234, 218, 184),  # cream
    (124, 82, 56),  # brown
    (92, 104, 122),  # slate
    (146, 200, 150),  # mint
)

INK, WHITE, CREAM, GREY = (30, 28, 34), (246, 244, 238), (240, 224, 180), (168, 178, 190)
RED, ORANGE, YELLOW, PINK = (214, 40, 40), (246, 140, 30), (255, 222, 96), (255, 116, 156)
GREEN, LIME, BLUE, MAGENTA = (24, 172, 84), (206, 228, 30), (34, 74, 224), (206, 30, 150)
CYAN, NAVY, TURQUOISE, WOOD = (70, 232, 240), (28, 44, 104), (36, 190, 196), (110, 72, 40)


@dataclass(frozen=True)
class Shape:
    """A filled polygon; without a colour it has that of the body."""

    points: Points
    colour: Colour | None = None


@dataclass(frozen=True)
class Stamp:
    """Shapes of a class part, placed at `angle` degrees (0 right, 90 down) as seen from the middle of the body."""

    angle: float
    reach: float  # 0 = middle of the body, 1 = on its outline
    scale: float  # of the shapes, for a body of unit area
    shapes: tuple[Shape, ...]
    behind: bool = False  # drawn before the body


def disc(
    x: float, y: float, rx: float, ry: float = 0, start: float = 0, stop: float = 360
) -> Points:
    """An ellipse (a circle without `ry`), or its sector between two angles in degrees."""
    angles = np.radians(np.linspace(start, stop, 25))
    rim = np.stack([x + rx * np.cos(angles), y + (ry or rx) * np.sin(angles)], axis=1)
    return rim if stop - start >= 360 else np.vstack([rim, [[x, y]]])


def box(left: float, top: float, right: float, bottom: float) -> Points:
    """An upright rectangle."""
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]], dtype=np.float64)


def polygon(*points: tuple[float, float]) -> Points:
    """The polygon through these points."""
    return np.array(points, dtype=np.float64)


_COW_HEAD = (
    Shape(
        polygon((-0.55, -0.5), (-1.05, -0.75), (-1.0, -1.25), (-0.75, -0.95), (-0.25, -0.7)), CREAM
    ),
    Shape(polygon((0.55, -0.5), (1.05, -0.75), (1.0, -1.25), (0.75, -0.95), (0.25, -0.7)), CREAM),
    Shape(disc(0, 0, 0.78, 0.9), WHITE),
    Shape(disc(0.36, -0.28, 0.4, 0.46), INK),
    Shape(disc(-0.32, -0.2, 0.15), INK),
    Shape(disc(0.34, -0.2, 0.14), WHITE),
    Shape(disc(0, 0.5, 0.8, 0.54), PINK),
    Shape(disc(-0.28, 0.55, 0.12), INK),
    Shape(disc(0.28, 0.55, 0.12), INK),
)
_CAR_WHEEL = (Shape(disc(0, 0, 1), INK), Shape(disc(0, 0, 0.52), GREY), Shape(disc(0, 0, 0.2), INK))
_CAR_WINDOW = (
    Shape(polygon((-1.5, 0.55), (-0.9, -0.6), (0.9, -0.6), (1.5, 0.55)), INK),
    Shape(polygon((-1.2, 0.38), (-0.75, -0.42), (-0.1, -0.42), (-0.1, 0.38)), (188, 226, 244)),
    Shape(polygon((1.2, 0.38), (0.75, -0.42), (0.1, -0.42), (0.1, 0.38)), (188, 226, 244)),
)
_BOAT_SAIL = (
    Shape(box(-0.09, -2.0, 0.09, 0.4), WOOD),
    Shape(polygon((0.12, -1.95), (1.25, -0.1), (0.12, -0.1)), WHITE),
    Shape(polygon((0.12, -1.1), (0.64, -1.1), (0.94, -0.6), (0.12, -0.6)), GREEN),
    Shape(polygon((-0.12, -1.7), (-0.85, -0.1), (-0.12, -0.1)), GREEN),
)
_MUSHROOM_CAP = (
    Shape(disc(0, 0.05, 1.0, 0.22), CREAM),
    Shape(disc(0, 0, 1.1, 0.95, 180, 360), RED),
    Shape(disc(-0.58, -0.3, 0.2), WHITE),
    Shape(disc(0.02, -0.55, 0.24), WHITE),
    Shape(disc(0.58, -0.28, 0.19), WHITE),
    Shape(disc(0.02, -0.12, 0.14, 0.1), WHITE),
)
_ROBOT_HEAD = (
    Shape(box(-0.07, -1.4, 0.07, -0.7), INK),
    Shape(disc(0, -1.45, 0.2), RED),
    Shape(box(-1.12, -0.25, 1.12, 0.25), INK),
    Shape(box(-0.95, -0.8, 0.95, 0.75), GREY),
    Shape(box(-0.75, -0.5, 0.75, 0.1), INK),
    Shape(disc(-0.36, -0.2, 0.25), CYAN),
    Shape(disc(0.36, -0.2, 0.25), CYAN),
    Shape(box(-0.5, 0.34, 0.5, 0.52), INK),
)
_BIRD_HEAD = (
    Shape(polygon((0.3, -0.55), (1.3, -0.35), (1.9, 0.25), (1.75, 0.45), (0.3, 0.5)), LIME),
    Shape(polygon((1.42, -0.25), (1.9, 0.25), (1.75, 0.45), (1.4, 0.47)), INK),
    Shape(disc(0, 0, 0.8), MAGENTA),
    Shape(disc(0.16, -0.14, 0.34), WHITE),
    Shape(disc(0.2, -0.14, 0.18), INK),
)
_CLOCK_TICKS = tuple(
    Shape(disc(x, y, 0.1), INK) for x, y in ((0.58, 0), (0, 0.58), (-0.58, 0), (0, -0.58))
)
_CLOCK_DIAL = (
    Shape(disc(0, 0, 1), BLUE),
    Shape(disc(0, 0, 0.76), WHITE),
    *_CLOCK_TICKS,
    Shape(polygon((-0.07, 0.1), (-0.07, -0.62), (0.07, -0.62), (0.07, 0.1)), INK),
    Shape(polygon((-0.1, -0.08), (0.46, 0.16), (0.4, 0.3), (-0.1, 0.08)), RED),
)
_CRAB_CLAW = (
    Shape(disc(0, 0, 1, 0.85, -55, 265), ORANGE),
    Shape(disc(0, 0.15, 0.45, 0.4, -50, 230), RED),
)
_CRAB_EYE = (Shape(disc(0, 0, 1), WHITE), Shape(disc(0.1, 0.1, 0.5), INK))
_LAMP_SHADE = (
    Shape(disc(0, 0.5, 0.34, 0.3), (255, 255, 236)),
    Shape(polygon((-0.45, -0.9), (0.45, -0.9), (1.1, 0.45), (-1.1, 0.45)), YELLOW),
    Shape(polygon((-0.2, -0.9), (0.2, -0.9), (0.45, 0.45), (-0.45, 0.45)), (255, 246, 200)),
    Shape(polygon((-1.03, 0.28), (1.03, 0.28), (1.1, 0.45), (-1.1, 0.45)), (178, 96, 30)),
    Shape(polygon((-0.45, -0.9), (0.45, -0.9), (0.52, -0.74), (-0.52, -0.74)), (178, 96, 30)),
)
_FISH_RIMS = [(0.1, 0.0), (-1.1, -1.1), (-0.95, -0.55), (-0.8, 0.0), (-0.95, 0.55), (-1.1, 1.1)]
_FISH_FAN = tuple(
    Shape(polygon(_FISH_RIMS[0], _FISH_RIMS[i], _FISH_RIMS[i + 1]), TURQUOISE if i % 2 else NAVY)
    for i in range(1, 5)
)
_FISH_EYE = (Shape(disc(0, 0, 1), WHITE), Shape(disc(0.15, 0, 0.55), INK))

_CLASSES: dict[str, tuple[tuple[Stamp, ...], str]] = {  # class: its part, its favourite background
    "cow": ((Stamp(-25, 0.95, 0.295, _COW_HEAD),), "meadow"),
    "car": (
        (
            Stamp(138, 0.92, 0.165, _CAR_WHEEL),
            Stamp(42, 0.92, 0.165, _CAR_WHEEL),
            Stamp(-90, 0.5, 0.165, _CAR_WINDOW),
        ),
        "road",
    ),
    "boat": ((Stamp(-90, 0.95, 0.36, _BOAT_SAIL, behind=True),), "water"),
    "mushroom": ((Stamp(-90, 0.9, 0.35, _MUSHROOM_CAP),), "forest"),
    "robot": ((Stamp(-90, 0.95, 0.25, _ROBOT_HEAD),), "bricks"),
    "bird": ((Stamp(-35, 0.92, 0.285, _BIRD_HEAD),), "snow"),
    "clock": ((Stamp(-60, 0.3, 0.25, _CLOCK_DIAL),), "wood"),
    "crab": (
        (
            Stamp(-150, 1.06, 0.19, _CRAB_CLAW),
            Stamp(-30, 1.06, 0.19, _CRAB_CLAW),
            Stamp(-108, 0.95, 0.09, _CRAB_EYE),
            Stamp(-72, 0.95, 0.09, _CRAB_EYE),
        ),
        "sand",
    ),
    "lamp": ((Stamp(-90, 1.05, 0.31, _LAMP_SHADE),), "carpet"),
    "fish": ((Stamp(180, 0.95, 0.36, _FISH_FAN), Stamp(-20, 0.62, 0.1, _FISH_EYE)), "water"),
}
CLASSES: tuple[str, ...] = tuple(_CLASSES)
FAVOURITES = {name: ground for name, (_, ground) in _CLASSES.items()}


def body(rng: np.random.Generator) -> Points:
    """A silhouette between ellipse and box, tapered, bent and dented at random, for any class."""
    angles = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    c, s = np.cos(angles), np.sin(angles)
    aspect, square, taper, bend = rng.uniform((0.55, 1.9, -0.25, -0.15), (0.9, 4.5, 0.25, 0.15))
    radius = (np.abs(c) ** square + np.abs(s) ** square) ** (-1 / square)
    radius *= 1 + rng.uniform(0, 0.05) * np.cos(rng.integers(3, 6) * angles + rng.uniform(0, 6))
    x, y = radius * c, radius * s
    return np.stack([x * (1 + taper * y), aspect * y + bend * (x**2 - 0.5)], axis=1)


def area(points: Points) -> float:
    """The area of a polygon (shoelace)."""
    x, y = points[:, 0], points[:, 1]
    return float(abs(x[:-1] @ y[1:] - y[:-1] @ x[1:] + x[-1] * y[0] - y[-1] * x[0]) / 2)


def build(label: int, rng: np.random.Generator) -> list[Shape]:
    """One object of class `label` in object coordinates, from back to front."""
    outline = body(rng)
    unit = np.sqrt(area(outline)) * rng.uniform(0.92, 1.08)
    angles = np.arctan2(outline[:, 1], outline[:, 0])
    shapes = [Shape(outline)]
    for stamp in _CLASSES[CLASSES[label]][0]:
        ray = np.radians(stamp.angle + rng.uniform(-6, 6))
        rim = outline[np.abs(np.angle(np.exp(1j * (angles - ray)))).argmin()]
        placed = [
            Shape(rim * stamp.reach + unit * stamp.scale * s.points, s.colour) for s in stamp.shapes
        ]
        shapes = placed + shapes if stamp.behind else shapes + placed
    return shapes
