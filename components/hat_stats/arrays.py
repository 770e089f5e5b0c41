"""Checked arrays: what every function here does to its input before it computes.

Always holds: what leaves this module is float64 (NaN = missing, never infinite) or dense integer codes from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hat_stats.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bounds = tuple[float, float]


def vector(values: ArrayLike, place: str) -> Floats:
    """`values` as float64 [n]. None becomes NaN; infinite or non-numeric values are refused."""
    return matrix(values, place, 1)


def matrix(values: ArrayLike, place: str, ndim: int = 2) -> Floats:
    """`values` as float64 with `ndim` dimensions."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"not numeric: {error}", place=place, cure="give numbers, NaN for missing") from error
    if array.ndim != ndim:
        raise InputError(f"has {array.ndim} dimensions, {ndim} expected", place=place)
    if np.isinf(array).any():
        raise InputError("holds an infinite value", place=place, cure="give NaN where there is no value")
    return array


def binary(values: ArrayLike, place: str) -> Floats:
    """`values` as float64 [n] of 0, 1 and NaN."""
    array = vector(values, place)
    odd = array[~np.isnan(array) & (array != 0) & (array != 1)]
    if odd.size:
        raise InputError(f"holds {odd[0]:g} where only 0, 1 or NaN can stand", place=place)
    return array


def same_length(place: str, *arrays: NDArray[Any]) -> None:
    """Refuse arrays that do not pair up."""
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise InputError(f"lengths differ: {', '.join(map(str, lengths))}", place=place, cure="align them by item id")


def codes(labels: Sequence[Any] | NDArray[Any], n: int, place: str) -> Ints:
    """Dense codes [n] of `labels`, numbered in sorted order so that the order of the items does not matter."""
    if len(labels) != n:
        raise InputError(f"{len(labels)} labels for {n} items", place=place)
    array = labels if isinstance(labels, np.ndarray) and labels.dtype != object else np.array([str(x) for x in labels])
    return np.unique(array, return_inverse=True)[1].astype(np.int64).reshape(n)


def open_unit(value: float, place: str) -> float:
    """`value` where it lies strictly between 0 and 1 (levels, alphas, powers)."""
    if not 0.0 < value < 1.0:
        raise InputError(f"{value!r} is not strictly between 0 and 1", place=place)
    return float(value)


def positive(value: float, place: str) -> float:
    """`value` where it is finite and above 0."""
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"{value!r} is not a positive number", place=place)
    return float(value)


def check_bounds(bounds: Bounds, *arrays: Floats) -> Bounds:
    """`bounds` where low < high and every known value of `arrays` lies within."""
    low, high = float(bounds[0]), float(bounds[1])
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InputError(f"({low:g}, {high:g}) are no bounds", place="bounds", cure="give (low, high), low < high")
    for array in arrays:
        known = array[~np.isnan(array)]
        if known.size and (known.min() < low or known.max() > high):
            worst = known.min() if known.min() < low else known.max()
            raise InputError(f"{worst:g} lies outside ({low:g}, {high:g})", place="bounds", cure="give the metric's")
    return low, high


def mean_or_none(values: Floats) -> float | None:
    """The mean of the known values, or None where there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None
