"""Codes of the public attributes of agents, next to their releases and their own means."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from meanstream.operators.collaboration.covariates.covariate_design import AgentCovariates
from meanstream.operators.records import AnyInts, OwnMeans, ReleaseColumns

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
