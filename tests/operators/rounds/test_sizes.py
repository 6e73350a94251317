"""The distribution of users' sizes: every form, exact tails, expectations against SciPy."""

import math

import numpy as np
import pytest
from scipy import stats

from meanstream.lab.simulation.round_laws import draw_population_sizes
from meanstream.operators.rounds.user_sizes import SizeDistribution

FORMS = (
    "point:7",
    "two:100,10000,0.25",
    "uniform:1,199",
    "poisson:5",
    "poisson:0.01",
    "poisson:2000",
    "binomial:50,0.3",
    "lognormal:20,1.5",
    "lognormal:20,1.5,300",
    "zipf:1,100",
)


@pytest.mark.parametrize("text", FORMS)
def test_conformance(text: str) -> None:
    sizes = SizeDistribution.parse(text)
    assert sizes.probability.sum() == pytest.approx(1.0, abs=1e-12)
    assert sizes.least >= 1
    assert sizes.tail(0) == sizes.tail(sizes.least) == 1.0  # exactly
    assert sizes.tail(sizes.greatest + 1) == 0.0
    assert all(sizes.tail(a) >= sizes.tail(a + 1) for a in range(1, min(sizes.greatest, 400)))
    assert sizes.mean_sqrt(1) == pytest.approx(1.0)
    assert sizes.mean_sqrt(4) <= 2.0
    assert sizes.mean_sqrt() <= math.sqrt(sizes.mean) + 1e-9
    described = sizes.describe()
    assert described["least"] == sizes.least
    assert described["mean"] == sizes.mean
    # 5 standard errors, 10 forms: 1 in 170,000.
    drawn = draw_population_sizes(sizes, 20_000, np.random.default_rng(4))
    assert np.isin(drawn, sizes.support).all()
    spread = math.sqrt(
        max(0.0, float(sizes.probability @ sizes.support.astype(float) ** 2) - sizes.mean**2)
    )
    assert abs(drawn.mean() - sizes.mean) <= 5.0 * spread / math.sqrt(20_000)


def test_tails_do_not_depend_on_float_sums() -> None:
    """Poisson(50): P(M >= 1) is 1, not "almost", although no float shows the difference up to 4."""
    sizes = SizeDistribution.parse("poisson:50")
    assert sizes.least == 1
    assert sizes.tail(1) == 1.0
    assert sizes.tail(60) == pytest.approx(stats.poisson.sf(59, 50), rel=1e-9)
    assert SizeDistribution.parse("poisson:2000").least == 1


def test_tail_between_sizes() -> None:
    sizes = SizeDistribution.parse("two:100,10000,0.25")
    assert (sizes.tail(100), sizes.tail(100.5), sizes.tail(101), sizes.tail(10_000)) == (
        1.0,
        0.25,
        0.25,
        0.25,
    )


def test_moments_against_the_laws() -> None:
    poisson = SizeDistribution.parse("poisson:5")
    assert poisson.mean == pytest.approx(5.0 / -math.expm1(-5.0), rel=1e-12)
    binomial = SizeDistribution.parse("binomial:50,0.3")
    assert binomial.mean == pytest.approx(15.0 / (1.0 - 0.7**50), rel=1e-12)
    uniform = SizeDistribution.parse("uniform:1,199")
    assert uniform.mean == pytest.approx(100.0)
    assert uniform.mean_sqrt(9) == pytest.approx(
        (sum(math.sqrt(i) for i in range(1, 10)) + 190 * 3) / 199
    )
    # Rounded up: half a sample more than the law's own mean, less what is cut.
    lognormal = SizeDistribution.parse("lognormal:20,0.5,1000")
    assert lognormal.mean == pytest.approx(20.5, abs=0.02)


def test_lognormal_is_rounded_up_and_cut() -> None:
    law = stats.lognorm(1.5, scale=20.0 * math.exp(-1.125))
    sizes = SizeDistribution.parse("lognormal:20,1.5,300")
    assert sizes.probability[0] == pytest.approx(law.cdf(1.0))
    assert sizes.probability[9] == pytest.approx(law.cdf(10.0) - law.cdf(9.0))
    assert sizes.tail(300) == pytest.approx(law.sf(299.0))
    assert SizeDistribution.parse("lognormal:20,1.5").greatest == math.ceil(law.ppf(0.9999))


def test_sizes_of_probability_zero_are_left_out() -> None:
    assert SizeDistribution.parse("two:3,8,1").support.tolist() == [8]
    assert SizeDistribution.parse("two:3,8,0").support.tolist() == [3]
    assert SizeDistribution.parse("binomial:6,1").support.tolist() == [6]


def test_from_counts() -> None:
    sizes = SizeDistribution.from_counts([3, 1, 1, 0, 7])
    assert sizes.support.tolist() == [1, 3, 7]
    assert sizes.probability.tolist() == [0.5, 0.25, 0.25]


BAD_TEXTS = (
    *("", "7", "point", "point:", "point:0", "point:2.5", "point:1,2", "point:nan"),
    *("two:1,2", "two:5,2,0.5", "two:1,2,1.5", "uniform:5,1", "uniform:1,inf"),
    *("poisson:0", "poisson:-1", "poisson:1e9", "binomial:5,0", "binomial:1.5,0.5"),
    *(
        "lognormal:0,1",
        "lognormal:20,0",
        "lognormal:20,1.5,0",
        "zipf:2",
        "flights.txt:tailnum",
        "flights.csv:tailnum",
    ),
)


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_bad_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"^sizes must "):
        SizeDistribution.parse(text)


def test_bad_tables() -> None:
    for support, probability in (
        ([], []),
        ([1, 2], [1.0]),
        ([2, 1], [0.5, 0.5]),
        ([0, 1], [0.5, 0.5]),
    ):
        with pytest.raises(ValueError, match=r"support|probability"):
            SizeDistribution(np.array(support), np.array(probability))
    for probability in ([0.5, 0.6], [-0.5, 1.5]):
        with pytest.raises(ValueError, match="probability"):
            SizeDistribution(np.array([1, 2]), np.array(probability))
