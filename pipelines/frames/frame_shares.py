"""Quantiles and exceedances of a frame's groups, from what they have released."""

from __future__ import annotations

from collections.abc import Sequence

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.own_histogram import histograms_of_releases
from meanstream.operators.records import Floats, ReleaseColumns
from meanstream.streaming.agents.estimates import ShareEstimates
from meanstream.streaming.engine.engine_options import EngineOptions


def shares_columns(quantiles: tuple[float, ...], exceeds: tuple[float, ...]) -> list[str]:
    """Name the columns of the result.

    Examples
    --------
    >>> shares_columns((0.9,), (30.0,))
    ['q0.9', 'q0.9_lower', 'q0.9_upper', 'exceeds30', 'exceeds30_lower', 'exceeds30_upper']
    """
    names = [f"q{q!r}" for q in quantiles] + [f"exceeds{t!r}".removesuffix(".0") for t in exceeds]
    return [name + end for name in names for end in ("", "_lower", "_upper")]


def shares_answers(
    settings: AgentsSettings, options: EngineOptions, names: Sequence[str], newest: ReleaseColumns
) -> dict[str, Floats]:
    """Public: answer every group that has released, from the releases alone.

    A column for each name.
    """
    told = ShareEstimates(settings, options)
    prior = told.fit_newest(names, newest)
    if prior is None:  # nothing is requested
        return {}

    answers = told.released(prior, histograms_of_releases(newest))
    columns = [
        a[:, i, j]
        for a in (answers.quantiles, answers.exceeds)
        for i in range(a.shape[1])
        for j in range(3)
    ]

    return dict(zip(shares_columns(options.quantiles, settings.exceeds), columns, strict=True))
