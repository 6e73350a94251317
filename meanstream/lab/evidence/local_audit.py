"""Exact laws of what users send, by kind of channel and vote.

The code runs on chosen bits, outcomes are counted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from meanstream.lab.evidence.audit_record import require_as_audited
from meanstream.lab.evidence.counters_audit import laplace_sampler_epsilon
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Floats, Ints, Words
from meanstream.operators.rounds.channels.hybrid import HybridChannel
from meanstream.operators.rounds.channels.laplace import LaplaceChannel
from meanstream.operators.rounds.channels.window_channel import WindowChannel
from meanstream.operators.rounds.votes.choice_votes import RandomizedResponseVotes, SubsetVotes
from meanstream.operators.rounds.votes.vote_packing import unpack_votes
from meanstream.operators.validation import require

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
    laws = list(distributions)
    worst = 0.0
    for report in {report for masses in laws for report in masses}:
        masses = [law.get(report, 0) for law in laws]
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


def window_masses(channel: WindowChannel, x: float, *, rounded_up: bool) -> dict[int, int]:
    """Masses of the reports of a value whose place is rounded up, or down, out of 2**63."""
    number = np.uint64(0 if rounded_up else 2**64 - 1)

    def respond(numbers: Words) -> Ints:
        words = np.column_stack([numbers << np.uint64(1), np.full(len(numbers), number)])
        return channel.randomize(np.full(len(numbers), x), ChosenWords(words))

    outside = (channel.points - channel.window) * channel.unlikely
    edges = [*range(0, outside + 1, channel.unlikely)]
    edges += [outside + i * channel.likely for i in range(1, channel.window + 1)]
    require_as_audited(edges[-1] == 2**63, "the masses do not add up to all numbers")

    return interval_masses(respond, edges)


def worst_window_loss(channel: WindowChannel, values: Iterable[float]) -> float:
    """Worst loss of the channel as it runs between any two of these values, whichever way their places are rounded."""
    return worst_loss(
        window_masses(channel, x, rounded_up=up) for x in values for up in (False, True)
    )


def bit_probabilities(votes: Any, rows: npt.NDArray[Any], bins: int) -> Floats:
    """Probability, exactly, that each bit is reported as 1.

    One row for each input of a vote with independent bits.
    """

    def report(numbers: npt.NDArray[np.uint64]) -> Bools:
        words = ChosenWords.of_32_bits(numbers.astype(np.uint32))
        return np.asarray(unpack_votes(votes.randomize(rows, words), bins) == 1)

    shape = (len(rows), bins)
    # A true bit may be reported as 1 for small numbers or for large ones; either way the numbers
    # form one interval.
    low_is_one = report(np.zeros(shape, np.uint64))
    count = count_below(lambda numbers: report(numbers) == low_is_one, 32, shape)
    return np.asarray(np.where(low_is_one, count, 2**32 - count) / 2.0**32)


def worst_bits_loss(probability: Floats) -> float:
    """Worst loss between any two rows of independent bits, by listing all reports of at most 12 bits."""
    n_bits = probability.shape[1]
    require(n_bits <= 12, "probability", "have at most 12 columns", n_bits)
    reports = (np.arange(2**n_bits)[:, None] >> np.arange(n_bits)) & 1
    pmfs = [np.where(reports == 1, row, 1.0 - row).prod(axis=1) for row in probability]

    return worst_pmf_loss(np.array(pmfs))


def subset_pmf(votes: SubsetVotes, category: int, categories: int) -> dict[int, float]:
    """Probability of each set that subset selection reports for a category (-1 for the last one), as the code runs."""
    base = category if category >= 0 else categories - 1
    others = [i for i in range(categories) if i != base]
    chances: dict[int, float] = defaultdict(float)

    def respond(lanes: Sequence[int | Ints], bit: int) -> Bools:
        columns = np.broadcast_arrays(*[np.asarray(lane, dtype=np.int64) for lane in lanes])
        raw = np.stack([np.atleast_1d(column) for column in columns], axis=1).astype(
            np.uint64
        ) << np.uint64(11)
        # Number 0 decides about the voter's category, then one is skipped, then there is one for
        # each other category.
        numbers = np.pad(np.insert(raw, 1, 0, axis=1), ((0, 0), (0, categories + 2 - raw.shape[1])))
        words = cast(RandomWords, ChosenWords(numbers))

        return np.asarray(
            (votes.randomize(np.full(len(numbers), category), words)[:, 0] >> bit) & 1 == 1
        )

    def explore(lanes: list[int], taken: int, mass: float) -> None:
        depth = len(lanes)
        if depth == categories:
            chances[taken] += mass
            return

        bit = base if depth == 0 else others[depth - 1]
        low_is_one = respond([*lanes, 0], bit)[0]
        same = count_below(
            lambda number: respond([*lanes, number.astype(np.int64)], bit) == low_is_one, 53, (1,)
        )[0]

        for number, count, is_one in (
            (0, same, low_is_one),
            (2**53 - 1, 2**53 - same, not low_is_one),
        ):
            if count:
                explore(
                    [*lanes, number], taken | (int(is_one) << bit), mass * (int(count) / 2.0**53)
                )

    explore([], 0, 1.0)
    return dict(chances)


def response_masses(votes: RandomizedResponseVotes, row: int) -> dict[int, int]:
    """Masses of the categories that randomized response reports for a row, out of 2**63."""

    def respond(numbers: Words) -> Ints:
        words = np.column_stack([numbers << np.uint64(1), numbers])
        return votes.randomize(np.full(len(numbers), row), ChosenWords(words))[:, 0]

    others = votes.categories - 1
    return interval_masses(respond, [*(i * votes.unlikely_mass for i in range(others + 1)), 2**63])


def hybrid_masses(channel: HybridChannel, x: float) -> dict[int, int]:
    """Masses of the two reports of the hybrid's bit for a value, out of 2**53."""

    def reports(coin: npt.NDArray[np.uint64], sign: npt.NDArray[np.uint64]) -> Ints:
        words = np.zeros((1, 4), np.uint64)
        words[:, 2] = coin << np.uint64(11)
        words[:, 3] = sign << np.uint64(11)
        return channel.randomize(np.array([x]), ChosenWords(words))

    last = np.array([2**53 - 1], dtype=np.uint64)
    up = count_below(lambda sign: reports(last, sign) == channel.bit, 53, (1,))
    return {channel.bit: int(up[0]), -channel.bit: 2**53 - int(up[0])}


def hybrid_shares(channel: HybridChannel, values: Sequence[float]) -> list[int]:
    """How many of the 2**53 coins make the hybrid's report a wide one, for each value.

    It must be the same for all.
    """
    n = len(values)

    def is_wide(coin: npt.NDArray[np.uint64]) -> Bools:
        words = np.zeros((n, 4), np.uint64)
        words[:, 2] = coin << np.uint64(11)
        return np.asarray(channel.randomize(np.array(values), ChosenWords(words)) != channel.bit)

    return [int(share) for share in count_below(is_wide, 53, (n,))]


def hybrid_loss(channel: HybridChannel, values: Sequence[float]) -> float:
    """Worst loss of the mixture of the wide channel and the bit, by adding up their counted masses."""
    shares = hybrid_shares(channel, values)

    def mixed(x: float, share: int, *, rounded_up: bool) -> dict[int, int]:
        masses: dict[int, int] = defaultdict(int)
        for report, mass in window_masses(channel.piecewise, x, rounded_up=rounded_up).items():
            masses[report] += share * mass * 2**53

        for report, mass in hybrid_masses(channel, x).items():
            masses[report] += (2**53 - share) * mass * 2**63

        return dict(masses)

    return worst_loss(
        mixed(x, share, rounded_up=up)
        for x, share in zip(values, shares, strict=True)
        for up in (False, True)
    )


def laplace_loss(channel: LaplaceChannel) -> float:
    """Loss between the two values farthest apart.

    Exact on the noise as implemented, in the tails and near 0.
    """
    words = ChosenWords(np.array([[1, 2], [1, 2]], dtype=np.uint64))
    shift = int(np.ptp(channel.randomize(np.array([-1e9, 1e9]), words)))
    return laplace_sampler_epsilon(channel.noise, np.array([shift]))
