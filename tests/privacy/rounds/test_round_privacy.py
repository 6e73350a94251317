"""What a user sends in a round: the exact worst loss of every stage as its code runs, and the
mistakes this must catch.

Users are enumerated: sizes below, at and above every threshold, means on the ends, in the middle
and on both sides of the edges of every bin. Nothing here is statistical: losses are computed from
the probabilities of the bits that lead to each report.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from meanstream.lab.evidence.local_audit import (
    TOLERANCE,
    bit_probabilities,
    window_masses,
    worst_bits_loss,
    worst_loss,
)
from meanstream.lab.papers.dame.dame import Dame
from meanstream.lab.papers.dame.round_baselines import (
    HALF,
    Duchi,
    Item,
    Semi,
    Split,
    SummedLaplaceChannel,
)
from meanstream.lab.papers.kent.univariate import Kent
from meanstream.lab.papers.kent.vote_stage import VoteRound
from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.one_shot import OneShot
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.rounds.channels.registry import make_channel
from meanstream.operators.rounds.clip_stage import ClipRound
from meanstream.operators.rounds.localization import Bins, ClipWindow
from meanstream.operators.rounds.round_records import Summaries
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.rounds.votes.registry import make_votes

EPSILON = 22 / 35
SPAN = 2**20
SIZES = SizeDistribution.parse("two:1000,4000,0.5")
DAME = {"epsilon": EPSILON, "users": 10_000, "sizes": SIZES}


def summaries(count, mean, first=None):
    """One user per entry; means in [-1, 1], rounded to the grid."""
    count, mean = np.broadcast_arrays(np.asarray(count, np.int64), np.asarray(mean, np.float64))
    total = np.rint((mean + 1) / 2 * SPAN * count).astype(np.int64)
    ids = keyed_owner_words([str(i) for i in range(len(count))])
    first = total // count if first is None else np.asarray(first)
    return Summaries(user=ids, count=count.copy(), total=total, first=first, span=SPAN)


def everybody(bins=None, threshold=1):
    """Users of all kinds."""
    means = [-1.0, -0.5, 0.0, 0.3, 1.0]
    for j in range(0 if bins is None else bins.count):
        lower, upper = bins.edges(j)
        means += [lower, (lower + upper) / 2, *(np.clip(lower + d, -1, 1) for d in (-3e-6, 3e-6))]
    sizes = sorted({1, max(threshold - 1, 1), threshold, 4 * threshold})
    count, mean = (a.ravel() for a in np.meshgrid(sizes, means))
    given = summaries(count, mean)
    # A first sample at either end, too: schemes that report it must protect it.
    first = np.tile([0, SPAN], len(given))[: len(given)]
    return Summaries(user=given.user, count=given.count, total=given.total, first=first, span=SPAN)


class AsVotes:
    """A stage as votes of the audit: a row is the number of a user."""

    def __init__(self, step, users):
        self.step, self.users = step, users

    def randomize(self, rows, words):
        return self.step.encode(self.users.take(rows), {}, words)


class AsChannel:
    """A stage as a channel of the audit: a value is the number of a user."""

    def __init__(self, step, users, public, channel):
        self.step, self.users, self.public = step, users, public
        self.points, self.window = channel.points, channel.window
        self.likely, self.unlikely = channel.likely, channel.unlikely

    def randomize(self, x, words):
        return self.step.encode(self.users.take(x.astype(np.int64)), self.public, words)[:, 0]


def sends_one_row_each(step, users, public):
    """Whether every kind of user sends a report, and all the same number of integers."""
    reports = step.encode(users, public, SeededWords(np.random.default_rng(1), len(users)))
    return len(reports) == len(users)


def row_loss(probability):
    """Worst loss between rows of independent bits: each bit takes the worse of its two values."""
    rows = np.unique(probability, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        one, zero = np.log(rows), np.log1p(-rows)
        losses = [np.nan_to_num(np.maximum(one - a, zero - b), nan=0.0, posinf=np.inf).sum(axis=1).max()
                  for a, b in zip(one, zero, strict=True)]  # fmt: skip
    return float(max(losses))


def vote_loss(step, users, bins):
    if not sends_one_row_each(step, users, {}):
        return math.inf
    return row_loss(bit_probabilities(AsVotes(step, users), np.arange(len(users)), bins))


def no_noise(n):
    """Words for which discrete Laplace noise is 0."""
    return lambda draw: np.full((n, 2), 2**63 - 1, dtype=np.uint64)


def laplace_loss(step, users, public, channel):
    """Worst loss of a report: how far users are apart on the grid, against the noise that is really
    added."""
    if not sends_one_row_each(step, users, public):
        return math.inf
    n = len(users)
    place = step.encode(users, public, no_noise(n))[:, 0]
    words = SeededWords(np.random.default_rng(2), n)
    added = step.encode(users, public, words)[:, 0] - place
    assert np.array_equal(added, channel.noise.sample(words(0)).astype(np.int64)), (
        "noise depends on the input"
    )
    low, high = int(place.min()), int(place.max())
    reports = np.concatenate([np.linspace(low - 10**6, high + 10**6, 1001).round(), place])
    return float(
        np.abs(
            np.log(channel.noise.pmf(reports - low)) - np.log(channel.noise.pmf(reports - high))
        ).max()
    )


def window_loss(step, users, public, channel):
    """Worst loss of a report through a window channel (one bit, piecewise)."""
    if not sends_one_row_each(step, users, public):
        return math.inf
    seen = AsChannel(step, users, public, channel)
    low = step.encode(users, public, lambda draw: np.zeros((len(users), 2), np.uint64))[:, 0]
    kinds = np.unique(low, return_index=True)[1].tolist() + list(range(0, len(users), 17))
    return worst_loss(window_masses(seen, i, rounded_up=up) for i in kinds for up in (False, True))


def windows_of(estimator, reach):
    return [estimator.bins.window(j, reach) for j in range(estimator.bins.count)]


@pytest.mark.parametrize("epsilon", [0.3, EPSILON, 2.0])
@pytest.mark.parametrize("size", [1, 30, 1000])
def test_votes_of_dame(epsilon, size):
    estimator = Dame(**DAME | {"epsilon": epsilon}, mode="paper", effective_size=size)
    bins = estimator.bins
    loss = vote_loss(estimator.rounds[0], everybody(bins, size), bins.count)
    assert loss <= epsilon + TOLERANCE
    assert loss > 0.99 * epsilon or bins.count == 1  # nothing is given away


@pytest.mark.parametrize("epsilon", [0.3, EPSILON, 2.0])
@pytest.mark.parametrize("threshold", [1, 100, 1000])
@pytest.mark.parametrize("mode", ["paper", "tuned"])
def test_votes_of_kent(epsilon, threshold, mode):
    sizes = SizeDistribution.parse(f"two:{threshold},{4 * threshold},0.5")
    estimator = Kent(**DAME | {"epsilon": epsilon, "sizes": sizes}, mode=mode, threshold=threshold)
    bins = estimator.bins
    loss = vote_loss(estimator.rounds[0], everybody(bins, threshold), bins.count)
    assert loss <= epsilon + TOLERANCE
    assert loss > 0.99 * epsilon or bins.count == 1


def test_the_sum_over_bits_is_the_loss_of_the_whole_row():
    estimator = Dame(**DAME, mode="paper", effective_size=1000)
    users, n_bins = everybody(estimator.bins, 1000), estimator.bins.count
    assert 6 < n_bins <= 12
    probability = bit_probabilities(
        AsVotes(estimator.rounds[0], users), np.arange(len(users)), n_bins
    )
    assert row_loss(probability) == pytest.approx(
        worst_bits_loss(np.unique(probability, axis=0)), abs=1e-12
    )


@pytest.mark.parametrize(
    "estimator", [Dame(**DAME, mode="paper", effective_size=4000), Kent(**DAME, threshold=4000)]
)
def test_users_below_the_threshold_send_a_randomized_row_of_full_length(estimator):
    users, n_bins = summaries([1, 3999], [0.9, -0.2]), estimator.bins.count
    probability = bit_probabilities(AsVotes(estimator.rounds[0], users), np.arange(2), n_bins)
    assert probability.shape == (2, n_bins)
    assert np.ptp(probability) == 0
    assert 0.05 < probability[0, 0] < 0.5


class Abstaining(VoteRound):
    """D7: users with too few samples keep silent."""

    def encode(self, summaries, public, words):
        enough = summaries.count >= 1000
        return super().encode(summaries.take(enough), public, lambda draw: words(draw)[enough])


class PlainZeros(VoteRound):
    """Users with too few samples send zeros that are not randomized."""

    def encode(self, summaries, public, words):
        return np.where(
            summaries.count[:, None] < 1000, 0, super().encode(summaries, public, words)
        )


@pytest.mark.parametrize("twin", [Abstaining, PlainZeros])
def test_twin_silence_below_the_threshold_is_caught(twin):
    estimator = Dame(**DAME, mode="paper", effective_size=1000)
    votes = make_votes("binary", EPSILON, estimator.bins.count)
    step = twin(estimator._settings, estimator.bins, votes, estimator.ballot, reach=6.0)
    assert vote_loss(step, everybody(estimator.bins, 1000), estimator.bins.count) == math.inf


def test_twin_closed_bins_are_caught():
    """K3: a mean on an edge votes for two bins, and has twice the loss."""
    bins = Bins(0.125)
    edges = [bins.edges(j) for j in range(bins.count)]

    def closed(summaries):
        return np.array(
            [(lower <= summaries.mean) & (summaries.mean <= upper) for lower, upper in edges]
        ).T

    def half_open(summaries):
        return closed(summaries) & (bins.which(summaries.mean)[:, None] == np.arange(bins.count))

    votes = make_votes(
        "binary", 2 * EPSILON, bins.count, bits=4
    )  # each bit at epsilon / 2, as in one-hot votes
    settings = Dame(**DAME)._settings
    on_edges = summaries(8, np.arange(-8, 9, 2) / 8)
    good, bad = (
        VoteRound(settings, bins, votes, ballot, reach=2.0) for ballot in (half_open, closed)
    )
    assert vote_loss(good, on_edges, bins.count) == pytest.approx(EPSILON, abs=1e-6)
    assert vote_loss(bad, on_edges, bins.count) == pytest.approx(2 * EPSILON, abs=1e-6)


def test_twin_three_votes_at_the_budget_of_one_are_caught():
    estimator = Dame(**DAME, mode="paper", effective_size=1000)
    votes = make_votes("binary", 3 * EPSILON, estimator.bins.count)  # each bit at epsilon / 2
    step = VoteRound(estimator._settings, estimator.bins, votes, estimator.ballot, reach=6.0)
    assert vote_loss(step, everybody(estimator.bins, 1000), estimator.bins.count) > 2.9 * EPSILON


LAPLACE = {
    "dame": Dame(**DAME, mode="paper", effective_size=1000),
    "dame literal": Dame(**DAME, mode="paper", effective_size=1000, literal=True),
    "dame one bin": Dame(**DAME, mode="paper", effective_size=1),
    "kent": Kent(**DAME, mode="paper", threshold="median"),
    "duchi": Duchi(epsilon=EPSILON, users=100, reading="laplace"),
    "duchi mean": Duchi(epsilon=EPSILON, users=100, reading="laplace", summary="mean"),
    "semi": Semi(epsilon=EPSILON, users=100),
}


def reachable_windows(estimator):
    reach = {"dame": 6.0, "kent": 2.0}.get(estimator.name)
    found = [ClipWindow()] if reach is None else [ClipWindow(), *windows_of(estimator, reach)]
    return found[:: max(len(found) // 12, 1)] + found[-1:]


@pytest.mark.parametrize("name", LAPLACE)
def test_clipped_means_with_laplace_noise(name):
    estimator = LAPLACE[name]
    users = everybody(getattr(estimator, "bins", None), getattr(estimator, "effective_size", 2500))
    for window in reachable_windows(estimator):
        channel = estimator.channel(window)
        loss = laplace_loss(estimator.rounds[-1], users, window.as_public(), channel)
        assert loss <= EPSILON + TOLERANCE
        assert loss > 0.99 * EPSILON or "literal" in name
        # The noise follows the width of the window that is used.
        scale = channel.noise.scale * channel.step * window.half_width
        assert scale * EPSILON >= (window.upper - window.lower) * (1 - 1e-12)


@pytest.mark.parametrize(
    "estimator",
    [
        Duchi(epsilon=EPSILON, users=100),
        Duchi(epsilon=EPSILON, users=100, summary="mean"),
        OneShot(epsilon=EPSILON, users=100),
        OneShot(epsilon=2.0, users=100, second_moment=0.3),
        Dame(**DAME, mode="tuned", effective_size=1000),
        Kent(**DAME, mode="tuned"),
    ],
    ids=["duchi", "duchi mean", "one_shot", "one_shot piecewise", "dame tuned", "kent tuned"],
)
def test_clipped_means_through_window_channels(estimator):
    users = everybody(getattr(estimator, "bins", None), 1000)
    for window in reachable_windows(estimator)[:3]:
        channel = estimator.channel(window)
        loss = window_loss(estimator.rounds[-1], users, window.as_public(), channel)
        assert 0.99 * estimator.epsilon < loss <= estimator.epsilon + TOLERANCE


def test_twin_noise_for_the_bin_instead_of_the_window_is_caught():
    estimator = LAPLACE["dame"]
    window = estimator.bins.window(estimator.bins.count // 2, 6.0)
    narrow = make_channel("laplace", EPSILON * window.half_width / estimator.bins.half_width)
    step = ClipRound(estimator._settings, estimator.shrunk, lambda _: narrow, gain=estimator.gain)
    loss = laplace_loss(step, everybody(estimator.bins, 1000), window.as_public(), narrow)
    assert loss > 5 * EPSILON
    assert (
        narrow.noise.scale * narrow.step * window.half_width * EPSILON < window.upper - window.lower
    )


def test_twin_dropping_users_is_caught():
    """Users below Kent's threshold who send nothing show that their size is below it."""

    class Dropping(ClipRound):
        def encode(self, summaries, public, words):
            enough = summaries.count >= 4000
            return super().encode(summaries.take(enough), public, lambda draw: words(draw)[enough])

    kent = Kent(**DAME, mode="paper", threshold=4000)
    users = everybody(kent.bins, 4000)
    window = kent.bins.window(3, 2.0)
    honest = laplace_loss(kent.rounds[1], users, window.as_public(), kent.channel(window))
    step = Dropping(kent._settings, kent.own_mean, kent.channel)
    assert honest <= EPSILON + TOLERANCE
    assert laplace_loss(step, users, window.as_public(), kent.channel(window)) == math.inf


def summed_loss(scale, values, shift):
    """Worst loss of a sum of Laplace variables of this scale whose center moves by `shift`: on a
    grid of scale / 20."""
    one = np.exp(-np.abs(np.arange(-800, 801)) / 20)
    pmf = one
    for _ in range(values - 1):
        pmf = np.convolve(pmf, one)
    moved = round(shift / scale * 20)
    middle = len(pmf) // 2
    inner = np.log(pmf[middle - 600 : middle + 601])  # beyond 800 the variables are cut
    return float(np.abs(inner[moved:] - inner[: len(inner) - moved]).max())


@pytest.mark.parametrize("values", [1, 2, 3])
def test_split_reports(values):
    sizes = SizeDistribution.parse(f"two:{values},9,0.5")
    split = Split(epsilon=1.0, users=100, sizes=sizes)
    step, channel = split.rounds[0], SummedLaplaceChannel(1.0, values=values)
    users = everybody()
    assert sends_one_row_each(step, users, {})
    place = step.encode(users, {}, no_noise(len(users)))[:, 0]
    assert np.ptp(place) == 2 * HALF
    # What is sent is the mean of `values` reports, each with noise of `scale`: their sum moves by
    # as many times.
    words = SeededWords(np.random.default_rng(3), len(users))
    added = step.encode(users, {}, words)[:, 0] - place
    assert np.array_equal(added, channel.randomize(np.zeros(len(users)), words))
    loss = summed_loss(channel.scale, values, values * np.ptp(place))
    assert loss <= 1.0 + 1e-9
    # The twin gives every report all of epsilon.
    assert summed_loss(channel.scale / values, values, values * np.ptp(place)) > 1.0 or values == 1


def test_item_protects_one_sample_and_not_the_user():
    item = Item(epsilon=EPSILON, users=100)
    step = item.rounds[0]
    five = summaries([5, 5], [-1.0, 1.0])
    five.total[1] = SPAN  # four samples at -1, one at 1
    place = step.encode(five, {}, no_noise(2))
    assert place[:, 1].tolist() == [5, 5]
    # The sum of the samples moves by the width of one, and each sample has noise of scale width /
    # epsilon.
    assert place[1, 0] - place[0, 0] == 2 * HALF
    bits = np.array([[2**63, 2**62]], np.uint64)
    noise = step.encode(summaries([1], [0.0]), {}, lambda draw: bits)[0, 0]
    assert noise == pytest.approx(2 * HALF / EPSILON * (math.log(2) - math.log(4 / 3)), rel=1e-5)
    # As a user-level scheme it is broken, and says so: the size is in the report.
    assert step.encode(summaries([5, 6], [0.0, 0.0]), {}, no_noise(2))[:, 1].tolist() == [5, 6]
    assert Item.privacy_unit == "sample"
