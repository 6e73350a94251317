"""A site's own better mean, from what all sites released and from its own records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanstream.integrations.federated_site import SiteRelease, SiteSettings, release_noise_variance
from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.collaboration.variance.pooled_variance import pooled_variance
from meanstream.operators.records import OwnMeans, ReleaseColumns
from meanstream.operators.validation import (
    require,
    require_between,
    require_positive,
    valid_float,
    valid_int,
)

FARTHEST = 14.0
"""Standard deviations of noise: no draw is larger (`GaussianNoise`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteEstimate:
    """Private: a site's own answer, for the site alone.

    Attributes
    ----------
    value, lower, upper : float
        The estimate and its interval, in the value's unit.
    alone_lower, alone_upper : float
        The interval that the site's own records give.
    level : float
        Nominal coverage.
    sites : int
        Sites whose releases were used.
    """

    value: float
    lower: float
    upper: float
    alone_lower: float
    alone_upper: float
    level: float
    sites: int


def read_site_releases(
    received: Iterable[Mapping[str, Any]],
    *,
    statistic: str,
    round_name: str,
    lower: float,
    upper: float,
    settings: SiteSettings | None = None,
) -> tuple[list[SiteRelease], Counter[str]]:
    """Read releases that came from outside.

    Keep the possible ones of a round, and count the others by reason.

    Public in, public out. No release, however forged, stops the reader. Where all sites agree on
    `settings`, a release that declares less noise than they give is left out, too.

    Examples
    --------
    >>> good = dict(site="a", statistic="age", round="1", count=9, mean=3.0, noise_variance=1.0, lower=0, upper=5)
    >>> bad = [good, good | {"mean": 1e9, "site": "b"}, good | {"mean": float("nan")}, {"site": "c"}, 7]
    >>> found, rejected = read_site_releases([good, *bad], statistic="age", round_name="1", lower=0, upper=5)
    >>> [one.site for one in found], dict(rejected)
    (['a'], {'second_release': 1, 'impossible_mean': 1, 'malformed': 3})
    """
    found: dict[str, SiteRelease] = {}
    rejected: Counter[str] = Counter()
    for plain in received:
        try:
            one = SiteRelease.of_plain(plain)
        except (ValueError, TypeError):
            rejected["malformed"] += 1
            continue

        reason = _fault(one, statistic, round_name, lower, upper)
        if reason is None and settings is not None:
            least = release_noise_variance(settings, one.count, lower, upper)
            reason = "too_precise" if one.noise_variance < least * (1 - 1e-9) else None

        if reason is None and one.site in found:
            reason = "second_release"

        if reason is None:
            found[one.site] = one
        else:
            rejected[reason] += 1

    return list(found.values()), rejected


def _fault(
    one: SiteRelease, statistic: str, round_name: str, lower: float, upper: float
) -> str | None:
    if (one.statistic, one.round) != (statistic, round_name):
        return "other_round"
    if (one.lower, one.upper) != (lower, upper):
        return "other_bounds"

    reach = FARTHEST * one.noise_variance**0.5

    if lower - reach <= one.mean <= upper + reach:
        return None
    return "impossible_mean"


def better_mean(
    releases: Sequence[SiteRelease], *, mean: float, count: int, stddev: float, level: float = 0.95
) -> SiteEstimate:
    """Estimate a site's long-run mean from its own records and from all sites' releases, for the site alone.

    Parameters
    ----------
    releases : sequence of SiteRelease
        Those of one statistic and round, that of the site among them.
    mean, count : float, int
        Exact mean and number of the site's own records; they stay at the site.
    stddev : float
        Declared standard deviation of one record around its site's mean, in the value's unit; the
        same for all sites.
    level : float
        Coverage of the interval.

    Raises
    ------
    ValueError
        If there is no release, or they have several bounds.

    Notes
    -----
    **Privacy.** The fit reads releases only, and spends nothing. The raw mean enters the site's own answer alone.

    Examples
    --------
    >>> rows = [dict(site=f"s{i}", statistic="x", round="1", count=50, mean=0.5 + 0.01 * (i % 3), noise_variance=1e-4,
    ...         lower=0, upper=1) for i in range(12)]
    >>> releases, _ = read_site_releases(rows, statistic="x", round_name="1", lower=0, upper=1)
    >>> own = better_mean(releases, mean=0.52, count=5, stddev=0.25)
    >>> own.value < 0.6, own.upper - own.lower < own.alone_upper - own.alone_lower
    (True, True)
    """
    require(len(releases) > 0, "releases", "be one or more", len(releases))
    bounds = {(one.lower, one.upper) for one in releases}
    require(len(bounds) == 1, "releases", "have one pair of bounds", len(bounds))
    stddev, mean, count = (
        valid_float("stddev", stddev),
        valid_float("mean", mean),
        valid_int("count", count),
    )
    require_positive(stddev=stddev, count=count)
    require_between(0, 1, level=level)

    ((lower, upper),) = bounds
    n = len(releases)
    everyone = ReleaseColumns(
        agent=np.arange(n),
        index=np.ones(n, np.int64),
        count=np.array([one.count for one in releases], np.int64),
        total=np.zeros(n, np.int64),
        mean=np.array([one.mean for one in releases]),
        noise_variance=np.array([one.noise_variance for one in releases]),
    )

    variance = stddev**2
    fitted = make_collaboration("learned_prior", lower=lower, upper=upper).fit(
        everyone, pooled_variance(everyone, variance)
    )
    alone = make_collaboration("none", lower=lower, upper=upper).fit(
        everyone, pooled_variance(everyone, variance)
    )

    own = OwnMeans(
        agent=np.array([0]),
        count=np.array([count]),
        mean=np.array([mean]),
        variance=np.array([variance / count]),
    )
    answer = fitted.estimate(own, level=level)
    by_itself = alone.estimate(own, level=level)
    ends = np.clip(
        [answer.lower[0], answer.upper[0], by_itself.lower[0], by_itself.upper[0]], lower, upper
    )

    return SiteEstimate(
        value=float(np.clip(answer.value[0], lower, upper)),
        lower=float(ends[0]),
        upper=float(ends[1]),
        alone_lower=float(ends[2]),
        alone_upper=float(ends[3]),
        level=level,
        sites=n,
    )
