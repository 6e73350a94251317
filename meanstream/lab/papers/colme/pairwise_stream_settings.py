"""How the agents of a stream query each other: plain choices, checked at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from meanstream.lab.papers.colme.pairwise_partners import Everyone, PartnerGraph
from meanstream.lab.papers.colme.pairwise_settings import PAIRWISE_SCHEDULES
from meanstream.lab.papers.colme.pairwise_statistic import PairStatistic, pair_statistic
from meanstream.lab.papers.colme.variance_trackers import (
    PRIORS,
    VARIANCES,
    Bayesian,
    FromReleases,
    PrintedFromReleases,
    ReleasedVariance,
)
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.counters.registry import FreshNoise, counter_noise
from meanstream.operators.noise.distributions import GaussianNoise
from meanstream.operators.noise.keyed import canonical, canonical_spelling
from meanstream.operators.noise.numerics import require_small_numeric_slack
from meanstream.operators.records import Floats
from meanstream.operators.validation import require, require_between, require_positive, valid_float

MOST_BYTES = 1 << 30
"""Memory of the pairs of a federation in which everyone queries everyone."""
MOST_EDGES = 1 << 24
WEIGHTS = ("last", "mean_of_means", "windowed")
SQUARES_SPAN = 1 << 10
"""Steps of the grid on which deviations are squared: sums of squares stay exact in float64 for
2**33 samples."""


@dataclass(frozen=True)
class WholeReleasedVariance(ReleasedVariance):
    """Sch-Var-1 in whole numbers.

    A rounded sum of squares plus rounded noise, so that no float of raw data leaves.

    **Privacy.** A replaced sample moves the sum of squared deviations of d samples by at most (d - 1)/d span^2, and
    rounding by less than 1.5: together at most (d - 1)/d (span^2 + 3) for d of 2 and more. For d = 1 the sum is 0.
    Gaussian draws, which are continuous, shrink by (d - 1)/d before they are rounded. Whole draws do not: some numbers
    would come from two of them and others from one, which tells more than epsilon.
    """

    whole_draws: bool

    def _part_of_draw(self, length: Floats) -> Floats:
        if self.whole_draws:
            return np.asarray(length > 1, np.float64)
        return super()._part_of_draw(length)

    def _noised(self, squares: Floats, draw: Floats) -> Floats:
        return np.rint(squares) + np.rint(draw)


@dataclass(frozen=True, kw_only=True)
class PairwiseStreamSettings:
    """Algorithm 1 of Private-ColME on a stream.

    How agents release to those who query them, and what these make of it.

    Parameters
    ----------
    release : AgentsSettings
        Bounds, budget and counter of each ordered pair. Its schedule plays no part: a partner's
        query is what makes a release due.
    schedule : {"round_robin", "restricted_round_robin"}
        Whom an agent queries at each of its samples: its partners in turn, or those of them in its
        class.
    weights : {"last", "mean_of_means", "windowed"}
    variance : {"known", "released", "from_releases", "bayesian", "jeffreys", "uniform"}, optional
        Where the variance of one sample comes from; default "known" with `stddev`, else
        "from_releases".
    stddev : float, optional
        Standard deviation of one sample.
    significance : float
        An agent with t samples tests at significance / ln(t + 1).
    partners : mapping of str to sequence of str, optional
        Whom each agent may query; by default everyone.

    Notes
    -----
    **Privacy.** What one agent receives of another is (epsilon, delta)-differentially private for the replacement of
    one sample. Readers who pool what they received average the noise of their pairs away: `coalition_epsilon`.

    Examples
    --------
    >>> release = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, mode="paper", counter="pm1",
    ...                         calibration="classical")
    >>> settings = PairwiseStreamSettings(release=release)
    >>> [round(settings.coalition_epsilon(readers), 2) for readers in (5, 15, 199)]
    [1.87, 3.43, 15.63]
    >>> settings.most_agents
    3082
    """

    release: AgentsSettings
    schedule: str = "round_robin"
    weights: str = "last"
    variance: str = ""
    stddev: float | None = None
    significance: float = 0.05
    partners: Mapping[str, Sequence[str]] | None = None

    def __post_init__(self) -> None:
        if self.stddev is not None:
            object.__setattr__(self, "stddev", valid_float("stddev", self.stddev))
            require_positive(stddev=self.stddev)

        known = self.stddev is not None
        object.__setattr__(
            self, "variance", self.variance or ("known" if known else "from_releases")
        )

        for name, values in (
            ("schedule", tuple(PAIRWISE_SCHEDULES)),
            ("weights", WEIGHTS),
            ("variance", VARIANCES),
        ):
            require(
                getattr(self, name) in values,
                name,
                f"be one of {', '.join(values)}",
                getattr(self, name),
            )

        require(
            known == (self.variance == "known"),
            "variance",
            "be known with stddev, and only then",
            self.variance,
        )
        require_between(0, 1, significance=self.significance)

        release = self.release
        forgets = self.release.remembers.forgets
        require(not forgets, "memory", f"be forever with schedule {self.schedule}", release.memory)
        require(
            release.per_person is None,
            "per_person",
            "be left out with a pairwise schedule",
            release.per_person,
        )

        for name in ("spread_share", "histogram_share"):
            require(
                not getattr(release, name),
                name,
                "be 0 with a pairwise schedule",
                getattr(release, name),
            )

        rule = (
            "be pm1, pm2 or toeplitz with a pairwise schedule: every pair would keep all its draws"
        )
        require(release.counter in ("pm1", "pm2", "toeplitz"), "counter", rule, release.counter)

        own = self.variance == "released"
        counter = release.counter
        require(
            not own or counter in ("pm1", "pm2"),
            "counter",
            "be pm1 or pm2 with variance released",
            counter,
        )
        _ = self.scheme, self.squares_noise  # they check the counter and the noise

        if self.partners is not None:
            edges = sum(map(len, self.partners.values()))
            require(0 < edges <= MOST_EDGES, "partners", f"have 1 to {MOST_EDGES:,} rows", edges)

    @property
    def name(self) -> str | None:
        """Name of the deployment."""
        return self.release.name

    @property
    def literal(self) -> bool:
        """Whether rounds and intervals are the paper's in every detail.

        Every round begins at the first agent, and an interval holds given that the class is right.
        """
        return self.release.mode == "paper"

    @cached_property
    def means(self) -> AgentsSettings:
        """How means are released: with half of the budget where variances are released, too."""
        if self.variance != "released":
            return self.release
        return replace(self.release, epsilon=self.release.epsilon / 2, delta=self.release.delta / 2)

    @cached_property
    def shift(self) -> int:
        """Grid steps in one step of the grid for squares."""
        return max(1, self.release.grid.span // SQUARES_SPAN)

    @cached_property
    def squares_noise(self) -> FreshNoise | None:
        """Noise of one partial sum of squared deviations, in squared steps of their grid.

        None if none is released.
        """
        if self.variance != "released":
            return None
        means = self.means
        noise_of = partial(
            counter_noise,
            means.mechanism,
            delta=means.delta_of_noise,
            sensitivity=float((means.grid.span / self.shift + 1) ** 2 + 3),
            noise=means.noise,
            calibration=means.calibration,
            composition="basic" if means.mode == "paper" else "concentrated",
        )
        require_small_numeric_slack(
            lambda epsilon: noise_of(epsilon=epsilon),
            epsilon=means.epsilon,
            delta=means.delta,
            draws=means.mechanism.reach,
        )

        return noise_of(epsilon=means.epsilon)

    @cached_property
    def scheme(self) -> ReleasedVariance | FromReleases | PrintedFromReleases | None:
        """How the variance of another agent's samples is estimated; None if it is known."""
        if self.variance == "known":
            return None

        if self.variance == "released":
            means = self.means
            whole = not isinstance(self.squares_noise, GaussianNoise)
            fresh_variance = means.fresh.variance / self.shift**2
            return WholeReleasedVariance(means.mechanism, fresh_variance, 1.0, whole)

        counter = self.means.mechanism
        fresh_variance = self.means.fresh.variance
        if self.variance in PRIORS:
            return Bayesian(counter, fresh_variance, self.variance)
        if self.release.mode == "tuned":
            return FromReleases(counter, fresh_variance)

        return PrintedFromReleases(counter, fresh_variance)

    def statistic(self) -> PairStatistic:
        """How T of a pair is kept."""
        return pair_statistic(self.weights, self.means.mechanism, others=1, noise_ratio=1.0)

    def layout(self, capacity: int) -> Everyone | PartnerGraph:
        """Whom agents may query, up to that number of them."""
        if self.partners is None:
            return Everyone(capacity)
        return PartnerGraph(self.partners)

    @cached_property
    def most_agents(self) -> int | None:
        """Return how many agents fit where everyone queries everyone.

        None with a graph of partners.
        """
        if self.partners is not None:
            return None
        parts = [self.means.mechanism.init(2), self.statistic().init(2, 2)]
        parts += [] if self.scheme is None else [self.scheme.init(2)]
        pair = (
            sum(array.nbytes for state in parts for array in state.values()) / 2 + 33
        )  # release, n, T, weight, class

        return int(np.sqrt(MOST_BYTES / pair))

    def coalition_epsilon(self, readers: int) -> float:
        """Return what epsilon becomes, at the same delta, if readers pool what they received of one agent."""
        both = 1 if self.variance != "released" else 2  # means and variances are as two readers
        return self.means.epsilon_over(readers * both)

    def key(self) -> dict[str, Any]:
        """Return what decides how random bits become a release."""
        own: dict[str, Any] = {}
        if self.variance == "released":
            own["variance"] = self.variance
            if self.means.noise != "gaussian":
                own["squares"] = "draws as they are"  # they were scaled before: never by one key

        return canonical_spelling(self.means) | own

    def plain(self) -> dict[str, Any]:
        """Return the settings as plain data that tell deployments apart."""
        own = {
            name: getattr(self, name)
            for name in ("schedule", "weights", "variance", "stddev", "significance")
        }
        unused = ("schedule", "memory", "histogram_share", "exceeds", "per_person", "spread_share")
        release = {
            name: value for name, value in asdict(self.release).items() if name not in unused
        }

        return {**release, **own, "partners": self._digest()}

    def with_name(self, name: str) -> PairwiseStreamSettings:
        """Return the same for the deployment of a name."""
        return replace(self, release=replace(self.release, name=name))

    def _digest(self) -> str | None:
        if self.partners is None:
            return None
        rows = {name: list(some) for name, some in self.partners.items()}
        return hashlib.sha256(canonical([*rows.items()])).hexdigest()[:16]
