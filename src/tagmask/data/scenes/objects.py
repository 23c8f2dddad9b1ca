"""The objects of the built-in scenes: one family of bodies, and a part that reveals the class.

In an object's coordinates x points right, y points down, and the body is about two units long. The
shape of a body says nothing about the class; the class part is 10 to 25 % of the object.
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

# colours of the class parts
INK = (30, 28, 34)
WHITE = (246, 244, 238)
CREAM = (240, 224, 180)
GREY = (168, 178, 190)
RED = (214, 40, 40)
ORANGE = (246, 140, 30)
YELLOW = (255, 222, 96)
PINK = (255, 116, 156)
GREEN = (24, 172, 84)
LIME = (206, 228, 30)
BLUE = (34, 74, 224)
MAGENTA = (206, 30, 150)
CYAN = (70, 232, 240)
NAVY = (28, 44, 104)
TURQUOISE = (36, 190, 196)
WOOD = (110, 72, 40)
GLASS = (188, 226, 244)
BRONZE = (178, 96, 30)
GLOW = (255, 246, 200)
BULB = (255, 255, 236)


@dataclass(frozen=True)
class Shape:
    """A filled polygon; without a colour it has that of the body."""

    points: Points
    colour: Colour | None = None


@dataclass(frozen=True)
class Stamp:
    """Shapes of a class part, placed at an angle as seen from the middle of the body."""

    angle: float  # degrees: 0 right, 90 down
    reach: float  # 0 = middle of the body, 1 = on its outline
    scale: float  # of the shapes, for a body of unit area
    shapes: tuple[Shape, ...]
    behind: bool = False  # drawn before the body


def disc(
    x: float,
    y: float,
    rx: float,
    ry: float = 0,
    start: float = 0,
    stop: float = 360,
) -> Points:
    """Return an ellipse, or its sector between two angles.

    Args:
        x: of the middle.
        y: of the middle.
        rx: radius along x.
        ry: radius along y; 0 makes a circle.
        start: first angle in degrees, 0 right, 90 down.
        stop: last angle in degrees; 360 after ``start`` makes a whole ellipse.

    Returns:
        25 points on the rim (25, 2), and the middle if it is a sector.
    """
    angles = np.radians(np.linspace(start, stop, 25))
    rim_x = x + rx * np.cos(angles)
    rim_y = y + (ry or rx) * np.sin(angles)
    rim = np.stack([rim_x, rim_y], axis=1)
    if stop - start >= 360:
        return rim
    return np.vstack([rim, [[x, y]]])


def box(left: float, top: float, right: float, bottom: float) -> Points:
    """Return an upright rectangle (4, 2).

    Args:
        left: smallest x.
        top: smallest y.
        right: largest x.
        bottom: largest y.
    """
    return polygon(
        (left, top),
        (right, top),
        (right, bottom),
        (left, bottom),
    )


def polygon(*points: tuple[float, float]) -> Points:
    """Return the polygon through these points (n, 2)."""
    return np.array(points, dtype=np.float64)


def _trapezoid(
    top: float,
    bottom: float,
    half_top: float,
    half_bottom: float,
) -> Points:
    """Return a trapezoid (4, 2) around x = 0, given y and half the width of its level sides."""
    return polygon(
        (-half_top, top),
        (half_top, top),
        (half_bottom, bottom),
        (-half_bottom, bottom),
    )


def _mirrored(points: Points) -> Points:
    """Return the polygon with left and right exchanged."""
    return points * (-1, 1)


_COW_HORN = polygon(
    (-0.55, -0.5),
    (-1.05, -0.75),
    (-1.0, -1.25),
    (-0.75, -0.95),
    (-0.25, -0.7),
)
_COW_HEAD = (
    Shape(_COW_HORN, CREAM),
    Shape(_mirrored(_COW_HORN), CREAM),
    Shape(disc(0, 0, 0.78, 0.9), WHITE),
    Shape(disc(0.36, -0.28, 0.4, 0.46), INK),
    Shape(disc(-0.32, -0.2, 0.15), INK),
    Shape(disc(0.34, -0.2, 0.14), WHITE),
    Shape(disc(0, 0.5, 0.8, 0.54), PINK),
    Shape(disc(-0.28, 0.55, 0.12), INK),
    Shape(disc(0.28, 0.55, 0.12), INK),
)
_CAR_WHEEL = (
    Shape(disc(0, 0, 1), INK),
    Shape(disc(0, 0, 0.52), GREY),
    Shape(disc(0, 0, 0.2), INK),
)
_CAR_PANE = polygon((-1.2, 0.38), (-0.75, -0.42), (-0.1, -0.42), (-0.1, 0.38))
_CAR_WINDOW = (
    Shape(polygon((-1.5, 0.55), (-0.9, -0.6), (0.9, -0.6), (1.5, 0.55)), INK),
    Shape(_CAR_PANE, GLASS),
    Shape(_mirrored(_CAR_PANE), GLASS),
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
_BIRD_BEAK = polygon(
    (0.3, -0.55),
    (1.3, -0.35),
    (1.9, 0.25),
    (1.75, 0.45),
    (0.3, 0.5),
)
_BIRD_HEAD = (
    Shape(_BIRD_BEAK, LIME),
    Shape(polygon((1.42, -0.25), (1.9, 0.25), (1.75, 0.45), (1.4, 0.47)), INK),
    Shape(disc(0, 0, 0.8), MAGENTA),
    Shape(disc(0.16, -0.14, 0.34), WHITE),
    Shape(disc(0.2, -0.14, 0.18), INK),
)
_CLOCK_DIAL = (
    Shape(disc(0, 0, 1), BLUE),
    Shape(disc(0, 0, 0.76), WHITE),
    Shape(disc(0.58, 0, 0.1), INK),
    Shape(disc(0, 0.58, 0.1), INK),
    Shape(disc(-0.58, 0, 0.1), INK),
    Shape(disc(0, -0.58, 0.1), INK),
    Shape(polygon((-0.07, 0.1), (-0.07, -0.62), (0.07, -0.62), (0.07, 0.1)), INK),
    Shape(polygon((-0.1, -0.08), (0.46, 0.16), (0.4, 0.3), (-0.1, 0.08)), RED),
)
_CRAB_CLAW = (
    Shape(disc(0, 0, 1, 0.85, -55, 265), ORANGE),
    Shape(disc(0, 0.15, 0.45, 0.4, -50, 230), RED),
)
_CRAB_EYE = (
    Shape(disc(0, 0, 1), WHITE),
    Shape(disc(0.1, 0.1, 0.5), INK),
)
_LAMP_SHADE = (
    Shape(disc(0, 0.5, 0.34, 0.3), BULB),
    Shape(_trapezoid(-0.9, 0.45, half_top=0.45, half_bottom=1.1), YELLOW),
    Shape(_trapezoid(-0.9, 0.45, half_top=0.2, half_bottom=0.45), GLOW),
    Shape(_trapezoid(0.28, 0.45, half_top=1.03, half_bottom=1.1), BRONZE),
    Shape(_trapezoid(-0.9, -0.74, half_top=0.45, half_bottom=0.52), BRONZE),
)
_FISH_FAN = (
    Shape(polygon((0.1, 0.0), (-1.1, -1.1), (-0.95, -0.55)), TURQUOISE),
    Shape(polygon((0.1, 0.0), (-0.95, -0.55), (-0.8, 0.0)), NAVY),
    Shape(polygon((0.1, 0.0), (-0.8, 0.0), (-0.95, 0.55)), TURQUOISE),
    Shape(polygon((0.1, 0.0), (-0.95, 0.55), (-1.1, 1.1)), NAVY),
)
_FISH_EYE = (
    Shape(disc(0, 0, 1), WHITE),
    Shape(disc(0.15, 0, 0.55), INK),
)

# the part of an object that reveals its class
_PARTS: dict[str, tuple[Stamp, ...]] = {
    "cow": (Stamp(angle=-25, reach=0.95, scale=0.295, shapes=_COW_HEAD),),
    "car": (
        Stamp(angle=138, reach=0.92, scale=0.165, shapes=_CAR_WHEEL),
        Stamp(angle=42, reach=0.92, scale=0.165, shapes=_CAR_WHEEL),
        Stamp(angle=-90, reach=0.5, scale=0.165, shapes=_CAR_WINDOW),
    ),
    "boat": (Stamp(angle=-90, reach=0.95, scale=0.36, shapes=_BOAT_SAIL, behind=True),),
    "mushroom": (Stamp(angle=-90, reach=0.9, scale=0.35, shapes=_MUSHROOM_CAP),),
    "robot": (Stamp(angle=-90, reach=0.95, scale=0.25, shapes=_ROBOT_HEAD),),
    "bird": (Stamp(angle=-35, reach=0.92, scale=0.285, shapes=_BIRD_HEAD),),
    "clock": (Stamp(angle=-60, reach=0.3, scale=0.25, shapes=_CLOCK_DIAL),),
    "crab": (
        Stamp(angle=-150, reach=1.06, scale=0.19, shapes=_CRAB_CLAW),
        Stamp(angle=-30, reach=1.06, scale=0.19, shapes=_CRAB_CLAW),
        Stamp(angle=-108, reach=0.95, scale=0.09, shapes=_CRAB_EYE),
        Stamp(angle=-72, reach=0.95, scale=0.09, shapes=_CRAB_EYE),
    ),
    "lamp": (Stamp(angle=-90, reach=1.05, scale=0.31, shapes=_LAMP_SHADE),),
    "fish": (
        Stamp(angle=180, reach=0.95, scale=0.36, shapes=_FISH_FAN),
        Stamp(angle=-20, reach=0.62, scale=0.1, shapes=_FISH_EYE),
    ),
}
CLASSES: tuple[str, ...] = tuple(_PARTS)

# the background that often goes with a class
FAVOURITES = {
    "cow": "meadow",
    "car": "road",
    "boat": "water",
    "mushroom": "forest",
    "robot": "bricks",
    "bird": "snow",
    "clock": "wood",
    "crab": "sand",
    "lamp": "carpet",
    "fish": "water",
}


def body(rng: np.random.Generator) -> Points:
    """Return a silhouette between ellipse and box, tapered, bent and dented, for any class."""
    angles = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    cosine = np.cos(angles)
    sine = np.sin(angles)
    lowest = (0.55, 1.9, -0.25, -0.15)
    highest = (0.9, 4.5, 0.25, 0.15)
    aspect, square, taper, bend = rng.uniform(lowest, highest)
    # a superellipse: square = 2 is a circle, larger values come nearer to a box
    powers = np.abs(cosine) ** square + np.abs(sine) ** square
    radius = powers ** (-1 / square)  # (48,)
    depth = rng.uniform(0, 0.05)
    dents = rng.integers(3, 6)
    phase = rng.uniform(0, 6)
    radius *= 1 + depth * np.cos(dents * angles + phase)
    x = radius * cosine
    y = radius * sine
    tapered = x * (1 + taper * y)
    bent = aspect * y + bend * (x**2 - 0.5)
    return np.stack([tapered, bent], axis=1)


def area(points: Points) -> float:
    """Return the area of a polygon (n, 2) by the shoelace formula."""
    x = points[:, 0]
    y = points[:, 1]
    forwards = x[:-1] @ y[1:]
    backwards = y[:-1] @ x[1:]
    twice = forwards - backwards + x[-1] * y[0] - y[-1] * x[0]
    return float(abs(twice) / 2)


def build(label: int, rng: np.random.Generator) -> list[Shape]:
    """Return one object in object coordinates, from back to front.

    Args:
        label: index into CLASSES.
        rng: random stream for the body and the position of the class part.
    """
    outline = body(rng)
    unit = np.sqrt(area(outline)) * rng.uniform(0.92, 1.08)
    x = outline[:, 0]
    y = outline[:, 1]
    angles = np.arctan2(y, x)
    shapes = [Shape(outline)]
    for stamp in _PARTS[CLASSES[label]]:
        direction = np.radians(stamp.angle + rng.uniform(-6, 6))
        # the complex number takes differences of angles to -π … π
        gaps = np.angle(np.exp(1j * (angles - direction)))
        rim = outline[np.abs(gaps).argmin()]  # (2,)
        origin = rim * stamp.reach
        scale = unit * stamp.scale
        placed = []
        for shape in stamp.shapes:
            points = origin + scale * shape.points
            placed.append(Shape(points, shape.colour))
        if stamp.behind:
            shapes = placed + shapes
        else:
            shapes = shapes + placed
    return shapes
