"""`meanstream audit store` of a federated site: public numbers, and draws from the key."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from meanstream.lab.audits.audit_rows import fault_of_rejects, opened_secret
from meanstream.lab.evidence.audit_record import AuditRow
from meanstream.lab.evidence.noise_draws import NoiseDraws
from meanstream.lab.evidence.one_run import ALARM_ERROR
from meanstream.lab.evidence.repeated_draws import KEYED_ASSUMPTION, RepeatedDraws
from meanstream.lab.evidence.single_draws import LEAST_DRAWS, DeclaredLaw, SingleDraws
from meanstream.operators.counters.registry import FreshNoise
from meanstream.operators.noise.distributions import (
    GaussianNoise,
    NoiseDistribution,
    StaircaseNoise,
)
from meanstream.operators.noise.draw_owners import SITE_SUMS
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.group_privacy import group_epsilon
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds, keyed_owner_words
from meanstream.operators.rings import ring_module
from meanstream.streaming.store.secret_source import noise_from_secret
from meanstream.streaming.store.state_store import Store

_FARTHEST = 14.0
"""Deviations of noise: no Gaussian draw is larger."""
_NEAREST = range(-3, 4)
"""Whole numbers around the one that a mean in float64 stands for."""
_CLOSE = 1e-9


class SiteRow(NamedTuple):
    """Private, of a ledger: a release, the name that was charged, and the digest of its input."""

    name: str
    release: Any
    version: int


@dataclass(frozen=True)
class SiteLedger:
    """A site's releases in their order, and how many rows are none that the settings allow."""

    site: str
    rows: list[SiteRow]
    wrong: Counter[str]


def audit_site_rows(
    store: Path, saved: Mapping[str, Any], *, with_secret: bool
) -> tuple[Iterator[AuditRow], list[str]]:
    """Give what the ledger of a federated site proves, and with the secret what each draw shows."""
    sites = ring_module("integrations.federated_site")
    settings = sites.SiteSettings(
        **{name: saved[name] for name in ("epsilon", "delta", "releases", "name")}
    )

    noise = None
    if with_secret:
        noise = noise_from_secret(opened_secret(store), str(saved["name"]))

    with closing(Store.read(store)) as opened:
        ledger = read_site_ledger(opened, settings)

    return _rows(ledger, settings, noise), _notes(ledger, settings, noise is not None)


def read_site_ledger(store: Store, settings: Any) -> SiteLedger:
    """Read all rows of a site's ledger; count those that the settings do not allow."""
    sites = ring_module("integrations.federated_site")
    names = store.agents()
    ledger = SiteLedger(str(settings.name), [], Counter())

    for block in store.ledger.verified():
        for number, version, output in zip(
            block.rows.agent, block.rows.input_version, block.rows.output, strict=True
        ):
            release = sites.SiteRelease.of_plain(msgspec.json.decode(output))
            row = SiteRow(names[number], release, version)
            ledger.rows.append(row)

            if reason := _wrong_word(row, ledger.site, settings):
                ledger.wrong[reason] += 1

    ledger.wrong["second_release"] += len(ledger.rows) - len({row.name for row in ledger.rows})
    ledger.wrong["over_budget"] += max(len(ledger.rows) - settings.releases, 0)

    return ledger


def _wrong_word(row: SiteRow, site: str, settings: Any) -> str | None:
    """Say why a release is none of its site, by public numbers alone."""
    sites = ring_module("integrations.federated_site")
    release = row.release
    bounds = (release.lower, release.upper)
    if (release.site, f"{release.statistic}@{release.round}") != (site, row.name):
        return "wrong_id"

    promised = sites.release_noise_variance(settings, release.count, *bounds)
    if abs(release.noise_variance / promised - 1.0) > _CLOSE:
        return "wrong_variance"
    if not _noised_sums(release):
        return "impossible_mean"

    # A whole sum is moved, not a mean: with few records a mean may lie far outside the bounds.
    reach = _FARTHEST * math.sqrt(promised)
    gaussian = isinstance(_noise_of(release, settings), GaussianNoise)
    if gaussian and not release.lower - reach <= release.mean <= release.upper + reach:
        return "impossible_total"

    return None


def _noise_of(release: Any, settings: Any) -> FreshNoise:
    """Give the declared law of the noise in a release's sum, in grid units."""
    sites = ring_module("integrations.federated_site")
    grid = FixedPoint(release.lower, release.upper)
    noise: FreshNoise = settings.noise(grid.span + sites.rounding_of_sum(grid, release.count))

    return noise


def _noised_sums(release: Any) -> list[int]:
    """Give the whole numbers of the grid whose mean, in float64, is that of a release."""
    grid = FixedPoint(release.lower, release.upper)
    nearest = round((release.mean - release.lower) / grid.resolution * release.count)

    return [
        nearest + step
        for step in _NEAREST
        if release.lower + (nearest + step) * grid.resolution / release.count == release.mean
    ]


def _rows(ledger: SiteLedger, settings: Any, noise: KeyedNoise | None) -> Iterator[AuditRow]:
    claimed = {"claimed": settings.epsilon, "delta": settings.delta}
    faults = (fault_of_rejects(ledger.wrong), _fault_of_law(ledger, settings))
    yield AuditRow(
        name="ledger",
        **claimed,
        proved=0.0,
        ceiling=0.0,
        method=f"{len(ledger.rows):,} releases compared with the settings, and their noise with "
        f"its law from {LEAST_DRAWS:,} releases of one sensitivity",
        assumption="samples lie within the bounds",
        fault="; ".join(filter(None, faults)) or None,
    )

    if noise is None:
        return

    draws = repeated_site_draws(ledger, settings, noise)
    spent = spent_by_site(ledger, settings)
    yield AuditRow(
        name="ledger.draws",
        **claimed,
        proved=spent,
        ceiling=spent,
        method=f"{draws.method}; proved is the spend of a record that is in all releases",
        assumption=KEYED_ASSUMPTION,
        fault=draws.fault(),
    )


def _fault_of_law(ledger: SiteLedger, settings: Any) -> str | None:
    """Compare draws with their law where public bounds of the records leave enough of it to see."""
    draws: dict[NoiseDistribution, list[tuple[float, float]]] = {}
    for row in ledger.rows:
        noised = _noised_sums(row.release)
        if not noised:
            continue

        # The exact sum lies between 0 and the span of all records: taken to be in the middle.
        law = _noise_of(row.release, settings)
        half = 0.5 * row.release.count * FixedPoint(row.release.lower, row.release.upper).span
        stddev = math.sqrt(law.variance)
        seen = (noised[len(noised) // 2] - half) / stddev
        draws.setdefault(law, []).append((seen, (half + len(noised)) / stddev))

    for declared, of_law in draws.items():
        single = SingleDraws(DeclaredLaw(declared), "releases")
        seen, bound = np.array(of_law).T
        single.take(NoiseDraws(seen, seen, bound, np.ones(len(seen), np.bool_), bound))
        if fault := single.fault(ALARM_ERROR / len(draws)):
            return fault

    return None


def repeated_site_draws(ledger: SiteLedger, settings: Any, noise: KeyedNoise) -> RepeatedDraws:
    """Make the draw of each release again, and see whether the release is a sum with it."""
    draws = RepeatedDraws()
    words = []
    for row in ledger.rows:
        release = row.release
        bounds = {"lower": release.lower, "upper": release.upper}
        keyed = noise.derived("federated", {**asdict(settings), **bounds, "name": row.name})

        version = np.array([row.version], np.int64).view(np.uint64)
        ids = NoiseIds(keyed_owner_words([row.name]), np.array([1]), version)
        bits = keyed.bits(ids, SITE_SUMS.at())
        law = _noise_of(release, settings)
        drawn = law.sample(bits)
        words.append(bits)

        exact = _exact_sum(row, keyed, int(np.rint(drawn[0])))
        draws.take(law, bits, drawn, np.array([exact is not None]))
        draws.impossible += int(exact is not None and not _is_possible(exact, release))

    # Each release has a key of its own, so no two may have the same bits.
    if words:
        draws.shared += len(words) - len(np.unique(np.concatenate(words), axis=0))

    return draws


def _exact_sum(row: SiteRow, keyed: KeyedNoise, added: int) -> int | None:
    """Take the noise off a sum; None where the ledger has another digest than that of what is left."""
    count = np.array([row.release.count], np.int64)
    for noised in _noised_sums(row.release):
        exact = noised - added
        digest = keyed.version_of(count, np.array([exact], np.int64)).view(np.int64)
        if int(digest[0]) == row.version:
            return exact

    return None


def _is_possible(exact: int, release: Any) -> bool:
    """Say whether records within the bounds add up to a sum, but for the rounding of floats."""
    sites = ring_module("integrations.federated_site")
    grid = FixedPoint(release.lower, release.upper)
    slack = sites.rounding_of_sum(grid, release.count)
    return bool(-slack <= exact <= release.count * grid.span + slack)


def spent_by_site(ledger: SiteLedger, settings: Any) -> float:
    """Give the exact loss of a record that is in all releases so far."""
    pure = 0.0
    squared_mu = 0.0
    for row in ledger.rows:
        law = _noise_of(row.release, settings)
        span = FixedPoint(row.release.lower, row.release.upper).span

        if isinstance(law, GaussianNoise):
            squared_mu += (span / law.stddev) ** 2
        else:
            pure += law.epsilon if isinstance(law, StaircaseNoise) else span / law.scale

    gaussian = group_epsilon(math.sqrt(squared_mu), settings.delta) if squared_mu else 0.0

    return max(pure, gaussian)


def _notes(ledger: SiteLedger, settings: Any, with_secret: bool) -> list[str]:
    left = max(settings.releases - len(ledger.rows), 0)
    spent = (
        f"{len(ledger.rows):,} releases of {ledger.site}, {left:,} of {settings.releases:,} left"
    )
    hidden = "records hide the noise of few releases: --with-secret makes each draw again"

    return [spent, *([] if with_secret else [hidden])]
