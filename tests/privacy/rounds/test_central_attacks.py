"""Attacks by search on the bounds of the trusted curator, and bounds that assume more, which they
break."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meanstream.lab.papers.cummings.private_sizes import SensitivityBound


class Database:
    """Users as (bin, offset), over a few possible sizes."""

    def __init__(self, rng):
        kinds = int(rng.integers(2, 5))
        self.weight = np.sort(rng.random(kinds) ** rng.integers(1, 6)) + 1e-3
        self.weight /= self.weight[-1]
        self.radius = np.sort(rng.random(kinds))[::-1] + 0.01
        self.n = int(rng.integers(2, 25))
        self.bins = rng.integers(0, kinds, self.n) if rng.random() < 0.7 else np.zeros(self.n, int)
        self.offset = self.radius[self.bins] * rng.choice([-1.0, 1.0, 0.0, 0.5], self.n)
        if rng.random() < 0.5:
            self.offset = self.radius[self.bins] * (0.2 * rng.random(self.n) - 0.1)

    def bound(self, bins, offset, kind=SensitivityBound):
        counts = np.bincount(bins, minlength=len(self.weight))
        return kind(self.weight, self.radius, counts, float((self.weight[bins] * offset).sum()))

    def swapped(self, bins, offset, rng, number):
        """Replace some users by such as move the mean: large ones at an end, or the smallest."""
        bins, offset = bins.copy(), offset.copy()
        sign = rng.choice([-1.0, 1.0])
        order = np.argsort(-self.weight[bins]) if rng.random() < 0.6 else rng.permutation(self.n)
        for who in order[:number]:
            kind = (
                int(rng.integers(len(self.weight)))
                if rng.random() < 0.4
                else int(rng.choice([0, -1]))
            )
            bins[who] = range(len(self.weight))[kind]
            offset[who] = self.radius[bins[who]] * (
                sign if rng.random() < 0.8 else rng.choice([-1.0, 0.0, 1.0])
            )
        return bins, offset

    def sensitivity(self, bins, offset):
        """Largest change of the mean by replacing one user, over all users, sizes and ends of
        windows."""
        weight = self.weights(bins, offset)
        total, mass = weight @ offset, weight.sum()
        left, kept = total - weight * offset, mass - weight
        kinds = np.tile(np.arange(len(self.weight)), 3)
        joining = np.concatenate([self.radius, -self.radius, 0.01 * self.radius])
        joined = self.weights(kinds, joining)
        after = (left[:, None] + joined * joining) / (kept[:, None] + joined)
        return float(np.abs(after - total / mass).max())

    def weights(self, bins, offset):
        return self.weight[bins]


class PrintedWeights(Database):
    """Known-bad twin, erratum C7: `(p - p_i)**2` where `p (1 - p)` is meant."""

    def weights(self, bins, offset):
        return 0.25 * self.weight[bins] / (offset**2 + 1e-6)


def attack(kind, tries, seed, database_of=Database):
    """Count violations: a sensitivity above the proposal within the distance, and a distance that
    moves by over 1."""
    rng = np.random.default_rng(seed)
    exceeded = jumped = tested = 0
    for _ in range(tries):
        database = database_of(rng)
        bound = database.bound(database.bins, database.offset, kind)
        aimed = int(rng.integers(0, database.n))
        proposal = bound.at(aimed) * (1.0 + 1e-9)
        distance = bound.distance(proposal)
        if distance >= 0:
            changed = database.swapped(
                database.bins, database.offset, rng, int(rng.integers(0, distance + 1))
            )
            tested += 1
            exceeded += database.sensitivity(*changed) > proposal * (1.0 + 1e-9)
        neighbor = database.bound(*database.swapped(database.bins, database.offset, rng, 1), kind)
        jumped += abs(neighbor.distance(proposal) - distance) > 1
    return tested, exceeded, jumped


def test_the_distance_of_the_test_holds_against_attacks():
    tested, exceeded, jumped = attack(SensitivityBound, 5000, seed=6)
    assert tested > 3000
    assert (exceeded, jumped) == (0, 0)


class AverageUsersLeave(SensitivityBound):
    """Known-bad twin: assumes that the users who are replaced have average weights."""

    def remaining(self, k):
        n = int(self.counts.sum())
        return (
            float(self.counts @ self.weight) * max(n - 1 - k, 0) / n
            + min(k, n - 1) * self.weight.min()
        )


class OnlyHere(SensitivityBound):
    """Known-bad twin: the sensitivity of this very database, whatever the distance."""

    def at(self, k):
        return super().at(0)


class CenterIsTheMean(SensitivityBound):
    """Known-bad twin: forgets that the others' mean may be away from the center."""

    def at(self, k):
        remaining = self.remaining(k)
        return 2.0 * float((self.weight * self.radius / (remaining + self.weight)).max())


@pytest.mark.parametrize("twin", [AverageUsersLeave, OnlyHere, CenterIsTheMean])
def test_attacks_break_bounds_that_assume_more(twin):
    _, exceeded, jumped = attack(twin, 2000, seed=6)
    assert exceeded + jumped > 0


def test_attacks_break_the_printed_weights():
    _, exceeded, _ = attack(SensitivityBound, 500, seed=6, database_of=PrintedWeights)
    assert exceeded > 0


def test_the_printed_weights_have_no_bound_at_all():
    # Erratum C7: with weights from (p - p_i)**2, one user at the center outweighs everybody:
    # replacing it moves the mean further than the valid bound for the corrected weights allows.
    rng = np.random.default_rng(7)
    p, between, size, n = 0.3, 1e-3, 50, 200
    mean = rng.binomial(size, p, n) / size

    def printed(mean):
        weight = 1.0 / ((p - mean) ** 2 / size + (1.0 - 1.0 / size) * between**2)
        return float(weight @ (mean - p) / weight.sum())

    variance = p * (1 - p) / size + (1 - 1 / size) * between**2
    radius = 6.0 * math.sqrt(variance)
    bound = SensitivityBound(np.ones(1), np.array([radius]), np.array([n]), float((mean - p).sum()))
    mean[0], other = p, mean.copy()
    other[0] = p - radius
    assert abs(mean.mean() - other.mean()) <= bound.at(0)
    # All others at one end: the printed mean jumps from there to the center, and back.
    far = np.full(n, p + radius)
    near = far.copy()
    near[0] = p
    at_end = SensitivityBound(np.ones(1), np.array([radius]), np.array([n]), float(radius * n))
    assert abs(near.mean() - far.mean()) <= at_end.at(0)
    assert abs(printed(near) - printed(far)) > at_end.at(0)
