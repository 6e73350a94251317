"""The product against the reference core of tests/oracles, which shares no code with it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.collaboration.prior.prior_by_count import PriorByCount
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import OwnMeans, ReleaseColumns
from meanstream.operators.rounds.round_protocol import ReportWords
from meanstream.operators.rounds.round_records import Estimate, Summaries
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import Window
from tests.oracles.reference_agents import Event, ReferenceAgents, ReferenceRelease
from tests.oracles.reference_noise import staircase_draw, staircase_edge, staircase_variance
from tests.oracles.reference_prior import fit_reference_prior
from tests.oracles.reference_rounds import ReferenceDame
from tests.pipelines.command_line import SECRET, arguments, meanstream

NAMES = ("N14228", "żan eta", "c/2")
BEGIN = 1_700_000_000
MOST_SHIFT = 0.06
"""Most that an answer may differ by, in standard errors: a sixth of an octave of counts is answered alike."""
MOST_STRETCH = 0.015
"""Most that the length of an interval may differ by."""


def made_up_events(seed: int, n: int, bounds: tuple[float, float]) -> list[Event]:
    """Samples of all agents in the order of time, a tenth of them at the time of the one before."""
    rng = np.random.default_rng(seed)
    width = bounds[1] - bounds[0]
    values = bounds[0] + width * rng.normal(0.4, 0.4, n)
    times = BEGIN + 60 * np.cumsum(rng.random(n) > 0.1)
    who = rng.integers(len(NAMES), size=n)
    return [
        (NAMES[a], float(value), float(time))
        for a, value, time in zip(who, values, times, strict=True)
    ]


def released_by_engine(folder: Path, events: list[Event], **options: Any) -> list[ReferenceRelease]:
    """Run the command on a file, and read what left it."""
    lines = [
        {"agent": agent, "value": value, "time": datetime.fromtimestamp(time, UTC).isoformat()}
        for agent, value, time in events
    ]
    source = folder / "samples.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    files = {"source": source, "store": folder / "state.db", "releases": folder / "releases.jsonl"}

    ran = meanstream(
        "run",
        "agents",
        *arguments({**files, "sink": folder / "estimates.jsonl", "quiet": True, **options}),
        environment={"MEANSTREAM_SECRET": SECRET},
    )
    assert (ran.code, ran.err) == (0, b"")
    text = files["releases"].read_text(encoding="utf-8")
    return [_read_release(json.loads(line)) for line in text.splitlines()]


def _read_release(line: dict[str, Any]) -> ReferenceRelease:
    votes = line["votes"]
    return ReferenceRelease(
        agent=line["agent"],
        index=line["index"],
        time=datetime.fromisoformat(line["time"]).timestamp(),
        n=line["n"],
        total=line["total"],
        mean=line["mean"],
        noise_variance=line["noise_variance"],
        votes=(votes["number"], votes["pairs"], *votes["counts"]),
    )


@pytest.mark.parametrize(
    ("seed", "horizon", "epsilon", "bounds", "counter"),
    [
        (1, 40, 1.0, (-30.0, 120.0), "pm1"),
        (2, 40, 0.25, (0.0, 1.0), "pm1"),
        (3, 10, 3.0, (-1e6, 7e5), "two_level"),
        (4, 3, 8.0, (0.0, 10.0), "pm1"),
    ],
)
def test_the_engine_releases_what_the_reference_does(  # noqa: PLR0917
    tmp_path, seed, horizon, epsilon, bounds, counter
):
    events = made_up_events(seed, 600, bounds)
    lower, upper = bounds
    released = released_by_engine(
        tmp_path,
        events,
        lower=lower,
        upper=upper,
        epsilon=epsilon,
        horizon=horizon,
        counter=counter,
        name="reference",
    )

    settings = {
        "lower": lower,
        "upper": upper,
        "epsilon": epsilon,
        "counter": counter,
        "noise": "staircase",
        "spread_share": 0.1,
        "name": "reference",
    }
    if horizon != 40:
        settings["horizon"] = horizon

    reference = ReferenceAgents(settings=settings, secret=SECRET.encode(), horizon=horizon)
    expected = [*reference.releases(events), *reference.last_releases()]

    assert [_exact(release) for release in released] == [_exact(release) for release in expected]
    assert [_real(release) for release in released] == pytest.approx(
        [_real(release) for release in expected], rel=1e-12, abs=1e-12
    )


def _exact(release: ReferenceRelease) -> tuple[Any, ...]:
    return release.agent, release.index, release.time, release.n, release.total, release.votes


def _real(release: ReferenceRelease) -> float:
    return release.mean + 1e3 * release.noise_variance


def made_up_releases(
    law: str, seed: int, *, spread: float, trend: float, variance: float = 0.04
) -> tuple[ReleaseColumns, OwnMeans, float]:
    """Releases of thirty agents with 10 to 1,000 samples, their own means, and the law's epsilon."""
    rng = np.random.default_rng(seed)
    b = 30
    n = np.rint(10 ** rng.uniform(1, 3, b)).astype(np.int64)
    truth = 0.4 + trend * (np.log10(n) - 2) + rng.normal(0, spread, b)
    own = truth + rng.normal(0, np.sqrt(variance / n))
    epsilon = 0.9
    span = 1000

    if law == "staircase":
        words = [int.from_bytes(rng.bytes(16), "little") for _ in range(b)]
        draws = np.array([staircase_draw(word, span, epsilon) for word in words]) / span
        of_draw = staircase_variance(span, staircase_edge(span, epsilon), epsilon) / span**2
        terms = np.full(b, -round(1000 * epsilon))
    elif law == "laplace":
        draws = rng.laplace(0, 1 / epsilon, b)
        of_draw = 2 / epsilon**2
        terms = np.ones(b, np.int64)
        epsilon = np.inf
    else:
        of_draw = 2 / epsilon**2
        draws = rng.normal(0, np.sqrt(of_draw), b)
        terms = np.zeros(b, np.int64)
        epsilon = 0.0

    one = np.ones(b, np.int64)
    releases = ReleaseColumns(
        agent=np.arange(b),
        index=one,
        count=n,
        total=one,
        mean=own + draws / n,
        noise_variance=of_draw / n**2,
        noise_terms=terms,
    )
    return releases, OwnMeans(agent=np.arange(b), count=n, mean=own, variance=variance / n), epsilon


def differences_from_the_integral(
    law: str, seed: int, *, spread: float, trend: float, noise: float = 1.0
) -> tuple[float, float]:
    """How far answers are from those of the reference, in standard errors, and lengths of intervals.

    `noise` is a factor that the reference takes the noise's variance for.
    """
    variance = 0.04
    releases, own, epsilon = made_up_releases(law, seed, spread=spread, trend=trend)
    fitted = PriorByCount(0.0, 1.0, trimmed=0.0, classes=False).fit(
        releases, variance / releases.count + releases.noise_variance
    )
    answers = fitted.estimate(own)
    half_lengths = (answers.upper - answers.lower) / 2

    reference = fit_reference_prior(
        releases.mean,
        releases.count.astype(np.float64),
        noise * releases.noise_variance,
        variance,
        epsilon=epsilon,
        bounds=(0.0, 1.0),
    )
    agents = zip(own.mean.tolist(), own.variance.tolist(), own.count.tolist(), strict=True)
    expected = np.array([reference.answer(m, w, n) for m, w, n in agents])
    stderr = np.sqrt(expected[:, 1])

    shift = float(np.abs((answers.value - expected[:, 0]) / stderr).max())
    stretch = float(np.abs(half_lengths / (1.959963984540054 * stderr) - 1).max())
    return shift, stretch


@pytest.mark.parametrize(
    ("law", "seed", "spread", "trend"),
    [
        ("normal", 0, 0.05, 0.0),
        ("normal", 1, 0.002, 0.0),
        ("normal", 2, 0.03, 0.1),
        ("laplace", 3, 0.05, 0.0),
        ("laplace", 4, 0.002, 0.1),
        ("staircase", 5, 0.03, 0.05),
    ],
)
def test_the_default_prior_is_the_integral_that_it_stands_for(law, seed, spread, trend):
    """Newton's method, approximations by Laplace, grids and classes of counts cost next to nothing."""
    shift, stretch = differences_from_the_integral(law, seed, spread=spread, trend=trend)
    assert shift < MOST_SHIFT
    assert stretch < MOST_STRETCH


def test_a_prior_that_takes_noise_for_half_as_wide_is_noticed():
    """A twin of the test above."""
    shift, stretch = differences_from_the_integral("normal", 2, spread=0.03, trend=0.1, noise=0.25)
    assert shift > MOST_SHIFT
    assert stretch > MOST_STRETCH


@pytest.mark.parametrize(("epsilon", "size"), [(0.6, 400), (1.0, 1_000), (4.0, 60)])
def test_a_round_of_dame_sends_and_answers_what_the_reference_does(epsilon, size):
    users = 120
    rng = np.random.default_rng(size)
    settings = RoundsSettings(
        lower=-1,
        upper=1,
        epsilon=epsilon,
        window="1d",
        estimator="dame",
        mode="paper",
        sizes=f"two:{size // 4},{size},0.25",
        users=users,
        name="reference",
    )
    grid = settings.grid
    counts = np.where(rng.random(users) < 0.25, size, size // 4)
    points = [grid.encode(rng.normal(0.3, 0.2, count)) for count in counts]
    names = [f"user {i}" for i in range(users)]
    summaries = Summaries(
        user=keyed_owner_words(names),
        count=counts,
        total=np.array([row.sum() for row in points]),
        first=np.array([row[0] for row in points]),
        span=grid.span,
    )

    # The product: two stages, each with its own users.
    this = WindowRound(settings, Window(0, 86_400_000_000), users=users)
    stage = this.stage_of(summaries.user)
    secret = SECRET.encode()
    ballots = this.reports(secret, 0, {}, summaries.take(stage == 0))
    found = this.decode(0, {}, this.tally(0, {}, ballots)[0])
    assert isinstance(found, dict)
    reports = this.reports(secret, 1, found, summaries.take(stage == 1))
    estimate = this.decode(1, found, this.tally(1, found, reports)[0])
    assert isinstance(estimate, Estimate)

    # The reference, one user after the other, with the same random bits.
    reference = ReferenceDame(epsilon=epsilon, n=users, sizes={size // 4: 0.75, size: 0.25})
    samples = [2.0 * row / grid.span - 1.0 for row in points]

    def bits(number: int, public: dict[str, Any], which: int) -> Any:
        asked = summaries.take(np.array([which]))
        words = ReportWords(this.stage_noise(secret, number, public), asked, number)
        return lambda draw: int(words(draw)[0, 0]) << 64 | int(words(draw)[0, 1])

    voters = np.flatnonzero(stage == 0).tolist()
    expected_ballots = [reference.ballot(samples[i].tolist(), bits(0, {}, i)) for i in voters]
    window = reference.window(expected_ballots)
    asked = np.flatnonzero(stage == 1).tolist()
    expected = [reference.report(samples[i].tolist(), window, bits(1, found, i)) for i in asked]

    assert ballots.tolist() == expected_ballots
    assert (found["lower"], found["upper"], found["center"]) == pytest.approx(window, abs=1e-12)
    assert reports[:, 0].tolist() == expected
    assert float(estimate.value) == pytest.approx(
        reference.estimate(window, expected), rel=1e-12, abs=1e-12
    )
