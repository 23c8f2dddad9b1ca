"""Backgrounds of the built-in scenes: textures of band-limited noise, most with a horizon and a sky.

Lengths are given for a long side of 96 pixels and multiplied by `unit` = size / 96, so that a larger picture shows
the same scene in finer detail.
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
    """Tileable noise (side, side) with these wavelengths in pixels: mean 0, deviation 1, always the same."""
    fy = np.fft.fftfreq(side)[:, None] * wave_y
    fx = np.fft.rfftfreq(side)[None, :] * wave_x
    octaves = np.log2(np.hypot(fy, fx) + 1e-9)  # 0 at the requested wavelength
    band = np.exp(
        -np.where(octaves > 0, 1.2, 0.35) * octaves**2
    )  # more coarse than fine detail, as in nature
    white = np.random.default_rng([side, round(8 * wave_y), round(8 * wave_x)]).standard_normal(
        (side, side)
    )
    field = np.fft.irfft2(np.fft.rfft2(white) * band, s=(side, side))
    field /= field.std()
    return np.clip(field, -2.5, 2.5).astype(np.float32)


class Brush:
    """What a texture needs: the random stream, the size of the picture, the unit of length."""

    def __init__(self, rng: np.random.Generator, height: int, width: int, unit: float) -> None:
        self.rng, self.height, self.width, self.unit = rng, height, width, unit
        self.rows = np.arange(height, dtype=np.float32)[:, None]  # (H, 1)
        self.columns = np.arange(width, dtype=np.float32)[None, :]  # (1, W)
        self._side = 1 << max(8, (2 * max(height, width) - 1).bit_length())

    def noise(self, wave_y: float, wave_x: float | None = None) -> Field:
        """A window (H, W) at a random place of the noise with these wavelengths."""
        wave_x = wave_y if wave_x is None else wave_x
        table = noise_table(wave_y * self.unit, wave_x * self.unit, self._side)
        top, left = self.rng.integers(0, self._side - max(self.height, self.width), size=2)
        return table[top : top + self.height, left : left + self.width]

    def mix(self, amount: Field, dark: Colour, light: Colour) -> Field:
        """Colours (H, W, 3) between two tones, both shifted a little at random."""
        shift = self.rng.uniform(-12, 12, size=3).astype(np.float32)
        return blend(_rgb(dark) + shift, _rgb(light) + shift, np.clip(amount, 0, 1))


def _rgb(colour: Colour) -> Field:
    return np.array(colour, dtype=np.float32)


def blend(back: Field, front: Field, amount: Field) -> Field:
    """Colours (H, W, 3): `back` where `amount` (H, W) is 0, `front` where it is 1."""
    result: Field = back + amount[..., None] * (front - back)
    return result


def _forest(b: Brush) -> Field:
    leaves = 0.40 + 0.24 * b.noise(4, 6)
    soil = b.mix(leaves, (44, 32, 20), (146, 104, 56))
    moss = b.mix(leaves, (30, 42, 22), (98, 116, 52))
    return blend(soil, moss, np.clip(0.5 + 0.6 * b.noise(22), 0, 1))


def _road(b: Brush) -> Field:
    asphalt = b.mix(0.5 + 0.16 * b.noise(2) + 0.13 * b.noise(28), (68, 70, 78), (140, 140, 146))
    slope, start = b.rng.uniform(-0.5, 0.5), b.rng.uniform(0.5, 0.95) * b.height
    across = np.abs(b.rows - start - slope * (b.columns - b.width / 2)) / b.unit  # (H, W)
    along = np.mod(b.columns / b.unit + b.rng.uniform(0, 24), 24) < 15
    line = np.clip(2.2 - across, 0, 1) * along * np.float32(0.8)
    return blend(asphalt, _rgb((226, 222, 205)), line)


def _bricks(b: Brush) -> Field:
    high, wide = 8.0 * b.unit * b.rng.uniform(0.85, 1.2), 18.0 * b.unit * b.rng.uniform(0.85, 1.2)
    down = (b.rows + b.rng.uniform(0, high)) / high  # (H, 1), in bricks
    across = (b.columns + b.rng.uniform(0, wide)) / wide + 0.5 * (np.floor(down) % 2)  # (H, W)
    tones = b.rng.normal(0, 0.2, size=(16, 16)).astype(np.float32)
    tone = tones[np.floor(down).astype(np.intp) % 16, np.floor(across).astype(np.intp) % 16]
    wall = b.mix(0.5 + tone + 0.12 * b.noise(2.5), (118, 54, 42), (196, 116, 88))
    mortar = ((down % 1 < 0.16) | (across % 1 < 0.07)) * np.float32(0.85)
    return blend(wall, _rgb((198, 188, 172)), mortar)


def _wood(b: Brush) -> Field:
    plank = 17.0 * b.unit * b.rng.uniform(0.8, 1.3)
    flat = b.rng.random() < 0.5
    across = (b.rows if flat else b.columns) / plank + b.rng.uniform(0, 1)
    grain = b.noise(2.5, 30) if flat else b.noise(30, 2.5)
    tones = b.rng.normal(0, 0.13, size=16).astype(np.float32)
    tone = tones[np.floor(across).astype(np.intp) % 16]
    boards = b.mix(0.5 + tone + 0.15 * grain, (104, 66, 36), (198, 148, 96))
    seam = 1 - np.float32(0.55) * (across % 1 < 0.07)  # (H, 1) or (1, W)
    return boards * seam[..., None]


def _carpet(b: Brush) -> Field:
    step = np.float32(2 * np.pi / (16 * b.unit * b.rng.uniform(0.8, 1.2)))
    weave = np.sin(step * b.columns + b.rng.uniform(0, 6)) * np.sin(
        step * b.rows + b.rng.uniform(0, 6)
    )
    amount = 0.5 + 0.22 * np.tanh(4 * weave) + 0.08 * b.noise(2) + 0.10 * b.noise(26)
    return b.mix(amount.astype(np.float32), (84, 36, 62), (166, 92, 106))


def _sky(b: Brush) -> Field:
    clouds = 0.30 + 0.75 * (b.rows / b.height) + 0.20 * b.noise(10, 30)
    return b.mix(clouds, (104, 158, 212), (226, 234, 240))


GROUNDS: dict[str, Callable[[Brush], Field]] = {
    "meadow": lambda b: b.mix(
        0.5 + 0.17 * b.noise(5, 2) + 0.16 * b.noise(24), (58, 96, 38), (158, 182, 84)
    ),
    "road": _road,
    "water": lambda b: b.mix(
        0.45 + 0.18 * b.noise(3, 12) + 0.16 * b.noise(9, 34), (20, 72, 116), (128, 184, 204)
    ),
    "forest": _forest,
    "bricks": _bricks,
    "snow": lambda b: b.mix(
        0.62 + 0.18 * b.noise(12, 30) + 0.06 * b.noise(2), (168, 184, 210), (244, 248, 252)
    ),
    "wood": _wood,
    "sand": lambda b: b.mix(
        0.5 + 0.10 * b.noise(2) + 0.20 * b.noise(8, 26), (172, 138, 90), (238, 212, 164)
    ),
    "carpet": _carpet,
}
OUTDOORS = frozenset({"meadow", "road", "water", "forest", "snow", "sand"})


def paint_ground(kind: str, brush: Brush) -> tuple[Field, list[Field]]:
    """The background (H, W, 3) in 0..255 and its mean colours: the ground's and, if any, the sky's."""
    rng, unit = brush.rng, brush.unit
    ground = GROUNDS[kind](brush)
    means: list[Field] = [ground.mean(axis=(0, 1))]
    if kind in OUTDOORS and rng.random() < 0.6:
        roughness = 0.1 if kind == "water" else 0.9
        level = rng.uniform(0.15, 0.42) * brush.height / unit
        depth = (
            brush.rows / unit - level - roughness * brush.noise(30)[:1]
        )  # (H, W), below the horizon
        far: Field = np.exp(np.abs(depth) / np.float32(-14))  # 1 at the horizon
        sky = _sky(brush)
        means.append(sky.mean(axis=(0, 1)))
        ground = blend(sky, blend(ground, _rgb(SKY), np.float32(0.25) * far), np.clip(depth, 0, 1))
    return ground, means
