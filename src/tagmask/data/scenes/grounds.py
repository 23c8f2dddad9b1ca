"""Backgrounds of the built-in scenes: textures of band-limited noise, most with a sky.

Lengths are given for a long side of 96 pixels and multiplied by `unit` = size / 96, so that a
larger picture shows the same scene in finer detail.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]  # (H, W), or (H, W, 3) in 0..255 for colours
Colour = tuple[int, int, int]

SKY: Colour = (150, 190, 225)


@lru_cache(maxsize=128)
def noise_table(wave_y: float, wave_x: float, side: int) -> Field:
    """Return tileable noise, always the same for the same arguments.

    Args:
        wave_y: wavelength along the rows, in pixels.
        wave_x: wavelength along the columns, in pixels.
        side: height and width of the table, in pixels.

    Returns:
        The noise (side, side), mean 0, deviation 1, within ±2.5.
    """
    frequency_y = np.fft.fftfreq(side)[:, None] * wave_y
    frequency_x = np.fft.rfftfreq(side)[None, :] * wave_x
    octaves = np.log2(np.hypot(frequency_y, frequency_x) + 1e-9)  # 0 at the requested wavelength
    # more coarse than fine detail, as in nature
    falloff = np.where(octaves > 0, 1.2, 0.35)
    band = np.exp(-falloff * octaves**2)  # (side, side / 2 + 1)
    seed = [side, round(8 * wave_y), round(8 * wave_x)]
    rng = np.random.default_rng(seed)
    white = rng.standard_normal((side, side))
    spectrum = np.fft.rfft2(white) * band
    field = np.fft.irfft2(spectrum, s=(side, side))
    field /= field.std()
    return np.clip(field, -2.5, 2.5).astype(np.float32)


class Brush:
    """The tools of a texture: the random stream, the size of the picture, the unit of length."""

    def __init__(
        self,
        rng: np.random.Generator,
        height: int,
        width: int,
        unit: float,
    ) -> None:
        """Prepare coordinates for a picture.

        Args:
            rng: the random stream of the scene; the order of the calls determines the picture.
            height: pixels of the picture.
            width: pixels of the picture.
            unit: size of the picture over 96 pixels.
        """
        self.rng = rng
        self.height = height
        self.width = width
        self.unit = unit
        self.rows = np.arange(height, dtype=np.float32)[:, None]  # (H, 1)
        self.columns = np.arange(width, dtype=np.float32)[None, :]  # (1, W)
        longest = 2 * max(height, width)
        # a power of two, for the Fourier transform
        self._side = 1 << max(8, (longest - 1).bit_length())

    def noise(self, wave_y: float, wave_x: float | None = None) -> Field:
        """Return a window at a random position of the noise with these wavelengths.

        Args:
            wave_y: wavelength along the rows, in units.
            wave_x: wavelength along the columns, in units; by default the same.

        Returns:
            The noise (H, W), mean 0, deviation 1.
        """
        if wave_x is None:
            wave_x = wave_y
        table = noise_table(wave_y * self.unit, wave_x * self.unit, self._side)
        highest = self._side - max(self.height, self.width)
        top, left = self.rng.integers(0, highest, size=2)
        bottom = top + self.height
        right = left + self.width
        return table[top:bottom, left:right]

    def mix(self, amount: Field, dark: Colour, light: Colour) -> Field:
        """Return colours between two tones, both shifted a little at random.

        Args:
            amount: share of the light tone (H, W); values outside 0..1 are clipped.
            dark: colour where the amount is 0.
            light: colour where the amount is 1.

        Returns:
            The colours (H, W, 3).
        """
        shift = self.rng.uniform(-12, 12, size=3).astype(np.float32)
        back = _rgb(dark) + shift
        front = _rgb(light) + shift
        return blend(back, front, np.clip(amount, 0, 1))


def _rgb(colour: Colour) -> Field:
    return np.array(colour, dtype=np.float32)


def blend(back: Field, front: Field, amount: Field) -> Field:
    """Return colours (H, W, 3) between two pictures or colours.

    Args:
        back: colours where the amount is 0, (H, W, 3) or (3,).
        front: colours where the amount is 1, (H, W, 3) or (3,).
        amount: share of the front, (H, W).
    """
    result: Field = back + amount[..., None] * (front - back)
    return result


def _meadow(brush: Brush) -> Field:
    blades = 0.17 * brush.noise(5, 2)
    patches = 0.16 * brush.noise(24)
    return brush.mix(
        0.5 + blades + patches,
        dark=(58, 96, 38),
        light=(158, 182, 84),
    )


def _road(brush: Brush) -> Field:
    rng = brush.rng
    stones = 0.16 * brush.noise(2)
    wear = 0.13 * brush.noise(28)
    asphalt = brush.mix(
        0.5 + stones + wear,
        dark=(68, 70, 78),
        light=(140, 140, 146),
    )
    # a dashed line that runs across the picture, a little aslant
    slope = rng.uniform(-0.5, 0.5)
    start = rng.uniform(0.5, 0.95) * brush.height
    rise = slope * (brush.columns - brush.width / 2)
    distance = np.abs(brush.rows - start - rise) / brush.unit  # (H, W)
    along = brush.columns / brush.unit + rng.uniform(0, 24)
    is_dash = np.mod(along, 24) < 15  # (1, W)
    across = np.clip(2.2 - distance, 0, 1)  # (H, W), 1 in the middle of the line
    line = across * is_dash * np.float32(0.8)
    return blend(asphalt, _rgb((226, 222, 205)), line)


def _water(brush: Brush) -> Field:
    ripples = 0.18 * brush.noise(3, 12)
    waves = 0.16 * brush.noise(9, 34)
    return brush.mix(
        0.45 + ripples + waves,
        dark=(20, 72, 116),
        light=(128, 184, 204),
    )


def _forest(brush: Brush) -> Field:
    leaves = 0.40 + 0.24 * brush.noise(4, 6)
    soil = brush.mix(leaves, dark=(44, 32, 20), light=(146, 104, 56))
    moss = brush.mix(leaves, dark=(30, 42, 22), light=(98, 116, 52))
    share = 0.5 + 0.6 * brush.noise(22)
    return blend(soil, moss, np.clip(share, 0, 1))


def _bricks(brush: Brush) -> Field:
    rng = brush.rng
    brick_height = 8.0 * brush.unit * rng.uniform(0.85, 1.2)
    brick_width = 18.0 * brush.unit * rng.uniform(0.85, 1.2)
    # position in bricks; every second row is shifted by half a brick
    down = (brush.rows + rng.uniform(0, brick_height)) / brick_height  # (H, 1)
    across = (brush.columns + rng.uniform(0, brick_width)) / brick_width  # (1, W)
    row = np.floor(down)
    across = across + 0.5 * (row % 2)  # (H, W)
    column = np.floor(across)
    tones = rng.normal(0, 0.2, size=(16, 16)).astype(np.float32)
    row_number = row.astype(np.intp)  # (H, 1)
    column_number = column.astype(np.intp)  # (H, W)
    tone = tones[row_number % 16, column_number % 16]  # (H, W)
    grit = 0.12 * brush.noise(2.5)
    wall = brush.mix(
        0.5 + tone + grit,
        dark=(118, 54, 42),
        light=(196, 116, 88),
    )
    is_mortar = (down % 1 < 0.16) | (across % 1 < 0.07)
    mortar = is_mortar * np.float32(0.85)
    return blend(wall, _rgb((198, 188, 172)), mortar)


def _snow(brush: Brush) -> Field:
    drifts = 0.18 * brush.noise(12, 30)
    grains = 0.06 * brush.noise(2)
    return brush.mix(
        0.62 + drifts + grains,
        dark=(168, 184, 210),
        light=(244, 248, 252),
    )


def _wood(brush: Brush) -> Field:
    rng = brush.rng
    plank = 17.0 * brush.unit * rng.uniform(0.8, 1.3)
    is_horizontal = rng.random() < 0.5
    position = brush.rows if is_horizontal else brush.columns
    across = position / plank + rng.uniform(0, 1)  # (H, 1) or (1, W), in planks
    grain = brush.noise(2.5, 30) if is_horizontal else brush.noise(30, 2.5)
    tones = rng.normal(0, 0.13, size=16).astype(np.float32)
    number = np.floor(across).astype(np.intp)
    boards = brush.mix(
        0.5 + tones[number % 16] + 0.15 * grain,
        dark=(104, 66, 36),
        light=(198, 148, 96),
    )
    is_seam = across % 1 < 0.07
    brightness = 1 - np.float32(0.55) * is_seam
    return boards * brightness[..., None]


def _sand(brush: Brush) -> Field:
    grains = 0.10 * brush.noise(2)
    ripples = 0.20 * brush.noise(8, 26)
    return brush.mix(
        0.5 + grains + ripples,
        dark=(172, 138, 90),
        light=(238, 212, 164),
    )


def _carpet(brush: Brush) -> Field:
    rng = brush.rng
    period = 16 * brush.unit * rng.uniform(0.8, 1.2)
    step = np.float32(2 * np.pi / period)
    warp = np.sin(step * brush.columns + rng.uniform(0, 6))  # (1, W)
    weft = np.sin(step * brush.rows + rng.uniform(0, 6))  # (H, 1)
    weave = 0.22 * np.tanh(4 * (warp * weft))
    threads = 0.08 * brush.noise(2)
    wear = 0.10 * brush.noise(26)
    amount: Field = 0.5 + weave + threads + wear
    return brush.mix(
        amount.astype(np.float32),
        dark=(84, 36, 62),
        light=(166, 92, 106),
    )


def _sky(brush: Brush) -> Field:
    haze = 0.75 * (brush.rows / brush.height)
    clouds = 0.20 * brush.noise(10, 30)
    return brush.mix(
        0.30 + haze + clouds,
        dark=(104, 158, 212),
        light=(226, 234, 240),
    )


GROUNDS: dict[str, Callable[[Brush], Field]] = {
    "meadow": _meadow,
    "road": _road,
    "water": _water,
    "forest": _forest,
    "bricks": _bricks,
    "snow": _snow,
    "wood": _wood,
    "sand": _sand,
    "carpet": _carpet,
}
OUTDOORS = frozenset({"meadow", "road", "water", "forest", "snow", "sand"})


def paint_ground(kind: str, brush: Brush) -> tuple[Field, list[Field]]:
    """Paint a background.

    Args:
        kind: a name in GROUNDS.
        brush: the size of the picture and its random stream.

    Returns:
        The background (H, W, 3) in 0..255, and its mean colours (3,): the ground's and, if there is
        one, the sky's.
    """
    rng = brush.rng
    ground = GROUNDS[kind](brush)
    means: list[Field] = [ground.mean(axis=(0, 1))]
    has_sky = kind in OUTDOORS and rng.random() < 0.6
    if not has_sky:
        return ground, means
    roughness = 0.1 if kind == "water" else 0.9
    level = rng.uniform(0.15, 0.42) * brush.height / brush.unit
    horizon = roughness * brush.noise(30)[:1]  # (1, W)
    depth = brush.rows / brush.unit - level - horizon  # (H, W), below the horizon
    far: Field = np.exp(np.abs(depth) / np.float32(-14))  # (H, W), 1 at the horizon
    sky = _sky(brush)
    means.append(sky.mean(axis=(0, 1)))
    hazy = blend(ground, _rgb(SKY), np.float32(0.25) * far)
    return blend(sky, hazy, np.clip(depth, 0, 1)), means
