"""The fast transform against the dense matrix, and the rotation's properties."""

import math
import re

import numpy as np
import pytest
from scipy.linalg import hadamard

from meanstream.lab.papers.kent.l2 import (
    RandomRotation,
    walsh_hadamard,
    walsh_hadamard_signs,
)


@pytest.mark.parametrize("d", [1, 2, 4, 32, 256])
def test_transform_is_the_dense_product(d: int) -> None:
    rows = np.random.default_rng(1).normal(size=(5, 3, d))
    kept = rows.copy()
    assert np.allclose(walsh_hadamard(rows), rows @ hadamard(d), rtol=0.0, atol=1e-12 * d)
    assert (rows == kept).all()
    assert (walsh_hadamard(np.asfortranarray(rows)) == walsh_hadamard(rows)).all()
    assert np.allclose(walsh_hadamard(walsh_hadamard(rows)), d * rows, rtol=0.0, atol=1e-11 * d)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 100])
def test_rotation_is_orthogonal(d: int) -> None:
    rotation = RandomRotation(d, b"round 1")
    assert rotation.padded == 2 ** math.ceil(math.log2(d))
    vectors = np.random.default_rng(2).normal(size=(20, d))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rotated = rotation.forward(vectors)
    assert rotated.shape == (20, rotation.padded)
    assert np.allclose(np.linalg.norm(rotated, axis=1), 1.0)
    assert np.abs(rotated).max() <= 1.0 + 1e-12
    assert np.allclose(rotation.backward(rotated), vectors)
    assert np.allclose(rotation.forward(vectors[0]), rotated[0])
    # Noise in the padding's directions is dropped: going back never increases the norm.
    noise = np.random.default_rng(3).normal(size=(20, rotation.padded))
    assert (
        np.linalg.norm(rotation.backward(noise), axis=1) <= np.linalg.norm(noise, axis=1) + 1e-12
    ).all()


def test_rotation_spreads_a_single_coordinate() -> None:
    rotation = RandomRotation(64, b"round 1")
    assert np.allclose(np.abs(rotation.forward(np.eye(64))), 1.0 / 8.0)
    # A vector aligned with a row of the Hadamard matrix is spread by the signs: 6 sd of 64
    # coordinates.
    aligned = hadamard(64)[5] / 8.0
    assert np.abs(walsh_hadamard(aligned) / 8.0).max() == pytest.approx(1.0)
    assert np.abs(rotation.forward(aligned)).max() < 6.0 / 8.0


def test_signs_are_balanced_and_depend_on_the_seed() -> None:
    many = walsh_hadamard_signs(100_000, b"a")
    assert set(many.tolist()) == {-1.0, 1.0}
    assert abs(many.sum()) < 5.0 * math.sqrt(100_000)
    assert abs(many @ walsh_hadamard_signs(100_000, b"b")) < 5.0 * math.sqrt(100_000)
    assert (many[:17] == walsh_hadamard_signs(17, b"a")).all()


def test_bad_shapes() -> None:
    with pytest.raises(ValueError, match="dimension must be a power of two, got 3"):
        walsh_hadamard(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="dimension must lie between 1 and"):
        RandomRotation(0, b"")
    rotation = RandomRotation(3, b"")
    with pytest.raises(ValueError, match=re.escape("vectors must have 3 coordinates, got (2, 4)")):
        rotation.forward(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="rotated must have 4 coordinates"):
        rotation.backward(np.zeros((2, 3)))
