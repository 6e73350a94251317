"""What quantiles and exceedances of agents of given counts will be worth, by drawing them from a declared law."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import AT_THE_END
from meanstream.operators.agents.own_histogram import HistogramColumns
from meanstream.operators.agents.release_times import require_samples_counted
from meanstream.operators.agents.state_columns import empty_columns
from meanstream.operators.agents.vote_of_spread import FACTOR
from meanstream.operators.collaboration.shares.asked_shares import ShareQueries
from meanstream.operators.collaboration.shares.shares_posterior import SharesPosterior
from meanstream.operators.forecast.simulated_noise import SimulationNoise
from meanstream.operators.forecast.together_forecast import SHOWN, Crowd
from meanstream.operators.noise.keyed import NoiseIds
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require, require_between

STATED_ERROR = 0.25
"""Error of a predicted error or half-width, as a part of it, as found against agents that take
samples one by one."""
MOST_AGENTS = 2000
"""So many are drawn of a larger crowd: more tell hardly more of the prior."""
JUDGED = 40
"""Agents of each shown count, in each run, whose answers are compared with their laws."""
RUNS = 24
"""Crowds that are drawn: the answers of one depend on the one prior that it learns."""
SEED = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesRow:
    """What agents of one count can expect of one answer.

    Root mean squared errors and mean half-widths.

    Quantiles are in the value's unit, exceedances are shares.

    Attributes
    ----------
    question : str
        "quantile 0.9" or "share above 30".
    samples : int
    quantile : float
        Share of the agents with at most that many.
    alone : float
        Error of the same figure of an agent's own samples, not private and for no one else.
    together, half_width : float
        Of an agent's own exact counts with the prior of everyone's noised histograms: for that
        agent only.
    released, half_width_released : float
        Of what `private_means` tells everyone: an agent's noised histogram with that prior.
    """

    question: str
    samples: int
    quantile: float
    alone: float
    together: float
    half_width: float
    released: float
    half_width_released: float

    def sentence(self) -> str:
        """Say it in words."""
        return (
            f"The {self.question} of {self.samples:,} samples: error {self.alone:.3g} alone, {self.together:.3g} "
            f"together (± {self.half_width:.3g}), {self.released:.3g} for everyone "
            f"(± {self.half_width_released:.3g})."
        )


def shares_release_settings(settings: AgentsSettings, horizon: int | None) -> AgentsSettings:
    """Give the settings that `private_means` has.

    Where no horizon is given, one release, of all samples.
    """
    if horizon in {None, 1}:
        return replace(settings, horizon=1, schedule=AT_THE_END)
    return settings


def forecast_shares(
    crowd: Crowd, asked: ShareQueries, *, center: float | None = None
) -> list[SharesRow]:
    """Predict errors and half-widths of quantiles and exceedances, at the counts of which means are predicted.

    Parameters
    ----------
    crowd : Crowd
        Who takes part; samples of an agent are normal around its mean, and clipped to the bounds.
    asked : ShareQueries
        Settings with a histogram (`shares_release_settings`), quantiles and level. Agents release
        by the schedule while there is horizon, and at the end, as `private_means` has it.
    center : float, optional
        Mean of the agents' means, which are normal around it; default: the middle of the bounds.

    Notes
    -----
    The prior is learned from histograms of drawn agents by the operators that agents are hosted with, and answers
    others, who are drawn of the same laws. Laws of another shape than normal have other quantiles and other errors: a
    forecast is as good as what is declared.

    **Privacy.** A function of what is declared, seed included: it reads no data and spends nothing.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> settings = AgentsSettings(
    ...     lower=0, upper=100, epsilon=1, delta=1e-6, schedule="geometric:1000000000000,2", horizon=1,
    ...     spread_share=0.1, histogram_share=0.1)
    >>> crowd = Crowd(agents=300, sizes=SizeDistribution.parse("point:50"), spread=5, stddev=20)
    >>> row = forecast_shares(crowd, ShareQueries(settings, (0.9,), 0.95))[0]
    >>> row.question, row.samples, row.together < row.alone < row.released
    ('quantile 0.9', 50, True)
    """
    settings = asked.settings
    require(
        settings.histogram is not None,
        "histogram_share",
        "be more than 0 with quantiles or exceeds",
        0,
    )
    middle = settings.lower / 2 + settings.upper / 2 if center is None else center
    require_between(settings.lower, settings.upper, mean=middle)

    size = min(crowd.agents, MOST_AGENTS)
    members, shown = (
        _counts(crowd, np.array(levels)) for levels in ((np.arange(size) + 0.5) / size, SHOWN)
    )

    rng = np.random.default_rng(SEED)
    noise = SimulationNoise(SEED)
    runs = [
        _one_run(crowd, asked, middle, members=members, shown=shown, rng=rng, noise=noise)
        for _ in range(RUNS)
    ]
    mean = np.mean(runs, axis=0)
    mean[:, :3] = np.sqrt(mean[:, :3])

    names = [f"quantile {q:g}" for q in asked.quantiles] + [
        f"share above {t:g}" for t in settings.exceeds
    ]
    columns = ("alone", "together", "released", "half_width", "half_width_released")

    return [
        SharesRow(
            question=name,
            samples=int(n),
            quantile=q,
            **dict(zip(columns, mean[i, :, j].tolist(), strict=True)),
        )
        for j, name in enumerate(names)
        for i, (n, q) in enumerate(zip(shown.tolist(), SHOWN, strict=True))
    ]


def _one_run(
    crowd: Crowd,
    asked: ShareQueries,
    center: float,
    *,
    members: Ints,
    shown: Ints,
    rng: np.random.Generator,
    noise: SimulationNoise,
) -> Floats:
    """Draw a crowd and who is judged.

    Three squared errors and two half-widths, by count and question.
    """
    judged = np.repeat(shown, JUDGED)
    mean = rng.normal(center, crowd.spread, len(members) + len(judged))
    cells = _law(asked, mean, crowd.stddev)
    histograms, own = _histograms(asked.settings, np.append(members, judged), cells, rng, noise)
    n_members = len(members)
    prior = asked.fit(
        HistogramColumns(*(column[:n_members] for column in histograms)), np.arange(n_members)
    )
    own, mean = own[n_members:], mean[n_members:]
    together = asked.own(prior, own)

    released = asked.released(
        prior, HistogramColumns(*(column[n_members:] for column in histograms))
    )
    answers = [
        np.concatenate([answer.quantiles, answer.exceeds], axis=1)
        for answer in (together, released)
    ]
    values = [_alone(asked, own), *(answer[..., 0] for answer in answers)]
    truth = _truth(asked, mean, crowd.stddev)
    widths = [0.5 * (answer[..., 2] - answer[..., 1]) for answer in answers]
    figures = np.stack([*((value - truth) ** 2 for value in values), *widths])
    # From figure, judged agent and question to count, figure and question.
    by_count = figures.reshape(len(figures), len(shown), JUDGED, -1).mean(axis=2)

    return np.asarray(by_count.transpose(1, 0, 2))


def _counts(crowd: Crowd, at: Floats) -> Ints:
    """Give the numbers of samples at some quantiles of them."""
    below = np.cumsum(crowd.sizes.probability)
    return crowd.sizes.support[np.minimum(np.searchsorted(below, at), len(below) - 1)]


def _law(asked: ShareQueries, mean: Floats, stddev: float) -> Floats:
    """Give the probability of each cell, for each agent."""
    under = _below(asked.law.cell_ends[1:-1], mean, stddev)
    return np.maximum(np.diff(np.pad(under, ((0, 0), (1, 0))), append=1.0), 0.0)


def _below(value: Floats, mean: Floats, stddev: float) -> Floats:
    """Give the share of each agent's samples below some values."""
    with np.errstate(over="ignore"):
        return ndtr((value - mean[:, None]) / stddev)


def _truth(asked: ShareQueries, mean: Floats, stddev: float) -> Floats:
    """Give what each agent's clipped law has for an answer."""
    settings = asked.settings
    quantiles = np.clip(
        mean[:, None] + stddev * ndtri(np.array(asked.quantiles)), settings.lower, settings.upper
    )

    return np.concatenate([quantiles, 1 - _below(np.array(settings.exceeds), mean, stddev)], axis=1)


def _alone(asked: ShareQueries, own: Ints) -> Floats:
    """Give the figures of the own samples, but for where they lie within cells."""
    n = own.sum(axis=1)
    exact = own / own.sum(axis=1)[:, None]
    exact_shares = SharesPosterior(
        exact, np.full((len(n), exact.shape[1] - 1), 1e-12), np.zeros(len(n))
    )
    quantiles = [
        asked.law.quantile(exact_shares, q, level=asked.level)[:, 0] for q in asked.quantiles
    ]
    exceeds = [
        asked.law.exceedance(exact_shares, t, level=asked.level)[:, 0]
        for t in asked.settings.exceeds
    ]

    return np.stack([*quantiles, *exceeds], axis=1)


def _histograms(
    settings: AgentsSettings,
    count: Ints,
    law: Floats,
    rng: np.random.Generator,
    noise: SimulationNoise,
) -> tuple[HistogramColumns, Ints]:
    """Have agents release their histograms, the last time at the end.

    And give all of their cells.
    """
    histogram = settings.histogram
    everybody = np.arange(len(count))
    assert histogram is not None  # noqa: S101 - checked
    rows = empty_columns(histogram.columns, len(count))
    seen = np.zeros(len(count), np.int64)

    def release(who: Ints, at: Ints) -> None:
        draw(who, at)
        ids = NoiseIds(np.zeros((len(who), 2), np.uint64), at, np.zeros(len(who), np.uint64))
        histogram.cast(rows, who, at, ids, noise)  # type: ignore[arg-type]

    def draw(who: Ints, at: Ints) -> None:
        cells = rng.multinomial(at - seen[who], law[who])
        rows["histogram_own"][who] += cells
        rows["histogram_new"][who] += histogram.bins_of_cells(cells)
        seen[who] = at

    for time in _due(settings, int(count.max())):
        who = np.flatnonzero(count >= time)
        release(who, np.full(len(who), time))

    made = require_samples_counted(settings.times, settings.schedule).releases_up_to(count)
    last = everybody[
        (made < settings.horizon) & histogram.due(rows, everybody, count) & (seen < count)
    ]

    if len(last):
        release(last, count[last])

    draw(everybody, count)
    return histogram.released(rows, everybody), rows["histogram_own"]


def _due(settings: AgentsSettings, most: int) -> list[int]:
    """Give the scheduled numbers of samples after which a histogram is released, the same for everyone."""
    times = require_samples_counted(settings.times, settings.schedule)
    number = min(int(times.releases_up_to(np.array([most]))[0]), settings.horizon)
    due_times: list[int] = []
    for time in times.times(number).tolist() if number else ():
        if not due_times or time // FACTOR >= due_times[-1]:
            due_times.append(time)

    return due_times
