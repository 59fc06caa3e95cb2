"""Our own drawing of chest radiographs.

`draw(view, rows, columns, seed)` → (rows, columns) float32 in [0, 1], bone bright.

Shapes are laid on a canvas in centimetres of the detector plane, as path lengths of tissue;
attenuation then becomes brightness.
It looks like a radiograph to a person and to preprocessing code; it holds no diagnosis, and no
number of a model on it means anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from testing.phantoms.canvas import Canvas, Image, enlarge, quantum_noise, soft


def frontal(canvas: Canvas, rng: np.random.Generator) -> None:
    """A PA chest: the patient's right is on the image's left."""
    size = rng.uniform(0.95, 1.04)
    x = canvas.x / np.float32(size)
    ax = np.abs(canvas.x) / np.float32(size)
    _frontal_body(canvas, ax)
    lung = _frontal_lungs(canvas, x, rng.uniform(27.2, 28.6))
    shadow = _frontal_middle(canvas, ax, rng.uniform(0.92, 1.12))
    canvas.attenuation -= 1.2 * lung * (1 - 0.9 * shadow)
    canvas.attenuation -= (
        0.3
        * soft(0.85 - np.abs(canvas.x - 0.15), 0.25)
        * soft(canvas.y - 1, 1)
        * soft(14.2 - canvas.y, 0.8)
    )
    for side in (-1, 1):
        canvas.attenuation += (
            _frontal_vessels(canvas, rng, side) * np.clip(1.4 * lung, 0, 1) * (1 - 0.8 * shadow)
        )
    _frontal_bones(canvas, ax)
    canvas.attenuation -= 0.4 * canvas.ellipse(6.3, 31.4, (3.0, 1.7), -0.2, 0.25)


def _frontal_middle(canvas: Canvas, ax: Image, heart: float) -> Image:
    """Shadow of heart, great vessels and aortic arch, 0 to 1."""
    left = canvas.ellipse(2.0, 22.4, (7.2 * heart, 5.4 * heart), 0.6, 0.07)
    right = canvas.ellipse(-0.8, 22.6, (3.7 * heart, 5.6), 0.0, 0.08)
    arch = canvas.ellipse(1.7, 12.8, (2.1, 2.0), 0.0, 0.16)
    band = soft(canvas.along_y([(5, 2.0), (12, 2.6), (18, 3.4), (30, 4.2)]) - ax, 0.4)
    return np.maximum(np.maximum(left, right), np.maximum(arch, band))


def _frontal_body(canvas: Canvas, ax: Image) -> None:
    """Neck, shoulders with the heads of the humeri, chest wall, and the upper arms beside it."""
    half_width = canvas.along_y(
        [
            (0, 6.2),
            (2.5, 6.8),
            (5.5, 15.5),
            (8, 20.5),
            (12, 21),
            (14, 17.2),
            (20, 16.2),
            (32, 15.9),
            (42, 16.6),
        ]
    )
    depth = canvas.along_y([(0, 1.0), (6, 1.2), (12, 1.62), (24, 1.75), (30, 1.95), (42, 2.1)])
    canvas.attenuation += (
        depth * np.sqrt(np.clip(1 - (ax / half_width) ** 4, 0, 1)) * (1 - 0.12 * ax / half_width)
    )
    arm_middle = canvas.along_y([(0, 24), (8, 19.8), (42, 23.5)])
    canvas.attenuation += (
        0.55 * np.sqrt(np.clip(1 - ((ax - arm_middle) / 3.4) ** 2, 0, 1)) * soft(canvas.y - 6.5, 2)
    )
    canvas.attenuation += 0.16 * soft(5.6 - np.hypot(ax - 8.6, canvas.y - 24.5), 1.4)


def _frontal_lungs(canvas: Canvas, x: Image, base: float) -> Image:
    """Path length of air, 0 to 1.

    Apex, mediastinal and chest-wall borders, a dome on each side (the right one higher).
    """
    lateral = canvas.along_y(
        [
            (4.6, 2.5),
            (5.6, 5.6),
            (7.5, 8.2),
            (11, 10.8),
            (16, 12.9),
            (22, 14.0),
            (30, 14.3),
            (42, 14.3),
        ]
    )
    right = soft(-x, 0.05)
    left = soft(x, 0.05)
    ax = np.abs(x)
    dome = right * (base - 4.1 * np.exp(-(((ax - 6.0) / 5.6) ** 2)) + 3.3) + left * (
        base - 3.4 * np.exp(-(((ax - 6.6) / 5.4) ** 2)) + 4.0
    )
    dome = dome + np.clip(ax - 11.2, 0, None) ** 2 * 0.22
    mask = (
        soft(lateral - ax, 0.12)
        * soft(ax - 1.6, 0.5)
        * soft(canvas.y - 5.0, 0.35)
        * soft(dome - canvas.y, 0.14)
    )
    air: Image = (
        mask
        * (0.45 + 0.55 * np.sqrt(np.clip(1 - ((ax - 7.0) / 8.2) ** 2, 0, 1)))
        * (0.75 + 0.25 * soft(canvas.y - 11, 5))
    )
    return air


def _frontal_vessels(canvas: Canvas, rng: np.random.Generator, side: int) -> Image:
    """The root of one lung and the vessels that branch from it."""
    vessels = np.zeros_like(canvas.attenuation)
    root = (side * 3.9, 16.9 - 0.6 * side)
    for angle in np.linspace(-1.3, 1.4, 8) + rng.normal(0, 0.08, 8):
        middle = (root[0] + side * 3.2 * np.cos(angle), root[1] + 3.6 * np.sin(angle))
        canvas.line(root, middle, (0.62, 0.34), vessels)
        for turn in rng.normal((-0.3, 0.3), 0.12):
            end = (
                middle[0] + side * 4.4 * np.cos(angle + turn),
                middle[1] + 4.8 * np.sin(angle + turn),
            )
            canvas.line(middle, end, (0.3, 0.08), vessels)
    return 0.62 * vessels + 0.3 * canvas.ellipse(*root, (1.9, 3.4), 0.25 * side, 0.5)


def _frontal_bones(canvas: Canvas, ax: Image) -> None:
    """Ribs (posterior level, anterior falling to the middle), clavicles, spine, the edge of the shoulder blades, the humeri."""
    row = ax[:1]
    for level in range(11):
        top = 4.7 + 2.35 * level
        reach = min(14.6, 6.4 + 1.75 * level)
        posterior = (
            top
            + 0.016 * (row - 4.0) ** 2 * (1 + 0.12 * level)
            - 0.5 * np.exp(-(((row - 4.5) / 3) ** 2))
        )
        canvas.tube(posterior, 0.62, (1.6, reach), mirrored=True, weight=0.27)
        if 0 < level < 8:
            anterior = (
                top
                + 0.016 * (reach - 4.0) ** 2 * (1 + 0.12 * level)
                + 0.72 * (reach - row)
                + 0.018 * (reach - row) ** 2
            )
            canvas.tube(anterior, 0.72, (max(4.5, reach - 7.5), reach), mirrored=True, weight=0.15)
    clavicle = 7.6 - 0.19 * (row - 1.6) - 0.5 * np.sin((row - 1.6) / 13.5 * 2 * np.pi)
    canvas.tube(clavicle, 0.62, (1.5, 15.2), mirrored=True, weight=0.4)
    discs = 0.78 + 0.22 * np.cos(canvas.y * np.float32(2 * np.pi / 2.35))
    canvas.attenuation += (
        0.5 * soft(canvas.along_y([(0, 1.5), (12, 1.6), (30, 2.0), (42, 2.3)]) - ax, 0.12) * discs
    )
    canvas.attenuation += 0.12 * soft(0.38 - ax, 0.15) * (discs < 0.85)
    blade = canvas.along_y([(5, 15.5), (9, 13.4), (15, 14.4), (18.5, 16.5)])
    canvas.attenuation += (
        0.16
        * soft(ax - blade, 0.15)
        * soft(19.0 - ax, 1.2)
        * soft(canvas.y - 5.5, 0.8)
        * soft(18.0 - canvas.y, 1.0)
    )
    canvas.attenuation += 0.3 * soft(2.3 - np.hypot(ax - 18.6, canvas.y - 8.4), 0.2)
    shaft = canvas.along_y([(8, 19.0), (42, 23.6)])
    canvas.attenuation += 0.3 * soft(1.2 - np.abs(ax - shaft), 0.2) * soft(canvas.y - 9, 0.5)


def lateral(canvas: Canvas, rng: np.random.Generator) -> None:
    """A left lateral chest: sternum on the image's left, spine on its right."""
    size = rng.uniform(0.95, 1.05)
    x = canvas.x / np.float32(size)
    y = canvas.y
    front = canvas.along_y(
        [(0, -6.0), (6, -8.6), (10, -11.0), (18, -13.2), (28, -14.0), (42, -14.4)]
    )
    back = canvas.along_y([(0, 9.0), (6, 12.4), (14, 14.6), (22, 14.8), (32, 13.2), (42, 12.6)])
    inside = (x - front) / (back - front)
    canvas.attenuation += canvas.along_y([(0, 1.7), (10, 1.75), (26, 1.75), (42, 2.15)]) * np.sqrt(
        np.clip(1 - (2 * inside - 1) ** 6, 0, 1)
    )
    canvas.attenuation += 0.4 * soft(6.5 - y + 0.35 * x, 2.5) * soft(14 + x, 3)
    lung = _lateral_lungs(canvas, x, front, back)
    heart = canvas.ellipse(-6.4 * size, 24.0, (7.4, 5.2), 0.62, 0.12)
    canvas.attenuation -= 1.3 * lung * (1 - 0.6 * heart)
    arch = np.maximum(
        canvas.ellipse(0.8, 12.2, (2.6, 1.7), -0.3, 0.2),
        canvas.ellipse(-0.6, 17.2, (2.0, 1.7), 0.0, 0.3),
    )
    canvas.attenuation += 0.22 * arch
    canvas.attenuation -= (
        0.3
        * soft(0.8 - np.abs(x - 0.12 * (y - 8) + 0.2), 0.2)
        * soft(y - 3, 1.5)
        * soft(15.5 - y, 0.6)
    )
    vessels = np.zeros_like(canvas.attenuation)
    for angle in np.linspace(0, 2 * np.pi, 11) + rng.normal(0, 0.15, 11):
        canvas.line(
            (-0.4, 17.2),
            (-0.4 + 6.5 * np.cos(angle), 17.2 + 6.5 * np.sin(angle)),
            (0.5, 0.1),
            vessels,
        )
    canvas.attenuation += 0.5 * vessels * lung
    _lateral_bones(canvas, x, front, back)
    canvas.attenuation -= 0.4 * canvas.ellipse(-2.5, 31.4, (3.2, 1.4), 0.15, 0.25)


def _lateral_lungs(canvas: Canvas, x: Image, front: Image, back: Image) -> Image:
    """Path length of air: clear spaces behind the sternum and behind the heart, two domes falling to the back."""
    dome = 28.2 + 0.022 * (x + 3.5) ** 2 + np.clip(x - 4, 0, None) * 0.32
    other = dome + 0.9 - 0.05 * x
    wall = soft(x - front - 1.9, 0.2) * soft(back - 1.6 - x, 0.3)
    apex = soft(canvas.y - 6.0 - 0.05 * (x - 2.0) ** 2, 0.6)
    air: Image = (
        wall
        * apex
        * (0.6 * soft(dome - canvas.y, 0.12) + 0.4 * soft(other - canvas.y, 0.12))
        * (0.8 + 0.2 * soft(canvas.y - 12, 5))
    )
    return air


def _lateral_bones(canvas: Canvas, x: Image, front: Image, back: Image) -> None:
    """Sternum, the vertebral column with its discs, ribs that fall to the front."""
    canvas.attenuation += (
        0.35
        * soft(0.7 - np.abs(x - front - 1.1), 0.15)
        * soft(canvas.y - 8.5, 0.5)
        * soft(24.5 - canvas.y, 0.8)
    )
    column = back - canvas.along_y([(0, 4.2), (20, 5.2), (42, 5.0)])
    discs = 0.7 + 0.3 * np.tanh(
        4 * np.cos((canvas.y - 0.1 * x) * np.float32(2 * np.pi / 2.5)) + 2.6
    )
    canvas.attenuation += 0.5 * soft(1.75 - np.abs(x - column), 0.15) * discs
    canvas.attenuation += 0.2 * soft(2.0 - np.abs(x - column - 3.6), 0.8) * discs
    middle = canvas.x[:1]
    for level in range(10):
        rib = 6.0 + 2.2 * level + 0.1 * (8.5 - middle) + 0.028 * (8.5 - middle) ** 2
        canvas.tube(rib, 0.55, (-10.5 + 0.4 * level, 10.5), mirrored=False, weight=0.16)


VIEWS: dict[str, Callable[[Canvas, np.random.Generator], None]] = {
    "PA": frontal,
    "AP": frontal,
    "LATERAL": lateral,
}


@lru_cache(maxsize=16)
def draw(view: str, rows: int, columns: int, seed: int) -> Image:
    """(rows, columns) float32 in [0, 1], read-only: what a viewer shows, bone bright.

    The same arguments give the same image.
    """
    rng = np.random.default_rng([seed, sorted(VIEWS).index(view)])
    canvas = Canvas(columns / rows)
    VIEWS[view](canvas, rng)
    sharp = enlarge(_to_brightness(canvas.attenuation), rows, columns)
    image: Image = sharp + quantum_noise(rng, rows, columns) * (0.35 + sharp)
    _collimate(image, rng)
    _mark(image)
    np.clip(image, 0, 1, out=image)
    image.flags.writeable = False
    return image


def _to_brightness(attenuation: Image) -> Image:
    """Attenuation → brightness by the S-shaped curve of a display system.

    Air outside the body stays nearly black.
    """
    brightness: Image = (1 / (1 + np.exp(-(attenuation - 1.1) * 1.9)) - 0.11).astype(np.float32)
    return brightness


def _collimate(image: Image, rng: np.random.Generator) -> None:
    """Black out what lies behind the collimator's four blades."""
    rows, columns = image.shape
    top, bottom, left, right = (
        max(1, int(side * edge))
        for side, edge in zip(
            (rows, rows, columns, columns), rng.uniform(0.012, 0.03, 4), strict=True
        )
    )
    image[:top], image[-bottom:], image[:, :left], image[:, -right:] = 0, 0, 0, 0


def _mark(image: Image) -> None:
    """An "L" of lead at the image's upper right, the patient's left (PS3.3 C.7.6.1.1.1 speaks of the orientation it confirms)."""
    rows, columns = image.shape
    unit = max(1, rows // 110)
    top = rows // 14
    left = columns - columns // 9
    image[top : top + 5 * unit, left : left + unit] = 0.98
    image[top + 4 * unit : top + 5 * unit, left : left + 3 * unit] = 0.98
