"""Random bits that an audit chooses, and how many of them lead to each outcome.

A report is a step function of the uniform integers that it is made of. Where the steps are is
either claimed by the caller and checked on both sides of every step (`interval_masses`), or
searched bit by bit (`count_below`). The masses are integers; only the logarithm of their ratio is a
float.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from meanstream.lab.evidence.audit_record import require_as_audited
from meanstream.operators.records import Bools, Floats, Ints, Words

TOLERANCE = 1e-11
"""For the logarithms of exact ratios: a loss above epsilon by more than this is a defect."""

Masses = Mapping[Any, int | float]


class ChosenWords:
    """Random bits that an audit chooses.

    64-bit numbers in the order in which they are used, shape (n, numbers).
    """

    def __init__(self, numbers: npt.NDArray[np.uint64]) -> None:
        odd = numbers.shape[1] % 2
        self._numbers = np.pad(numbers, ((0, 0), (0, odd)))

    @classmethod
    def of_32_bits(cls, numbers: npt.NDArray[np.uint32]) -> ChosenWords:
        """Choose them as 32-bit numbers."""
        padded = np.pad(numbers, ((0, 0), (0, -numbers.shape[1] % 4)))
        return cls(np.ascontiguousarray(padded).astype("<u4").view("<u8"))

    def __call__(self, draw: int) -> Words:
        """Give two numbers for each user."""
        return self._numbers[:, 2 * draw : 2 * draw + 2]


def worst_loss(distributions: Iterable[Masses]) -> float:
    """Return the largest log-likelihood ratio of a report between any two inputs.

    Infinite if only some can send it.
    """
    found = list(distributions)
    worst = 0.0
    for report in {report for masses in found for report in masses}:
        masses = [one.get(report, 0) for one in found]
        if min(masses) == 0:
            if max(masses) > 0:
                return math.inf
        else:
            worst = max(worst, math.log(max(masses)) - math.log(min(masses)))

    return worst


def worst_pmf_loss(pmfs: Floats) -> float:
    """Return `worst_loss` of rows of probabilities, one row for each input."""
    return worst_loss(dict(enumerate(row)) for row in np.asarray(pmfs).tolist())


def interval_masses(respond: Callable[[Words], Ints], edges: Sequence[int]) -> dict[int, int]:
    """How many of the integers from the first edge to below the last one lead to each report.

    `respond` must be constant between neighboring edges: checked at both ends and at a point inside
    of each interval.
    """
    bounds = [(a, b) for a, b in pairwise(edges) if a < b]
    points = np.array([(a, (a + b) // 2, b - 1) for a, b in bounds], dtype=np.uint64)
    reports = respond(points.ravel()).reshape(-1, 3)
    require_as_audited((reports == reports[:, :1]).all(), "the report changes within an interval")
    masses: dict[int, int] = defaultdict(int)

    for (a, b), report in zip(bounds, reports[:, 0].tolist(), strict=True):
        masses[report] += b - a

    return dict(masses)


def count_below(
    is_one: Callable[[npt.NDArray[np.uint64]], Bools], bits: int, shape: tuple[int, ...]
) -> Ints:
    """How many of the `2**bits` numbers give 1, for each entry.

    `is_one` must be 1 up to some number and 0 from there.

    The count is found from its highest bit down; 1 for all numbers counts as `2**bits`.
    """
    count = np.zeros(shape, np.int64)
    for bit in range(bits, -1, -1):
        trial = count + (1 << bit)
        possible = trial <= 1 << bits
        last = np.where(possible, trial - 1, 0).astype(np.uint64)
        count = np.where(possible & is_one(last), trial, count)

    return count
