"""Hospitals under NVIDIA FLARE.

Each one's mean age, from what all release (pip install 'meanstream[nvflare]').

Run: python federated_nvflare.py FOLDER
"""

import json
import sys
from pathlib import Path

import numpy as np
from nvflare.job_config.defs import FilterType
from nvflare.job_config.stats_job import StatsJob

from meanstream.federated import SiteSettings, better_mean
from meanstream.integrations.nvflare_statistics import (
    ReleasedOnly,
    ReleasedStatistics,
    read_nvflare_releases,
)

AGE, BOUNDS, ROUND, STDDEV = "age", (0.0, 110.0), "2026-11", 18.0
BUDGET = {"epsilon": 1.0, "delta": 1e-6, "releases": 1}
SITES = [f"site-{number}" for number in range(1, 5)]


def ages(site):
    """Private: made up here, a table of the hospital elsewhere."""
    draw = np.random.default_rng(int(site.removeprefix("site-")))
    return (
        55
        + 3 * draw.standard_normal()
        + STDDEV * draw.standard_normal(int(draw.integers(100, 400)))
    )


class Ages(ReleasedStatistics):
    """What FLARE may ask of a hospital."""

    def values(self, feature):
        """Private: ages of this hospital's patients."""
        return {AGE: ages}[feature](self.site)


def federated_statistics(folder):
    """Run FLARE's statistics workflow in its simulator; give what its server writes."""
    generator = Ages(str(folder), ROUND, **BUDGET, bounds={AGE: BOUNDS})
    job = StatsJob("ages", {"count": {}, "sum": {}, "mean": {}}, generator, output_path="ages.json")
    job.setup_clients(SITES)
    for site in SITES:
        job.to(
            ReleasedOnly(str(folder)), site, filter_type=FilterType.TASK_RESULT, tasks=["fed_stats"]
        )
    job.simulator_run(str(folder / "flare"), log_config="concise")
    (written,) = (folder / "flare").rglob("ages.json")
    return json.loads(written.read_text())


def main(folder):
    """Release once, and answer each hospital at home."""
    result = federated_statistics(folder)
    settings = SiteSettings(**BUDGET)
    releases, _ = read_nvflare_releases(
        result, feature=AGE, round_name=ROUND, settings=settings, lower=BOUNDS[0], upper=BOUNDS[1]
    )
    print(f"{len(releases)} releases")
    for site in SITES:
        own = np.clip(ages(site), *BOUNDS)
        found = better_mean(releases, mean=float(own.mean()), count=len(own), stddev=STDDEV)
        print(
            f"{site}: {found.value:.1f} [{found.lower:.1f}, {found.upper:.1f}] of {len(own)} patients"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
