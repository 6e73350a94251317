"""Quantiles and exceedances of agents.

A prior fitted to all histograms, and an agent's own samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.own_histogram import HistogramColumns, histograms_of_releases
from meanstream.operators.collaboration.shares.asked_shares import (
    ShareQueries,
    SharesAnswers,
    query_labels,
)
from meanstream.operators.collaboration.shares.shares_prior import SharesPrior
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import Ints, OwnSamples, ReleaseColumns
from meanstream.streaming.agents.answered import AnsweredAgents
from meanstream.streaming.engine.engine_options import EngineOptions


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

    **Privacy.** The prior is fitted to public releases only. An answer mixes in its agent's own samples: it is
    addressed to that agent.
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

    def fit_newest(self, names: Sequence[str], latest: ReleaseColumns) -> SharesPrior | None:
        """Public: learn it from everyone's newest release.

        Who has a number in `names` once keeps it.
        """
        if not self.wanted:
            return None
        found = histograms_of_releases(latest)
        known = len(self._keys)
        needed = int(found.agent.max(initial=-1)) + 1

        if needed > known:
            self._keys = np.concatenate([self._keys, _key(names[known:needed])])

        return self.fit(found, self._keys[found.agent])

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
        found: dict[str, list[Any]] = {}
        for name, kind, thresholds, values in (
            ("quantiles", _Quantile, self._queries.quantiles, answers.quantiles),
            ("exceeds", _Exceedance, self._queries.settings.exceeds, answers.exceeds),
        ):
            if thresholds:
                rows = values.tolist()
                found[name] = [
                    [
                        kind(at, value, (low, high))
                        for at, (value, low, high) in zip(thresholds, row, strict=True)
                    ]
                    for row in rows
                ]

        return found
