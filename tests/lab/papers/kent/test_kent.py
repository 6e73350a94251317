"""Kent's univariate mean: threshold, bins, and users with too few samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meanstream.lab.papers.kent.univariate import Kent
from meanstream.lab.simulation.simulated_rounds import RoundsConfig, simulate_rounds
from meanstream.operators.rounds.localization import ClipWindow
from meanstream.operators.rounds.round_records import Tally
from meanstream.operators.rounds.user_sizes import SizeDistribution
from tests.lab.papers.dame.test_dame import users


def kent(sizes="two:100000,1000000,0.6", **options):
    options = {"epsilon": 22 / 35, "users": 10_000, "mode": "paper"} | options
    return Kent(sizes=SizeDistribution.parse(sizes), **options)


def test_half_widths_are_those_of_the_paper():
    for threshold, size in (
        ("min", 10**5),
        ("median", 10**6),
        ("200000", 200_000),
        (200_000, 200_000),
    ):
        estimator = kent(threshold=threshold)
        expected = math.sqrt(2 * math.log(10_000 * size * (22 / 35) ** 2) / size)
        assert estimator.bins.half_width == pytest.approx(expected)
        assert estimator.threshold == size
    assert kent(mode="tuned").bins.half_width == pytest.approx(
        0.5 / math.sqrt(2) * kent().bins.half_width
    )
    assert kent(constant=0.25).bins.half_width == pytest.approx(
        0.25 / math.sqrt(2) * kent().bins.half_width
    )


def test_hopeless_cases_make_one_bin_and_no_nan():
    # K8: the logarithm is negative.
    estimator = kent("point:1", users=2, epsilon=0.1)
    assert estimator.bins.count == 1
    assert math.isfinite(estimator.describe()["predicted_stderr"])


def test_the_window_is_cut_at_the_ends_as_its_noise_is():
    estimator = kent("point:50", users=500, epsilon=1.0)
    for j in range(estimator.bins.count):
        window = estimator.bins.window(j, 2.0)
        assert -1.0 <= window.lower < window.upper <= 1.0
        channel = estimator.channel(window)
        width = window.upper - window.lower
        assert channel.noise.scale * channel.step * width / 2 == pytest.approx(
            width / 1.0, rel=1e-6
        )


def test_users_below_the_threshold_give_the_zero_vote_and_the_center():
    estimator = kent("two:10,1000,0.6", threshold=1000)
    given = users([10, 999, 1000, 1000], [0.9, 0.9, 0.9, -1.0])
    last = estimator.bins.count - 1
    assert estimator.ballot(given)[:2].tolist() == [-1, -1]
    assert 0 < estimator.ballot(given)[2] <= last
    assert estimator.ballot(given)[3] == 0
    window = ClipWindow(-0.5, 0.5, 0.1)
    assert estimator.own_mean(given, window) == pytest.approx([0.1, 0.1, 0.9, -1.0], abs=1e-6)


@pytest.mark.parametrize("theta", [-0.7, 0.3])
def test_dropping_users_is_corrected_without_bias(theta):
    # 3.5 standard errors: false alarm 5e-4 each.
    config = RoundsConfig(
        estimator="kent", users=10_000, epsilon=1.0, sizes="two:10,10000,0.6", data=f"rademacher:{theta}",
        mode="paper", runs=100, options={"threshold": "median"},
    )  # fmt: skip
    result = simulate_rounds(config)
    assert abs(result.bias) < 3.5 * result.bias_stderr
    # 4 standard errors of the mean squared error: 6e-5; the prediction is for theta 0, where the
    # noise is the same.
    assert abs(result.mse - result.predicted_mse) < 4 * result.stderr


def test_without_reports_the_answer_is_everything():
    vote, clip = kent().rounds
    found = clip.decode(Tally(), vote.decode(Tally(), {}))
    assert (float(found.lower), float(found.upper), float(found.value)) == (-1.0, 1.0, 0.0)


def test_every_bin_can_win():
    estimator = kent("point:100", users=1000, epsilon=2.0)
    vote = estimator.rounds[0]
    for j in range(estimator.bins.count):
        counts = np.ones(estimator.bins.count, int)
        counts[j] = 2
        assert vote.decode(Tally(5, tuple(counts.tolist())), {})["stages"][0]["bin"] == j


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"threshold": "most"}, "threshold must be min, median or a number of samples, got 'most'"),
        ({"threshold": 0}, "threshold must be min, median or a number of samples, got 0"),
        (
            {"threshold": 10**7},
            "threshold must be a size that some users have .at most 1000000., got 10000000",
        ),
        ({"constant": 0.0}, "constant must be positive and finite, got 0.0"),
    ],
)
def test_wrong_options_are_one_line(options, line):
    with pytest.raises(ValueError, match=line):
        kent(**options)
