"""Classes of counts: agents of like numbers of samples are answered with one prior."""

from __future__ import annotations

import numpy as np

from meanstream.operators.records import Floats, Ints

_EXACT_COUNTS = 16
_PER_OCTAVE = 6
_OCTAVES = 40


def count_class(count: Ints) -> Ints:
    """Class of a number of samples: each up to 16 has its own, larger ones are six to an octave.

    Examples
    --------
    >>> count_class(np.array([1, 2, 16, 17, 32, 64])).tolist()
    [0, 1, 15, 16, 21, 27]
    """
    count = np.asarray(count)
    if not count.size or count.max() >= _TABLED or count.min() < 0:
        return _count_class(count)
    return np.asarray(_CLASSES.take(count), np.int64)


def _count_class(count: Ints) -> Ints:
    finer = np.floor(
        _PER_OCTAVE * np.log2(np.maximum(count, _EXACT_COUNTS) / _EXACT_COUNTS) - 1e-9
    ).astype(np.int64)
    return np.where(count <= _EXACT_COUNTS, np.maximum(count, 1) - 1, _EXACT_COUNTS + finer)


_TABLED = 1 << 18
_CLASSES = _count_class(np.arange(_TABLED)).astype(np.int16)
"""Classes of small counts: a look-up is far cheaper than a logarithm."""


_FINER = _EXACT_COUNTS * 2 ** ((np.arange(_PER_OCTAVE * _OCTAVES) + 0.5) / _PER_OCTAVE)
CLASS_COUNTS: Floats = np.concatenate([np.arange(1.0, _EXACT_COUNTS + 1), _FINER])
"""Middle of each class."""
