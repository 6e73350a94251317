"""One site of a federation: it releases noisy means, each charged once to a ledger of its own."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np

from meanstream.operators.counters.registry import FreshNoise
from meanstream.operators.noise.calibration import calibrated_gaussian_stddev
from meanstream.operators.noise.distributions import (
    TAIL_DELTA,
    GaussianNoise,
    LaplaceNoise,
    StaircaseNoise,
)
from meanstream.operators.noise.draw_owners import SITE_SUMS
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import NoiseIds, keyed_owner_words
from meanstream.operators.noise.numerics import require_small_numeric_slack
from meanstream.operators.validation import (
    require,
    require_bounds,
    require_epsilon,
    require_name,
    valid_float,
    valid_int,
)
from meanstream.streaming.store.deployment_store import open_deployment_store
from meanstream.streaming.store.secret_source import noise_from_secret
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.store_identity import OF_SITE, SIDE

_log = logging.getLogger("meanstream.federation")
MOST_RELEASES = 10_000
MOST_COUNT = 10**8
"""Records of a sum: of more, the rounding of a sum of floats could need as much noise as a
record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    """What a site promises each of its records.

    (epsilon, delta) over all releases of its ledger together.

    Parameters
    ----------
    epsilon, delta : float
        Privacy budget of one record's values. Delta is 0 by default; with more, Gaussian noise is
        taken where it is less.
    releases : int
        Largest number of releases of the ledger, of all statistics and rounds; their noise grows
        with it, of many with its root.
    name : str, optional
        Name of the site, part of the key of its noise; default: a random one, which the ledger
        keeps.
    """

    epsilon: float
    delta: float = 0.0
    releases: int
    name: str | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, valid_float(name, getattr(self, name)))

        require_epsilon(self.epsilon)
        require(0 <= self.delta < 1, "delta", "lie in [0, 1)", self.delta)
        releases = valid_int("releases", self.releases)
        object.__setattr__(self, "releases", releases)
        require(1 <= releases <= MOST_RELEASES, "releases", f"lie in 1..{MOST_RELEASES}", releases)

        # Each draw misses a little of the tails: that must fit into delta.
        tails = releases * TAIL_DELTA
        require(
            self.delta == 0 or self.delta > tails,
            "delta",
            f"be 0, or exceed the {tails:.1e} that the noise's tails cost",
            self.delta,
        )

        if self.name is not None:
            require_name(self.name)

    def noise(self, sensitivity: int) -> FreshNoise:
        """Give the noise of one sum of that sensitivity, in grid units: the least that keeps the promise.

        **Privacy.** Pure releases add up: each has the share `1 / releases` of epsilon. Gaussian ones, candidates if
        delta is more than 0, are orthogonal parts of one mechanism, each with a share `1 / releases` of the squared
        ratio of sensitivity to noise. The choice depends on the settings alone.
        """

        def noise_of(epsilon: float) -> FreshNoise:
            # Pure noise is free where delta is 0; with delta the least of all is taken.
            share = epsilon / self.releases
            candidates: list[FreshNoise] = [
                StaircaseNoise(sensitivity, share),
                LaplaceNoise(sensitivity / share),
            ]

            if self.delta:
                delta = self.delta - self.releases * TAIL_DELTA
                stddev = calibrated_gaussian_stddev(epsilon, delta, calibration="analytic")
                candidates.append(GaussianNoise(stddev * sensitivity * math.sqrt(self.releases)))

            return min(candidates, key=lambda noise: noise.variance)

        # What float64 adds to epsilon must be small at this sensitivity.
        require_small_numeric_slack(
            noise_of, epsilon=self.epsilon, delta=self.delta, draws=self.releases
        )

        return noise_of(self.epsilon)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRelease:
    """Public: a site's noisy mean of one statistic in one round.

    Attributes
    ----------
    site, statistic, round : str
        Whose mean it is, of what, and when; together they name the release.
    count : int
        Number of records, which is public.
    mean : float
        The noisy mean, in the value's unit; with few records it may lie outside the bounds.
    noise_variance : float
        Variance of the privacy noise in `mean`, in squared value units.
    lower, upper : float
        Declared bounds of a value.
    """

    site: str
    statistic: str
    round: str
    count: int
    mean: float
    noise_variance: float
    lower: float
    upper: float

    def __post_init__(self) -> None:
        for name in ("site", "statistic", "round"):
            require_name(getattr(self, name))

        for name in ("mean", "noise_variance", "lower", "upper"):
            number = valid_float(name, getattr(self, name))
            require(math.isfinite(number), name, "be finite", number)
            object.__setattr__(self, name, number)

        object.__setattr__(self, "count", valid_int("count", self.count))
        require(1 <= self.count <= MOST_COUNT, "count", f"lie in 1..{MOST_COUNT}", self.count)
        require(self.noise_variance > 0, "noise_variance", "be positive", self.noise_variance)
        require_bounds(self.lower, self.upper)

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Read a release that came from outside.

        Refuse fields that are missing, unknown or out of range.
        """
        # Exactly the fields of a release: what else came would be somebody's guess.
        names = {field.name for field in fields(cls)}
        require(
            set(plain) == names,
            "release",
            f"have the fields {', '.join(sorted(names))}",
            sorted(map(str, plain)),
        )

        return cls(**plain)

    def plain(self) -> dict[str, Any]:
        """Give it as plain data, for the wire."""
        return asdict(self)


class FederatedSite:
    """Releases means of a site's records to everyone, with a ledger.

    A retried round repeats its release, uncharged.

    Parameters
    ----------
    store : Path
        Ledger of the site, a file; its secret lies next to it, unless the environment names one.
    settings : SiteSettings
        Budget of a record. A ledger keeps the settings that it began with.

    Raises
    ------
    ValueError, StoreError
        If the ledger began with other settings or another secret, or is in use.

    Notes
    -----
    **Privacy.** Neighboring sites differ in the values of one record (replace-one); counts, names of statistics and
    rounds are public. All releases of the ledger together are (epsilon, delta)-differentially private for one record,
    against everyone outside of the site. The charge is committed before a release is returned. The noise is keyed by
    secret, site, bounds, release and exact input. A released round gives its release again, whatever its records are
    by then. A person with several
    records, or at several sites, is protected less.

    Examples
    --------
    >>> import tempfile
    >>> settings = SiteSettings(epsilon=1, delta=1e-6, releases=2, name="clinic")
    >>> with FederatedSite(Path(tempfile.mkdtemp()) / "site.db", settings) as site:
    ...     first = site.release("age", "2026-11", total=61_000.0, count=1000, lower=0, upper=120)
    ...     again = site.release("age", "2026-11", total=61_000.0, count=1000, lower=0, upper=120)
    ...     first == again, site.remaining, round(first.noise_variance**0.5, 2)
    (True, 1, 0.34)

    References
    ----------
    Balle and Wang, Improving the Gaussian Mechanism for Differential Privacy, ICML 2018.
    """

    def __init__(self, store: Path, settings: SiteSettings) -> None:
        self.settings = settings

        # The ledger belongs to these settings, and refuses others.
        identity = {SIDE: OF_SITE, **asdict(settings)}
        self._store, secret = open_deployment_store(store, identity, environment=os.environ)
        self._store.keep()
        self.name = str((self._store.settings() or {})["name"])
        self._noise = noise_from_secret(secret, self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the ledger free."""
        self._store.close()

    @property
    def remaining(self) -> int:
        """Public: releases that the budget still pays for."""
        return self.settings.releases - self._store.ledger.rows()

    def release(
        self,
        statistic: str,
        round_name: str,
        *,
        total: float,
        count: int,
        lower: float,
        upper: float,
    ) -> SiteRelease:
        """Release the noisy mean of a round to everyone; private until then.

        Parameters
        ----------
        statistic, round_name : str
            What it is the mean of, and of which round.
        total : float
            Sum of the values, each clipped to the bounds before, in the value's unit. A sum that
            such values cannot have counts as the nearest one that they can, and nan as the middle.
        count : int
            Number of values; public.
        lower, upper : float
            Declared bounds of a value: not read off the data.

        Raises
        ------
        ValueError
            If count or bounds cannot be, the budget is spent, or the round was released with other
            bounds. All of these are public.

        Notes
        -----
        **Privacy.** A released round gives its release again, whatever the records are now. That they have changed, or
        that the sum cannot be, stands in the site's own log (`meanstream.federation`) alone.
        """
        name = _name_of(statistic, round_name)
        lower, upper, total = (
            valid_float("lower", lower),
            valid_float("upper", upper),
            valid_float("total", total),
        )

        count = valid_int("count", count)
        require(1 <= count <= MOST_COUNT, "count", f"lie in 1..{MOST_COUNT}", count)
        grid = FixedPoint(lower, upper)
        slack = rounding_of_sum(grid, count)
        units = total / grid.resolution - count * (lower / grid.resolution)
        exact = np.array([self._possible(units, count * grid.span, slack, name)], np.int64)

        keyed = self._noise.derived(
            "federated", {**asdict(self.settings), "lower": lower, "upper": upper, "name": name}
        )
        counted = np.array([count], np.int64)
        version = keyed.version_of(counted, exact)
        kept = self._kept(name)

        if kept is not None:
            first = kept[1]
            if (first.lower, first.upper) != (lower, upper):
                raise ValueError(
                    f"round must be a new one, got {round_name!r}, which was released with other bounds"
                )

            if kept[0] != int(version.view(np.int64)[0]):
                _log.warning(
                    "the records of a released round have changed: its release is given again",
                    extra={"release": name},
                )

            return first

        require(
            self.remaining > 0,
            "releases",
            f"be at most {self.settings.releases}, which are spent",
            name,
        )

        noise = self.settings.noise(grid.span + slack)
        drawn = noise.sample(
            keyed.bits(NoiseIds(keyed_owner_words([name]), np.array([1]), version), SITE_SUMS.at())
        )
        noisy = int(exact[0]) + int(np.rint(drawn[0]))

        made = SiteRelease(
            site=self.name,
            statistic=statistic,
            round=round_name,
            count=count,
            mean=lower + noisy * grid.resolution / count,
            noise_variance=release_noise_variance(self.settings, count, lower, upper),
            lower=lower,
            upper=upper,
        )
        self._charge(name, int(version.view(np.int64)[0]), made)

        return made

    @staticmethod
    def _possible(units: float, largest: int, slack: int, name: str) -> int:
        """Private: the nearest sum, in grid units, that clipped values can have; no sum is refused."""
        if -slack <= units <= largest + slack:
            return round(units)
        _log.warning(
            "total is no sum of as many values within the bounds: the nearest one counts",
            extra={"release": name},
        )

        if math.isnan(units):
            return largest // 2

        if units > 0:
            return largest
        return 0

    def _charge(self, name: str, version: int, made: SiteRelease) -> None:
        number = len(self._store.agents())
        row = LedgerRows(
            agent=[number],
            release_index=[1],
            input_version=[version],
            time=[time.time()],
            output=[msgspec.json.encode(made.plain())],
        )

        with self._store.transaction():
            self._store.add_agents(number, [name])
            self._store.ledger.charge(row)

    def _kept(self, name: str) -> tuple[int, SiteRelease] | None:
        """Give a release that was charged before, and the version of its input."""
        names = self._store.agents()
        if name not in names:
            return None

        for block in self._store.ledger.verified(names.index(name)):
            return block.rows.input_version[0], SiteRelease.of_plain(
                msgspec.json.decode(block.rows.output[0])
            )

        return None


def rounding_of_sum(grid: FixedPoint, count: int) -> int:
    """Bound, in grid units, by how much more than the span a rounded sum of float64 can change with one value.

    A sum of n floats in any order is off by less than `n**2 * 2**-53` of the largest magnitude; two
    sums and the rounding to the grid count. The bound depends on public numbers only.

    Examples
    --------
    >>> [rounding_of_sum(FixedPoint(0, 1), count) for count in (10, 1_000_000, 10_000_000)]
    [2, 467, 46568]
    """
    largest = max(abs(grid.lower), abs(grid.upper), grid.upper - grid.lower) / grid.resolution
    return 1 + math.ceil(4.0 * (count + 8.0) ** 2 * 2.0**-53 * largest)


def release_noise_variance(settings: SiteSettings, count: int, lower: float, upper: float) -> float:
    """Give the variance of the noise in a released mean, from public numbers alone."""
    grid = FixedPoint(lower, upper)
    noise = settings.noise(grid.span + rounding_of_sum(grid, count))
    return float(noise.variance * grid.resolution**2 / count**2)


def _name_of(statistic: str, round_name: str) -> str:
    """Name a release by its statistic and its round; no two pairs have one name."""
    require_name(statistic)
    require_name(round_name)
    require("@" not in statistic, "statistic", "be without @", statistic)
    return f"{statistic}@{round_name}"
