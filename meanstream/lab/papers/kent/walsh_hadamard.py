"""The random rotation of a vector by signs and a fast Walsh-Hadamard transform."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt

from meanstream.operators.records import Floats
from meanstream.operators.validation import require

MAX_DIMENSION = 2**20


def walsh_hadamard(rows: npt.ArrayLike) -> Floats:
    """Multiply each row by the Hadamard matrix (not normalized).

    `log2 d` passes of additions over all rows at once.

    Parameters
    ----------
    rows : float array (..., d)
        d a power of two.

    Returns
    -------
    float array (..., d)
        Twice the transform is d times the identity.

    Raises
    ------
    ValueError
        If d is not a power of two.

    Examples
    --------
    >>> walsh_hadamard([[1.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]])
    array([[ 1.,  1.,  1.,  1.],
           [10., -2., -4.,  0.]])
    """
    # In this order the reshaped array is a view, through which `found` is changed in place.
    found = np.array(rows, dtype=np.float64, order="C")
    d = found.shape[-1]
    require(d >= 1 and d & (d - 1) == 0, "dimension", "be a power of two", d)
    half = 1

    while half < d:
        # Pairs of blocks of this length: (a, b) becomes (a + b, a - b).
        pairs = found.reshape(*found.shape[:-1], d // (2 * half), 2, half)
        upper = pairs[..., 0, :] - pairs[..., 1, :]
        pairs[..., 0, :] += pairs[..., 1, :]
        pairs[..., 1, :] = upper
        half *= 2

    return found


class RandomRotation:
    """An orthogonal map that spreads every vector evenly over its coordinates: `H W / sqrt(D)`.

    Parameters
    ----------
    dimension : int
        Number d of coordinates of the vectors; they are padded with zeros to D, the next power of
        two.
    seed : bytes
        Public and the same for all users of a round, such as the round's id; it decides the signs
        W.

    Attributes
    ----------
    padded : int
        The power of two D, number of coordinates of the rotated vectors.

    Notes
    -----
    A vector of Euclidean norm at most 1 has rotated coordinates in [-1, 1], whatever the signs: each is the inner
    product with a vector of norm 1. Most are of the order of 1 / sqrt(D).

    **Privacy.** None by itself, and none is lost: the signs are public and independent of all data.

    References
    ----------
    Kent, Berrett, Yu, Rate Optimality and Phase Transition for User-Level Local Differential Privacy, (33).

    Examples
    --------
    >>> rotation = RandomRotation(3, b"2013-01-07")
    >>> rotated = rotation.forward([[0.6, 0.0, 0.8]])
    >>> rotated.round(2), (rotation.backward(rotated) + 0.0).round(2)
    (array([[ 0.1,  0.1, -0.7, -0.7]]), array([[0.6, 0. , 0.8]]))
    """

    __slots__ = ("_factor", "dimension", "padded")

    def __init__(self, dimension: int, seed: bytes) -> None:
        require(
            1 <= dimension <= MAX_DIMENSION,
            "dimension",
            f"lie between 1 and {MAX_DIMENSION}",
            dimension,
        )
        self.dimension = dimension
        self.padded = 1 << (dimension - 1).bit_length()
        self._factor = walsh_hadamard_signs(dimension, seed) / math.sqrt(self.padded)

    def forward(self, vectors: npt.ArrayLike) -> Floats:
        """Rotate vectors (..., d) to (..., D).

        Raises
        ------
        ValueError
            If the vectors do not have d coordinates.
        """
        raw = np.asarray(vectors, dtype=np.float64)
        require(
            raw.shape[-1:] == (self.dimension,),
            "vectors",
            f"have {self.dimension} coordinates",
            raw.shape,
        )
        padding = [(0, 0)] * (raw.ndim - 1) + [(0, self.padded - self.dimension)]

        return walsh_hadamard(np.pad(raw * self._factor, padding))

    def backward(self, rotated: npt.ArrayLike) -> Floats:
        """Turn rotated vectors (..., D) back to (..., d).

        The inverse of `forward`, which never increases the norm.

        Raises
        ------
        ValueError
            If the vectors do not have D coordinates.
        """
        raw = np.asarray(rotated, dtype=np.float64)
        require(
            raw.shape[-1:] == (self.padded,),
            "rotated",
            f"have {self.padded} coordinates",
            raw.shape,
        )

        return walsh_hadamard(raw)[..., : self.dimension] * self._factor


def walsh_hadamard_signs(n: int, seed: bytes) -> Floats:
    """Make n public random signs, 1.0 or -1.0, from a seed.

    The bits of a hash, the same on every machine.

    Examples
    --------
    >>> walsh_hadamard_signs(8, b"2013-01-07")
    array([-1., -1.,  1., -1.,  1.,  1.,  1.,  1.])
    """
    stream = hashlib.shake_256(b"meanstream signs" + seed).digest(-(-n // 8))
    return 1.0 - 2.0 * np.unpackbits(np.frombuffer(stream, np.uint8))[:n].astype(np.float64)
