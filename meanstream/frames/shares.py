"""Quantiles and exceedances of a frame's groups, from what they have released."""

from __future__ import annotations

from dataclasses import replace

from meanstream.operators.agents.agents import Agents
from meanstream.operators.records import Floats
from meanstream.streaming.agents.told_shares import ToldShares
from meanstream.streaming.engine.options import EngineOptions


def shares_columns(quantiles: tuple[float, ...], exceeds: tuple[float, ...]) -> list[str]:
    """Name the columns of the result.

    Examples
    --------
    >>> shares_columns((0.9,), (30.0,))
    ['q0.9', 'q0.9_lower', 'q0.9_upper', 'exceeds30', 'exceeds30_lower', 'exceeds30_upper']
    """
    names = [f"q{q!r}" for q in quantiles] + [f"exceeds{t!r}".removesuffix(".0") for t in exceeds]
    return [name + end for name in names for end in ("", "_lower", "_upper")]


def shares_answers(agents: Agents, quantiles: tuple[float, ...], options: EngineOptions) -> dict[str, Floats]:
    """Public: answer every group that has released, from the releases alone; a column for each name."""
    told = ToldShares(agents.settings, replace(options, quantiles=quantiles))
    prior = told.fit_newest(agents.names, agents.latest())
    assert prior is not None  # noqa: S101 - something is asked
    answers = told.released(prior, agents.histograms())
    columns = [a[:, i, j] for a in (answers.quantiles, answers.exceeds) for i in range(a.shape[1]) for j in range(3)]
    return dict(zip(shares_columns(quantiles, agents.settings.exceeds), columns, strict=True))
