"""Public: attributes of agents who are known by the hashes of their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.operators.collaboration.covariates.covariate_design import AgentCovariates
from meanstream.operators.collaboration.covariates.covariate_releases import CovariateReleases
from meanstream.operators.collaboration.registry import ReleaseSummary
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.pipelines.beam.agents.agents_elements import record_agent_hash
from meanstream.streaming.agents.declared_covariates import covariates_of_columns


class HashedCovariates:
    """Adds the codes of attributes to the summary of everyone's releases.

    State holds releases, and no codes.

    So a pipeline that goes on with other attributes begins nothing again.
    """

    def __init__(self, covariates: AgentCovariates | None) -> None:
        self._covariates = covariates
        if covariates is None:
            return
        hashes = record_agent_hash(keyed_owner_words(list(covariates.names)))
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._codes = np.concatenate([covariates.codes[order], covariates.design.missing[None]])

    def of_summary(self, summary: ReleaseSummary) -> ReleaseSummary:
        """Add the codes of its agents, if there are any attributes."""
        if self._covariates is None or not isinstance(summary, CovariateReleases):
            return summary
        place = np.searchsorted(self._hashes, summary.agent)
        inside = np.minimum(place, max(len(self._hashes) - 1, 0))
        known = (
            self._hashes[inside] == summary.agent
            if len(self._hashes)
            else np.zeros(summary.n, np.bool_)
        )

        return replace(summary, codes=self._codes[np.where(known, inside, len(self._hashes))])


def agent_covariates(given: Mapping[str, Mapping[str, Any]]) -> AgentCovariates:
    """Read attributes that a pipeline is given.

    A mapping from each agent to its attributes by name.

    Examples
    --------
    >>> agent_covariates({"N1": {"engine": "jet", "seats": 55}, "N2": {"seats": 149}}).design.attributes[1].name
    'seats'
    """
    if not isinstance(given, Mapping):
        raise TypeError(
            f"covariates must map agents to their attributes, got {type(given).__name__}"
        )

    columns = dict.fromkeys(name for row in given.values() for name in row)
    try:
        table = {name: pa.array([row.get(name) for row in given.values()]) for name in columns}
    except (pa.ArrowException, TypeError, ValueError):  # whose texts show values
        raise ValueError(
            "covariates must have one type of values in each column, got several"
        ) from None

    return covariates_of_columns(list(given), table)
