"""Everyone's personal estimate, computed from what everyone has released and one's own samples."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.own_histogram import (
    NO_HISTOGRAMS,
    HistogramColumns,
    histograms_of_releases,
)
from meanstream.operators.collaboration.alone import FittedAlone, alone_where_ahead
from meanstream.operators.collaboration.anytime_intervals import anytime_intervals, valid_coverage
from meanstream.operators.collaboration.covariates.covariate_design import AgentCovariates
from meanstream.operators.collaboration.registry import (
    FittedPopulation,
    HasMembers,
    ReleaseSummary,
    estimate_with_two_variances,
    make_collaboration,
)
from meanstream.operators.collaboration.shares.asked_shares import (
    ShareQueries,
    SharesAnswers,
    query_labels,
)
from meanstream.operators.collaboration.shares.shares_prior import SharesPrior, sampled_histograms
from meanstream.operators.collaboration.variance.pooled_variance import (
    pooled_own_means,
    pooled_variance,
)
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import (
    AgentEstimates,
    AnyInts,
    Floats,
    Ints,
    OwnMeans,
    OwnSamples,
    ReleaseColumns,
)
from meanstream.streaming.agents.engine_summary import NO_OTHERS, OtherReleases
from meanstream.streaming.agents.public_population import (
    AnsweredAgents,
    PublicPopulation,
    population_count_probability,
)
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.encode import EventLines, encode_columns_as_lines, encode_lines
from meanstream.streaming.events.times import iso_times, time_as_datetime
from meanstream.streaming.events.wire import PersonalEstimate, Population

_log = logging.getLogger("meanstream.covariates")


class KnownCovariates:
    """Looks up each agent's public attributes once.

    Parameters
    ----------
    covariates : AgentCovariates or None
        None: nothing is declared, and records stay as they are.
    """

    def __init__(self, covariates: AgentCovariates | None) -> None:
        self._covariates = covariates
        self._names: Sequence[str] = ()
        self._codes: AnyInts | None = None

    def of_releases(self, releases: ReleaseColumns, names: Sequence[str]) -> ReleaseColumns:
        """Add the codes of the agents, who are named by their numbers."""
        if self._covariates is None:
            return releases
        return replace(releases, covariates=self._by_number(names)[releases.agent])

    def of_means(
        self, own: OwnMeans, names: Sequence[str] | Mapping[int, str], *, by_row: bool
    ) -> OwnMeans:
        """Add the codes of the agents, who are named by their numbers, or row by row."""
        if self._covariates is None:
            return own
        if by_row:
            return replace(
                own, covariates=self._covariates.of([names[row] for row in range(len(own))])
            )

        if isinstance(names, Mapping):
            return replace(
                own, covariates=self._covariates.of([names[a] for a in own.agent.tolist()])
            )

        return replace(own, covariates=self._by_number(names)[own.agent])

    def _by_number(self, names: Sequence[str]) -> AnyInts:
        """Give the codes of all agents; an engine's list of names only grows."""
        assert self._covariates is not None  # noqa: S101 - both callers have asked
        if names is not self._names or self._codes is None:
            self._names = names
            self._codes = self._covariates.of(names)

            if names and not self._covariates.known(names):
                _log.warning(
                    "no agent has a row in the covariates: is the key column that of the agents?"
                )
        elif len(self._codes) < len(names):
            self._codes = np.concatenate(
                [self._codes, self._covariates.of(names[len(self._codes) :])]
            )

        return self._codes


class _Quantile(msgspec.Struct, gc=False):
    """As `QuantileAnswer` has it."""

    quantile: float
    value: float
    interval: tuple[float, float]


class _Exceedance(msgspec.Struct, gc=False):
    """As `ExceedanceAnswer` has it."""

    threshold: float
    share: float
    interval: tuple[float, float]


def _key(names: Sequence[str]) -> Ints:
    """Public: give agents numbers of 63 bits by their names, the same on every host."""
    return np.asarray(keyed_owner_words(names)[:, 0] >> np.uint64(1)).astype(np.int64)


class ShareEstimates:
    """Estimates quantiles and exceedances of agents' distributions.

    **Privacy.** The prior is fitted to public releases only. An answer mixes in its agent's own
    samples: it is addressed to that agent.
    """

    def __init__(self, settings: AgentsSettings, options: EngineOptions) -> None:
        self._queries = ShareQueries(settings, options.quantiles, options.level)
        self._alone = options.collaboration == "none"
        self._keys = np.zeros(0, np.int64)

    @property
    def wanted(self) -> bool:
        """Whether there are questions that can be answered."""
        settings = self._queries.settings
        return settings.histogram is not None and bool(self._queries.quantiles or settings.exceeds)

    def fit(self, found: HistogramColumns, key: Ints) -> SharesPrior | None:
        """Public: learn the prior from everyone's newest histogram.

        None where nothing is requested.
        """
        if not self.wanted:
            return None

        if self._alone:
            return SharesPrior.alone(self._queries.law.widths)
        return self._queries.fit(found, key)

    def fit_newest(
        self,
        names: Sequence[str],
        latest: ReleaseColumns,
        others: Sequence[HistogramColumns] = (),
    ) -> SharesPrior | None:
        """Public: learn it from everyone's newest release.

        Who has a number in `names` once keeps it. `others` are of other engines' agents.
        """
        if not self.wanted:
            return None
        if not others:
            histograms = histograms_of_releases(latest)
            return self.fit(histograms, self.hashes(names)[histograms.agent])

        own = self.newest(names, latest)
        some = [part for part in (own, *others) if len(part.agent)]
        together = HistogramColumns(*map(np.concatenate, zip(*some, strict=True)))
        return self.fit(together, together.agent)

    def newest(self, names: Sequence[str], latest: ReleaseColumns) -> HistogramColumns:
        """Public: give the histograms of the newest releases that a prior is learned of.

        An agent's number is the hash of its name.
        """
        if not self.wanted:
            return NO_HISTOGRAMS
        histograms = histograms_of_releases(latest)
        hashes = self.hashes(names)[histograms.agent]
        return histograms._replace(agent=hashes).take(sampled_histograms(hashes))

    def hashes(self, names: Sequence[str]) -> Ints:
        """Public: give the hash of each name, by number."""
        n_keys = len(self._keys)
        if len(names) > n_keys:
            self._keys = np.concatenate([self._keys, _key(names[n_keys:])])

        return self._keys

    def own(self, prior: SharesPrior | None, own: OwnSamples) -> SharesAnswers | None:
        """Private: answer the agents that have samples, by these; None without a prior."""
        if prior is None:
            return None
        return self._queries.own(prior, own.cells[own.count > 0])

    def released(self, prior: SharesPrior, found: HistogramColumns) -> SharesAnswers:
        """Public: answer agents by what they have released."""
        return self._queries.released(prior, found)

    def attach(self, answered: AnsweredAgents, answers: SharesAnswers | None) -> AnsweredAgents:
        """Private: add answers to those on means."""
        if answers is None:
            return answered
        questions = query_labels(self._queries.quantiles, self._queries.settings.exceeds)
        both = np.concatenate([answers.quantiles, answers.exceeds], axis=1)

        return replace(answered, questions=tuple(questions), shares=both)

    def columns(self, answers: SharesAnswers | None) -> dict[str, list[Any]]:
        """Private: give answers as columns of `PersonalEstimate`.

        Columns without a question are left out.
        """
        if answers is None:
            return {}
        columns: dict[str, list[Any]] = {}
        for name, kind, thresholds, values in (
            ("quantiles", _Quantile, self._queries.quantiles, answers.quantiles),
            ("exceeds", _Exceedance, self._queries.settings.exceeds, answers.exceeds),
        ):
            if thresholds:
                rows = values.tolist()
                columns[name] = [
                    [
                        kind(threshold, value, (low, high))
                        for threshold, (value, low, high) in zip(thresholds, row, strict=True)
                    ]
                    for row in rows
                ]

        return columns


class PersonalEstimates:
    """Answers agents; outside the exactly-once core, because it can be computed again from the committed state.

    Parameters
    ----------
    settings : AgentsSettings
    options : EngineOptions
    strangers : bool
        Releases come from other deployments, whose counts may be lies.

    **Privacy.** The population is fitted to public releases only. An estimate mixes in its agent's
    raw mean: it is addressed to that agent.
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
        *,
        others: OtherReleases = NO_OTHERS,
    ) -> tuple[EventLines, EventLines]:
        """Fit the population once; estimate for the agents who ever had a sample.

        `others` are releases of other engines' agents, which `pool` contains.

        Returns
        -------
        EventLines, EventLines
            Private estimates, and one public event about the population.
        """
        # One fit serves all: it reads releases only.
        self.population = self.public_population(latest, pool, names, others)
        fitted = self.population.fitted
        shares = self.shares.fit_newest(names, latest, others.histograms)
        estimates = self.answer(names, own, pool, fitted, time, shares=shares)

        n_agents = len(latest) + others.agents
        return estimates, self.describe(self.population.description, n_agents, time)

    def own_summary(self, latest: ReleaseColumns, names: Sequence[str]) -> ReleaseSummary:
        """Public: what the fit reads of everyone's newest release; `names` by number."""
        return self.summarize(self._covariates.of_releases(latest, names))

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
        share_answers = self.shares.own(shares, own)
        columns = self._columns(
            names, pooled_own_means(own, pool, known=self._known), fitted, time, share_answers
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
        distinct, time_index = np.unique(times, return_inverse=True)
        texts = iso_times(distinct)
        own_means = pooled_own_means(own, pool, known=self._known)
        columns = self._columns(list(names), own_means, fitted, None, self.shares.own(shares, own))
        columns["time"] = [texts[index] for index in time_index.tolist()]

        # Rows that were overtaken say whose population they used.
        late = {name: column[:overtaken] for name, column in columns.items()}
        late["population_time"] = iso_times(np.array([population_time])) * overtaken
        on_time = {name: column[overtaken:] for name, column in columns.items()}
        constants = self._constants(None)
        parts = [columns_of_part for columns_of_part in (late, on_time) if columns_of_part["time"]]

        return [
            encode_columns_as_lines(PersonalEstimate, columns_of_part, constants)
            for columns_of_part in parts
        ]

    def public_population(
        self,
        latest: ReleaseColumns,
        pool: VariancePosterior,
        names: Sequence[str],
        others: OtherReleases = NO_OTHERS,
    ) -> PublicPopulation:
        """Public: what everyone's newest release says, without any agent's own samples.

        `names` by number; `others` as for `refresh`.
        """
        # Covariates are public, as releases are.
        latest = self._covariates.of_releases(latest, names)
        fitted = self.fit_summary(others.joined(self.summarize(latest)), pool)
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
            answer, alone = (
                anytime_intervals(answers_of, own, **bounds) for answers_of in (answer, alone)
            )

        interval = self._interval(answer)
        local_interval = self._interval(alone)

        if len(own):
            self.median_half_width = float(np.median(interval[:, 1] - interval[:, 0]) / 2)

        # Names in the order of the rows, or by the number of each agent.
        agent_names: list[str] = (
            [names[row] for row in range(len(own))]
            if time is None
            else [names[a] for a in own.agent.tolist()]
        )

        if time is not None:  # where rows have a time each, no one asks
            made = self._answered(agent_names, own, answer, interval, local_interval, time)
            self.answered = self.shares.attach(made, share_estimates)

        columns: dict[str, Any] = {
            "agent": agent_names,
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
            known = names if isinstance(names, Mapping) else range(len(names))  # not other engines'
            columns["members"] = [
                [] if ahead else sorted(names[a] for a in members.tolist() if a in known)
                for members, ahead in classes
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
