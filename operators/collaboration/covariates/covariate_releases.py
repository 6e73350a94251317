"""Everyone's newest release with the public attributes of its agent.

What a fit with covariates reads; mergeable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from meanstream.operators.collaboration.prior.prior_points import columns_without
from meanstream.operators.records import AnyInts, Floats, Ints, ReleaseColumns
from meanstream.operators.validation import require_version

SNAPSHOT_VERSION = 2
_ARRAYS = ("agent", "count", "mean", "noise_variance", "noise_terms")


@dataclass(slots=True, kw_only=True)
class CovariateReleases:
    """Public: releases in any order: what is computed from them does not depend on it.

    A second pass over the releases follows once the effects of the attributes are known, so they
    are kept one by one.

    Attributes
    ----------
    agent, count, noise_terms : int array, shape (n,)
    mean, noise_variance : float array, shape (n,)
        As in `ReleaseColumns`.
    codes : int array, shape (n, n_attributes)
        No part of what is saved, added and taken out where they are looked up by agent at the fit:
        without columns.
    """

    agent: Ints
    count: Ints
    mean: Floats
    noise_variance: Floats
    noise_terms: Ints
    codes: AnyInts

    @classmethod
    def of(cls, releases: ReleaseColumns) -> Self:
        """Take releases, at most one of each agent; what is no number is left out."""
        usable = (
            np.isfinite(releases.mean) & (releases.count > 0) & np.isfinite(releases.noise_variance)
        )
        usable &= releases.noise_variance >= 0
        used = releases if usable.all() else releases.take(usable)

        return cls(codes=used.covariates, **{name: getattr(used, name) for name in _ARRAYS})

    @property
    def n(self) -> int:
        """Number of releases."""
        return len(self.count)

    def merge(self, other: CovariateReleases) -> None:
        """Add the releases of other agents: commutative and associative for what reads them."""
        for name in (*_ARRAYS, "codes"):
            mine = getattr(self, name)
            theirs = getattr(other, name)
            setattr(self, name, np.concatenate([mine, theirs]) if len(mine) else theirs)

    def subtract(self, other: CovariateReleases) -> None:
        """Take out releases that were added before; `ValueError` if they were not."""
        if not other.n:
            return
        columns, taken = (
            [*summary.codes.T, *(getattr(summary, name) for name in _ARRAYS)]
            for summary in (self, other)
        )
        left = columns_without(columns, taken)
        k = self.codes.shape[1]
        self.codes = np.stack(left[:k], axis=1) if k else np.zeros((len(left[0]), 0), np.int64)

        for name, column in zip(_ARRAYS, left[k:], strict=True):
            setattr(self, name, column)

    def columns(self) -> ReleaseColumns:
        """Give what a fit reads; indices and sums it does not."""
        unread = np.ones(self.n, np.int64)
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return ReleaseColumns(index=unread, total=unread, covariates=self.codes, **arrays)

    def snapshot(self) -> dict[str, Any]:
        """Plain data: numbers and copies of arrays."""
        order = np.lexsort((*self.codes.T, self.agent))
        arrays = {name: getattr(self, name)[order] for name in (*_ARRAYS, "codes")}
        return {"version": SNAPSHOT_VERSION, **arrays}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """Make the same of its snapshot."""
        require_version(state, SNAPSHOT_VERSION)

        return cls(**{name: np.asarray(state[name]) for name in (*_ARRAYS, "codes")})
