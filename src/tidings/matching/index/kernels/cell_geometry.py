"""Compute the cell of a place on each level of a grid, and the cells around it that an event has to look into."""

import numpy as np

from tidings.matching.index.kernels.jit import part

LINE, PLANE, SPHERE = range(3)

# A level has cells of size 2 ** (level - ORIGIN); EVERYONE has a single cell, NOBODY has none. In the
# plane a radius is up to twice the cell size of its level, on the sphere at most the cell size.
ORIGIN = 40
EVERYONE = 103
NOBODY = 104
SIZE = 2.0 ** (np.arange(NOBODY) - ORIGIN)

# Cells that are far apart share numbers: the comparison of coordinates separates them.
FOLD = np.int64(2**30 - 1)
NOWHERE, ANYWHERE = np.int64(2**30), np.int64(2**30 + 1)

_WILD = 2.0**20  # degrees of longitude above which differences are not exact enough
_LEEWAY = 1e-5  # a margin in degrees for the errors of sines and cosines
UNUSABLE, USABLE, FAR_ROUND = range(3)  # kinds of places; FAR_ROUND has a longitude above _WILD


@part
def normalized_place(shape, x, y):
    """Convert a place for the grid: its kind, the coordinates a, b, c for distances, and u, v for cells.

    On the sphere a, b, c are a unit vector, and u, v are longitude and latitude in degrees.
    """
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
def cell_of(shape, level, usable, u, v):
    """Return the cell of a place on a level.

    Args:
        shape: LINE, PLANE or SPHERE.
        level: The level.
        usable: The kind of the place.
        u: The first coordinate for cells.
        v: The second coordinate for cells.
    """
    if level == NOBODY or usable == UNUSABLE:
        return NOWHERE, np.int64(0)
    if level == EVERYONE or usable == FAR_ROUND:
        return ANYWHERE, np.int64(0)
    size = SIZE[level]
    if shape == SPHERE:
        band = np.int64(np.floor(v / size))
        turn = cells_in_band(band, size)
        return min(np.int64(np.floor(u / (360.0 / turn))), turn - 1), band & FOLD
    return _folded(u / size), _folded(v / size) if shape == PLANE else np.int64(0)


@part
def _folded(number):
    # Beyond these coordinates no event looks into cells.
    return np.int64(np.floor(number)) & FOLD if abs(number) < 2.0**60 else np.int64(0)


@part
def bands(shape, v, reach, size):
    """Return the first and the last band of cells within reach.

    Args:
        shape: LINE, PLANE or SPHERE.
        v: The second coordinate for cells.
        reach: The distance in the unit of v.
        size: The cell size of the level.
    """
    if shape == LINE:
        return np.int64(0), np.int64(0)
    low, high = v - reach, v + reach
    if shape == SPHERE:
        low, high = max(low - _LEEWAY, -90.0), min(high + _LEEWAY, 90.0)
    return np.int64(np.floor(low / size)), np.int64(np.floor(high / size))


@part
def cells_in_band(band, size):
    """Return how many cells a band of latitudes has: fewer towards the poles, so that cells are about square."""
    top = max(abs(band * size), abs((band + 1) * size))
    return max(np.int64(360.0 * np.cos(np.radians(top)) / size), np.int64(1)) if top < 90.0 else np.int64(1)


@part
def longitude_reach(latitude, reach):
    """Return how many degrees of longitude a circle extends to either side; 180 if it contains a pole."""
    if abs(latitude) + reach + _LEEWAY >= 90.0:
        return 180.0
    sine = np.sin(np.radians(reach)) / np.cos(np.radians(latitude))
    return np.degrees(np.arcsin(min(sine, 1.0))) + _LEEWAY
