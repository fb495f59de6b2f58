"""Where a place lies, compiled: its cell of each level, and the cells around it that an event has to look into."""

import numpy as np

from tidings.matching.index.compiling import part

LINE, PLANE, SPHERE = range(3)

# Levels: cells of 2 to the (level - ORIGIN); above them one cell for everyone, and no cell at all for nobody. In the
# plane a radius is up to twice the size of its level's cells, on the sphere up to once.
ORIGIN = 40
EVERYONE = 103
NOBODY = 104
SIZE = 2.0 ** (np.arange(NOBODY) - ORIGIN)

# Cells far away share the numbers of those at hand: the coordinates tell them apart.
FOLD = np.int64(2**30 - 1)
NOWHERE, ANYWHERE = np.int64(2**30), np.int64(2**30 + 1)

_WILD = 2.0**20  # degrees of longitude from where on differences are not exact enough
_LEEWAY = 1e-5  # degrees that sines and cosines may be wrong by
UNUSABLE, USABLE, FAR_ROUND = range(3)  # a place; the last has a longitude that is wild


@part
def settled(shape, x, y):
    """Whether a place can be used, what is compared of it, and across and along what its cells are counted."""
    if shape != SPHERE:
        usable = USABLE if np.isfinite(x) and np.isfinite(y) else UNUSABLE
        return usable, x, y, 0.0, x, y
    if not (abs(x) <= 90.0 and np.isfinite(y)):
        return UNUSABLE, 0.0, 0.0, 0.0, 0.0, 0.0
    if abs(y) > _WILD:
        return FAR_ROUND, np.nan, np.nan, np.nan, 0.0, x
    latitude, longitude = np.radians(x), np.radians(y % 360.0)
    level = np.cos(latitude)
    return USABLE, level * np.cos(longitude), level * np.sin(longitude), np.sin(latitude), y % 360.0, x


@part
def home(shape, level, usable, u, v):
    """The cell of a place."""
    if level == NOBODY or usable == UNUSABLE:
        return NOWHERE, np.int64(0)
    if level == EVERYONE or usable == FAR_ROUND:
        return ANYWHERE, np.int64(0)
    size = SIZE[level]
    if shape == SPHERE:
        band = np.int64(np.floor(v / size))
        turn = around(band, size)
        return min(np.int64(np.floor(u / (360.0 / turn))), turn - 1), band & FOLD
    return _folded(u / size), _folded(v / size) if shape == PLANE else np.int64(0)


@part
def _folded(number):
    # Beyond these no event asks for a cell.
    return np.int64(np.floor(number)) & FOLD if abs(number) < 2.0**60 else np.int64(0)


@part
def bands(shape, v, reach, size):
    if shape == LINE:
        return np.int64(0), np.int64(0)
    low, high = v - reach, v + reach
    if shape == SPHERE:
        low, high = max(low - _LEEWAY, -90.0), min(high + _LEEWAY, 90.0)
    return np.int64(np.floor(low / size)), np.int64(np.floor(high / size))


@part
def around(band, size):
    """How many cells a band of latitudes has: fewer towards the poles, so that they are as wide as they are high."""
    top = max(abs(band * size), abs((band + 1) * size))
    return max(np.int64(360.0 * np.cos(np.radians(top)) / size), np.int64(1)) if top < 90.0 else np.int64(1)


@part
def wide(latitude, reach):
    """How many degrees of longitude a circle extends to either side; all of them where it contains a pole."""
    if abs(latitude) + reach + _LEEWAY >= 90.0:
        return 180.0
    sine = np.sin(np.radians(reach)) / np.cos(np.radians(latitude))
    return np.degrees(np.arcsin(min(sine, 1.0))) + _LEEWAY
