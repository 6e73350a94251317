"""NVIDIA FLARE: statistics that are charged releases, and a filter that lets nothing else out of a site."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.statistics_spec import DataType, Feature, Statistics
from nvflare.app_common.app_constant import StatisticsConstants as StC
from nvflare.fuel.utils import fobs

from meanstream.integrations.federated_answer import read_site_releases
from meanstream.integrations.federated_site import (
    FederatedSite,
    SiteRelease,
    SiteSettings,
    release_noise_variance,
)
from meanstream.operators.validation import require
from meanstream.streaming.store.state_store import Store

DATASET = "records"
SQUARED = " squared"
DIGITS = 4
"""Digits after the point that FLARE's executor leaves of a statistic."""
NEVER_PRIVATE = (StC.STATS_COUNT, StC.STATS_FAILURE_COUNT)


def ledger_of_site(folder: str, site: str) -> Path:
    """Give the path of a site's ledger."""
    require("/" not in site and site not in ("", ".", ".."), "site", "be a name of one part", site)
    return Path(folder) / f"{site}.db"


class ReleasedStatistics(Statistics):  # type: ignore[misc]
    """A generator of statistics.

    Count, sum, mean, standard deviation and variance, from releases alone.

    Count is public. Sum and mean come from one release of a feature, standard deviation and
    variance from one more, of squared distances from the middle of the bounds. A job that is run
    again repeats its releases, uncharged.

    Parameters
    ----------
    folder : str
        Folder of the site's ledger, `SITE.db`.
    round_name : str
        Round of the releases: another one is a new release.
    epsilon, delta, releases
        As in `SiteSettings`.
    bounds : mapping of str to (lower, upper)
        Declared bounds of each feature.

    Notes
    -----
    **Privacy.** No other statistic is implemented, so FLARE gets none. See `FederatedSite`.
    """

    def __init__(
        self,
        folder: str,
        round_name: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        releases: int,
        bounds: Mapping[str, Sequence[float]],
    ) -> None:
        super().__init__()
        self.folder = folder
        self.round_name = round_name
        self.bounds = dict(bounds)
        self.epsilon = epsilon
        self.delta = delta
        self.releases = releases
        self._site = ""

    @abstractmethod
    def values(self, feature: str) -> np.ndarray[Any, Any]:
        """Private: give the values of a feature at this site, without missing ones."""

    def initialize(self, fl_ctx: FLContext) -> None:
        """Learn the name of the site."""
        self._site = str(fl_ctx.get_identity_name())

    @property
    def site(self) -> str:
        """Name of the site."""
        return self._site

    def features(self) -> dict[str, list[Feature]]:
        """Give the features that have bounds."""
        return {DATASET: [Feature(name, DataType.FLOAT) for name in self.bounds]}

    def count(self, dataset_name: str, feature_name: str) -> int:  # noqa: ARG002 - FLARE's interface
        """Public: number of values."""
        return len(self.values(feature_name))

    def sum(self, dataset_name: str, feature_name: str) -> float:  # noqa: ARG002
        """Public: the released mean times the count."""
        one = self._released(feature_name)
        return one.mean * one.count

    def mean(self, dataset_name: str, feature_name: str) -> float:  # noqa: ARG002
        """Public: the released mean."""
        return self._released(feature_name).mean

    def stddev(self, dataset_name: str, feature_name: str) -> float:
        """Public: of this site, from its two releases."""
        mean = self.mean(dataset_name, feature_name)
        count = self.count(dataset_name, feature_name)
        return math.sqrt(self._squares(feature_name, mean) * count / max(count - 1, 1))

    def variance_with_mean(
        self,
        dataset_name: str,
        feature_name: str,
        global_mean: float,
        global_count: float,
    ) -> float:
        """Public: this site's part of the variance of all sites, from its two releases."""
        count = self.count(dataset_name, feature_name)
        return self._squares(feature_name, global_mean) * count / max(global_count - 1, 1)

    def _squares(self, feature: str, about: float) -> float:
        """Give the mean squared distance from a number, as the two releases show it."""
        lower, upper = map(float, self.bounds[feature])
        middle = (lower + upper) / 2
        mean = self._released(feature).mean
        squares = self._released(feature, squared=True).mean

        return max(squares - 2 * (about - middle) * (mean - middle) + (about - middle) ** 2, 0.0)

    def _released(self, feature: str, *, squared: bool = False) -> SiteRelease:
        lower, upper = map(float, self.bounds[feature])
        values = np.clip(np.asarray(self.values(feature), np.float64), lower, upper)
        name = feature

        if squared:
            name, values = feature + SQUARED, np.square(values - (lower + upper) / 2)
            lower, upper = 0.0, ((upper - lower) / 2) ** 2

        settings = SiteSettings(
            epsilon=self.epsilon, delta=self.delta, releases=self.releases, name=self._site
        )
        with FederatedSite(ledger_of_site(self.folder, self._site), settings) as site:
            total = float(np.minimum(values, upper).sum())
            count = len(values)
            return site.release(
                name, self.round_name, total=total, count=count, lower=lower, upper=upper
            )


class ReleasedOnly(DXOFilter):  # type: ignore[misc]
    """A filter of results.

    Counts pass, and of sums and means those that the site's ledger has charged.

    It guards a site against generators that give out raw statistics: whatever is no release is left
    out.

    Parameters
    ----------
    folder : str
        Folder of the site's ledger, `SITE.db`.

    Notes
    -----
    **Privacy.** A raw mean that is equal to a release in all its digits passes, and shows what the release shows.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(
            supported_data_kinds=[DataKind.STATISTICS], data_kinds_to_filter=[DataKind.STATISTICS]
        )
        self.folder = folder

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO:  # noqa: ARG002
        """Leave out what is no release."""
        charged = charged_site_releases(
            ledger_of_site(self.folder, str(fl_ctx.get_identity_name()))
        )
        task = dxo.data[StC.STATISTICS_TASK_KEY]
        found = passed_statistics(fobs.loads(dxo.data[task]), charged)

        return DXO(data_kind=DataKind.STATISTICS, data={**dxo.data, task: fobs.dumps(found)})


def charged_site_releases(store: Path) -> list[SiteRelease]:
    """Read the releases that a ledger has charged; none if there is no ledger."""
    if not store.is_file():
        return []

    with closing(Store.read(store)) as opened:
        return [
            SiteRelease.of_plain(msgspec.json.decode(output))
            for block in opened.ledger.verified()
            for output in block.rows.output
        ]


def passed_statistics(found: Mapping[str, Any], charged: Sequence[SiteRelease]) -> dict[str, Any]:
    """Give counts, and the sums and means that were charged, of `{statistic: {dataset: {feature: value}}}`."""
    means = {
        (one.statistic, round(round(one.mean * one.count, DIGITS) / one.count, DIGITS))
        for one in charged
    }
    sums = {(one.statistic, round(one.mean * one.count, DIGITS)) for one in charged}
    allowed = {StC.STATS_MEAN: means, StC.STATS_SUM: sums}
    passed: dict[str, Any] = {}

    for statistic, by_dataset in found.items():
        passed[statistic] = {
            dataset: {
                feature: value
                for feature, value in by_feature.items()
                if statistic in NEVER_PRIVATE or (feature, value) in allowed.get(statistic, ())
            }
            for dataset, by_feature in by_dataset.items()
        }

    return passed


def read_nvflare_releases(
    result: Mapping[str, Any],
    *,
    feature: str,
    round_name: str,
    settings: SiteSettings,
    lower: float,
    upper: float,
) -> tuple[list[SiteRelease], Counter[str]]:
    """Read all sites' releases of a feature from the JSON that the server writes.

    Count the impossible ones.
    """
    counts = result[feature][StC.STATS_COUNT]
    means = result[feature][StC.STATS_MEAN]
    received = [
        {
            "site": site,
            "statistic": feature,
            "round": round_name,
            "count": counts[site][DATASET],
            "mean": float(means[site][DATASET]),
            "noise_variance": release_noise_variance(settings, counts[site][DATASET], lower, upper),
            "lower": lower,
            "upper": upper,
        }
        for site in sorted(means)
        if site != "Global" and DATASET in means[site]
    ]

    return read_site_releases(
        received, statistic=feature, round_name=round_name, lower=lower, upper=upper
    )
