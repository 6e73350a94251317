"""Everyone's personal estimate, computed from what everyone has released and one's own samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.collaboration.alone import FittedAlone, alone_where_ahead
from meanstream.operators.collaboration.anytime_intervals import anytime_intervals, valid_coverage
from meanstream.operators.collaboration.registry import (
    FittedPopulation,
    HasMembers,
    ReleaseSummary,
    estimate_with_two_variances,
    make_collaboration,
)
from meanstream.operators.collaboration.shares.asked_shares import SharesAnswers
from meanstream.operators.collaboration.shares.shares_prior import SharesPrior
from meanstream.operators.collaboration.variance.pooled_variance import (
    pooled_own_means,
    pooled_variance,
)
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import (
    AgentEstimates,
    Floats,
    OwnMeans,
    OwnSamples,
    ReleaseColumns,
)
from meanstream.streaming.agents.answered import AnsweredAgents
from meanstream.streaming.agents.known_covariates import KnownCovariates
from meanstream.streaming.agents.public_population import (
    PublicPopulation,
    population_count_probability,
)
from meanstream.streaming.agents.share_estimates import ShareEstimates
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.encode import EventLines, encode_columns_as_lines, encode_lines
from meanstream.streaming.events.times import iso_times, time_as_datetime
from meanstream.streaming.events.wire import PersonalEstimate, Population


class PersonalEstimates:
    """Answers agents; outside the exactly-once core, because it can be computed again from the committed state.

    Parameters
    ----------
    settings : AgentsSettings
    options : EngineOptions
    strangers : bool
        Releases come from other deployments, whose counts may be lies.

    **Privacy.** The population is fitted to public releases only. An estimate mixes in its agent's raw mean: it is
    addressed to that agent.
    """

    def __init__(
        self, settings: AgentsSettings, options: EngineOptions, *, strangers: bool = False
    ) -> None:
        self._settings = settings
        self._options = options
        valid_coverage(options.coverage, settings.memory)
        self._covariates = KnownCovariates(options.covariates)

        self._collaboration = make_collaboration(
            options.collaboration,
            lower=settings.lower,
            upper=settings.upper,
            covariates=None if options.covariates is None else options.covariates.design,
            strangers=strangers,
        )
        self.shares = ShareEstimates(settings, options)
        self.median_half_width: float | None = None
        self.population: PublicPopulation | None = None  # at the last refresh
        self.answered: AnsweredAgents | None = None

    def refresh(
        self,
        names: list[str],
        latest: ReleaseColumns,
        own: OwnSamples,
        pool: VariancePosterior,
        time: float,
    ) -> tuple[EventLines, EventLines]:
        """Fit the population once; estimate for the agents who ever had a sample.

        Returns
        -------
        EventLines, EventLines
            Private estimates, and one public event about the population.
        """
        # One fit serves all: it reads releases only.
        self.population = self.public_population(latest, pool, names)
        fitted = self.population.fitted
        shares = self.shares.fit_newest(names, latest)
        estimates = self.answer(names, own, pool, fitted, time, shares=shares)

        return estimates, self.describe(self.population.description, len(latest), time)

    def summarize(self, latest: ReleaseColumns) -> ReleaseSummary:
        """Public: what the fit reads of the newest release of some agents.

        Summaries of all agents merge.
        """
        return self._collaboration.summarize(latest)

    def fit_summary(self, summary: ReleaseSummary, pool: VariancePosterior) -> FittedPopulation:
        """Public: fit the population to the summary of everyone's newest release."""
        return self._collaboration.fit_summary(
            summary, pool if self._known is None else self._known
        )

    def answer(
        self,
        names: Sequence[str] | Mapping[int, str],
        own: OwnSamples,
        pool: VariancePosterior,
        fitted: FittedPopulation,
        time: float,
        *,
        shares: SharesPrior | None = None,
    ) -> EventLines:
        """Private: estimates of the agents that have samples, under a population that was fitted before.

        Quantiles and exceedances are told where the prior of shares is given.
        """
        # Private from here on: each agent's own samples meet what everyone may know.
        told = self.shares.own(shares, own)
        columns = self._columns(
            names, pooled_own_means(own, pool, known=self._known), fitted, time, told
        )

        return encode_columns_as_lines(PersonalEstimate, columns, self._constants(time), kept=False)

    def answer_rows(
        self,
        names: Sequence[str],
        own: OwnSamples,
        pool: VariancePosterior,
        fitted: FittedPopulation,
        times: Floats,
        *,
        overtaken: int,
        population_time: float,
        shares: SharesPrior | None = None,
    ) -> list[EventLines]:
        """Private: estimates of rows of several windows, each with its name and its time.

        The windows of the first ones were overtaken: there `population_time` says up to when the
        population is.
        """
        # Rows of several windows share few times: each is written once.
        found, place = np.unique(times, return_inverse=True)
        texts = iso_times(found)
        own_means = pooled_own_means(own, pool, known=self._known)
        columns = self._columns(list(names), own_means, fitted, None, self.shares.own(shares, own))
        columns["time"] = [texts[at] for at in place.tolist()]

        # Rows that were overtaken say whose population they used.
        late = {name: column[:overtaken] for name, column in columns.items()}
        late["population_time"] = iso_times(np.array([population_time])) * overtaken
        on_time = {name: column[overtaken:] for name, column in columns.items()}
        constants = self._constants(None)
        parts = [part for part in (late, on_time) if part["time"]]

        return [encode_columns_as_lines(PersonalEstimate, part, constants) for part in parts]

    def public_population(
        self, latest: ReleaseColumns, pool: VariancePosterior, names: Sequence[str]
    ) -> PublicPopulation:
        """Public: what everyone's newest release says, without any agent's own samples.

        `names` by number.
        """
        # Covariates are public, as releases are.
        latest = self._covariates.of_releases(latest, names)
        fitted = self.fit_summary(self.summarize(latest), pool)
        description = self.description(fitted, pool)
        of_sample = pool.median if self._known is None else self._known
        ratio = description.get("dependent", {}).get("ratio", 1.0)

        return PublicPopulation(
            fitted=fitted,
            releases=latest,
            # Intervals rest on the long-run variance where samples depend; values on that of
            # neighbors.
            variance=pooled_variance(latest, of_sample * ratio),
            value_variance=pooled_variance(latest, of_sample),
            lower=self._settings.lower,
            upper=self._settings.upper,
            level=self._options.level,
            coverage=self._options.coverage,
            n_components=description["n_components"],
            spread=description.get("spread"),
            goes_with_count=population_count_probability(description),
            description=description,
        )

    def description(self, fitted: FittedPopulation, pool: VariancePosterior) -> dict[str, Any]:
        """Public: a fitted population as plain data.

        With `dependent`, once it is sure that samples depend.
        """
        ratio = pool.dependence if self._known is None and self._settings.mode == "tuned" else None
        if ratio is None:
            return fitted.describe()
        return {
            **fitted.describe(),
            "dependent": {"ratio": ratio, "probability": 1.0 - pool.independent},
        }

    @property
    def _known(self) -> float | None:
        if self._options.stddev is None:
            return None
        return self._options.stddev**2

    def _columns(
        self,
        names: Sequence[str] | Mapping[int, str],
        own: OwnMeans,
        fitted: FittedPopulation,
        time: float | None,
        share_estimates: SharesAnswers | None,
    ) -> dict[str, Any]:
        options = self._options

        # Own means know what is public of their agents.
        own = self._covariates.of_means(own, names, by_row=time is None)
        answer = alone_where_ahead(
            estimate_with_two_variances(fitted, own, level=options.level), own
        )
        alone = FittedAlone().estimate(own, level=options.level)

        # At any time: intervals that hold together replace those that hold one by one.
        if options.coverage == "anytime":
            bounds = {"lower": self._settings.lower, "upper": self._settings.upper}
            answer, alone = (anytime_intervals(one, own, **bounds) for one in (answer, alone))

        interval = self._interval(answer)
        local_interval = self._interval(alone)

        if len(own):
            self.median_half_width = float(np.median(interval[:, 1] - interval[:, 0]) / 2)

        # Names in the order of the rows, or by the number of each agent.
        told: list[str] = (
            [names[row] for row in range(len(own))]
            if time is None
            else [names[a] for a in own.agent.tolist()]
        )

        if time is not None:  # where rows have a time each, no one asks
            made = self._answered(told, own, answer, interval, local_interval, time)
            self.answered = self.shares.attach(made, share_estimates)

        columns: dict[str, Any] = {
            "agent": told,
            "n": own.count,
            "value": answer.value,
            "interval": interval,
            "local": own.mean,
            "local_interval": local_interval,
            "effective_class_size": answer.effective_class_size,
            "class_size": answer.class_size,
            "component": answer.component,
            "membership": answer.membership,
            **self.shares.columns(share_estimates),
        }

        # Only tests have members: classes of the learned prior are of means, not of agents.
        if self._options.members and time is not None and isinstance(fitted, HasMembers):
            classes = zip(fitted.members(own), own.ahead.tolist(), strict=True)
            columns["members"] = [
                [] if ahead else sorted(names[a] for a in found.tolist())
                for found, ahead in classes
            ]

        # The noise's part of an interval is no longer than what the bounds leave.
        if answer.noise_half_width is not None:
            most = (interval[:, 1] - interval[:, 0]) / 2
            columns["noise_half_width"] = np.minimum(answer.noise_half_width, most)

        if answer.moved is not None:
            columns["moved_by_covariates"] = answer.moved

        return columns

    def _answered(  # noqa: PLR0917 - the columns of one record
        self,
        names: list[str],
        own: OwnMeans,
        answer: AgentEstimates,
        interval: Floats,
        local_interval: Floats,
        time: float,
    ) -> AnsweredAgents:
        return AnsweredAgents(
            time=time,
            names=tuple(names),
            agent=own.agent,
            count=own.count,
            value=answer.value,
            interval=interval,
            local=own.mean,
            local_interval=local_interval,
            effective_class_size=answer.effective_class_size,
            class_size=answer.class_size,
            coverage=self._options.coverage,
        )

    def _constants(self, time: float | None) -> dict[str, Any]:
        """Say what all estimates of a refresh have in common."""
        settings = self._settings
        return {
            **({} if time is None else {"time": iso_times(np.array([time]))[0]}),
            "level": self._options.level,
            **(
                {}
                if self._options.coverage == "pointwise"
                else {"coverage": self._options.coverage}
            ),
            "method": self._options.collaboration,
            "epsilon": float(settings.epsilon),
            "delta": float(settings.delta),
            "mode": settings.mode,
        }

    def _interval(self, answer: AgentEstimates) -> Floats:
        """Pairs of ends; a mean of clipped samples cannot lie outside the bounds, so neither does its interval."""
        ends = np.stack([answer.lower, answer.upper], axis=1)
        return np.clip(ends, self._settings.lower, self._settings.upper)

    def describe(
        self, description: dict[str, Any], n_agents: int, time: float, *, overtaken: int = 0
    ) -> EventLines:
        """Public: a fitted population, described, as an event."""
        settings = self._settings
        event = Population(
            time=time_as_datetime(time),
            agents=n_agents,
            method=self._options.collaboration,
            fitted=description,
            epsilon=float(settings.epsilon),
            delta=float(settings.delta),
            mode=settings.mode,  # type: ignore[arg-type]
            overtaken=overtaken or None,
        )

        return encode_lines(Population, [event])
