"""`meanstream audit store` of a federated site: public numbers, and draws from the key."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from meanstream.lab.audits.audit_rows import (
    NOT_MADE_AGAIN,
    decoded_blocks,
    fault_of_rejects,
    found_secret,
)
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
from meanstream.operators.records import Ints
from meanstream.operators.rings import ring_module
from meanstream.operators.validation import require
from meanstream.streaming.store.secret_source import noise_from_secret
from meanstream.streaming.store.state_store import Store

_FARTHEST = 1000.0
"""Deviations of noise: it is drawn by inversion of 128 bits, and none lies farther out."""
_MOST_SUMS = 1 << 20
"""Whole numbers that one mean in float64 may stand for."""
_CLOSE = 1e-9


class SiteRow(NamedTuple):
    """Private, of a ledger: a release, the name that was charged, and the digest of its input."""

    name: str
    release: Any
    version: int


@dataclass(frozen=True)
class SiteLaws:
    """The declared law of each noise, made once for each sensitivity.

    `settings` is a `SiteSettings`.
    """

    settings: Any
    _laws: dict[int, FreshNoise] = field(default_factory=dict)

    def of(self, release: Any) -> FreshNoise:
        """Give the law of the noise in a release's sum, in grid units."""
        sites = ring_module("integrations.federated_site")
        grid = FixedPoint(release.lower, release.upper)
        sensitivity = grid.span + sites.rounding_of_sum(grid, release.count)
        if sensitivity not in self._laws:
            self._laws[sensitivity] = self.settings.noise(sensitivity)

        return self._laws[sensitivity]

    def variance(self, release: Any) -> float:
        """Give the variance that a release must declare, in squared value units."""
        step = FixedPoint(release.lower, release.upper).resolution / release.count
        return float(self.of(release).variance * step**2)


@dataclass(frozen=True)
class SiteLedger:
    """A site's releases in their order, and how many rows are none that the settings allow."""

    site: str
    rows: list[SiteRow]
    wrong: Counter[str]
    laws: SiteLaws


def audit_site_rows(store: Path, saved: Mapping[str, Any]) -> tuple[Iterator[AuditRow], list[str]]:
    """Give what the ledger of a federated site proves, and what each draw shows.

    Draws are made again where the secret of the site is found.
    """
    sites = ring_module("integrations.federated_site")
    settings = sites.SiteSettings(
        **{name: saved[name] for name in ("epsilon", "delta", "releases", "name")}
    )

    secret = found_secret(store)
    noise = None if secret is None else noise_from_secret(secret, str(saved["name"]))

    with closing(Store.read(store)) as opened:
        ledger = read_site_ledger(opened, settings)

    left = max(settings.releases - len(ledger.rows), 0)
    notes = [
        f"{len(ledger.rows):,} releases of {ledger.site}, {left:,} of {settings.releases:,} left"
    ]
    if noise is None:
        notes.append(NOT_MADE_AGAIN)

    return _rows(ledger, settings, noise), notes


def read_site_ledger(store: Store, settings: Any) -> SiteLedger:
    """Read all rows of a site's ledger; count those that the settings do not allow."""
    sites = ring_module("integrations.federated_site")
    names = store.agents()
    ledger = SiteLedger(str(settings.name), [], Counter(), SiteLaws(settings))

    def decode(output: bytes) -> Any:
        return sites.SiteRelease.of_plain(msgspec.json.decode(output))

    for block, said in decoded_blocks(store, decode):
        for number, version, release in zip(
            block.rows.agent, block.rows.input_version, said, strict=True
        ):
            row = SiteRow(names[number], release, version)
            ledger.rows.append(row)

            if reason := _wrong_word(row, ledger):
                ledger.wrong[reason] += 1

    ledger.wrong["second_release"] += len(ledger.rows) - len({row.name for row in ledger.rows})
    ledger.wrong["over_budget"] += max(len(ledger.rows) - settings.releases, 0)

    return ledger


def _wrong_word(row: SiteRow, ledger: SiteLedger) -> str | None:
    """Say why a release is none of its site, by public numbers alone."""
    release = row.release
    name = f"{release.statistic}@{release.round}"
    if (release.site, name) != (ledger.site, row.name):
        return "wrong_id"

    promised = ledger.laws.variance(release)
    if abs(release.noise_variance / promised - 1.0) > _CLOSE:
        return "wrong_variance"
    if not len(_noised_sums(release)):
        return "impossible_mean"

    reach = _FARTHEST * math.sqrt(promised)
    if not release.lower - reach <= release.mean <= release.upper + reach:
        return "impossible_total"

    return None


def _noised_sums(release: Any) -> Ints:
    """Give the whole numbers of the grid whose mean, in float64, is that of a release.

    Raises
    ------
    ValueError
        If float64 leaves too many of them, as of many records far from 0.
    """
    grid = FixedPoint(release.lower, release.upper)
    step = grid.resolution / release.count
    largest = max(abs(release.mean), abs(release.lower))
    reach = 2 + math.ceil(2 * math.ulp(largest) / step)
    rule = f"be an audit's, at most {_MOST_SUMS:,} sums of one released mean"
    require(2 * reach < _MOST_SUMS, "store", rule, 2 * reach + 1)

    nearest = round((release.mean - release.lower) / grid.resolution * release.count)
    sums = np.arange(nearest - reach, nearest + reach + 1)
    same: Ints = sums[release.lower + sums * grid.resolution / release.count == release.mean]

    return same


def _rows(ledger: SiteLedger, settings: Any, noise: KeyedNoise | None) -> Iterator[AuditRow]:
    claimed = {"claimed": settings.epsilon, "delta": settings.delta}
    faults = (fault_of_rejects(ledger.wrong), _fault_of_law(ledger))
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
    spent = spent_by_site(ledger)
    yield AuditRow(
        name="ledger.draws",
        **claimed,
        proved=spent,
        ceiling=spent,
        method=f"{draws.method}; proved is the spend of a record that is in all releases",
        assumption=KEYED_ASSUMPTION,
        fault=draws.fault(),
    )


def _fault_of_law(ledger: SiteLedger) -> str | None:
    """Compare draws with their law where public bounds of the records leave enough of it to see."""
    draws: dict[NoiseDistribution, list[tuple[float, float]]] = {}
    for row in ledger.rows:
        noised = _noised_sums(row.release)
        if not len(noised):
            continue

        # The exact sum lies between 0 and the span of all records: taken to be in the middle.
        law = ledger.laws.of(row.release)
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
        law = ledger.laws.of(release)
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
    """Take the noise off a sum; None where the ledger has no digest of what is left."""
    exact = _noised_sums(row.release) - added
    count = np.full(len(exact), row.release.count, np.int64)
    fits = np.flatnonzero(keyed.version_of(count, exact).view(np.int64) == row.version)

    if len(fits):
        return int(exact[fits[0]])
    return None


def _is_possible(exact: int, release: Any) -> bool:
    """Say whether records within the bounds add up to a sum, but for the rounding of floats."""
    sites = ring_module("integrations.federated_site")
    grid = FixedPoint(release.lower, release.upper)
    slack = sites.rounding_of_sum(grid, release.count)
    return bool(-slack <= exact <= release.count * grid.span + slack)


def spent_by_site(ledger: SiteLedger) -> float:
    """Give the exact loss of a record that is in all releases so far."""
    pure = 0.0
    squared_mu = 0.0
    for row in ledger.rows:
        law = ledger.laws.of(row.release)
        span = FixedPoint(row.release.lower, row.release.upper).span

        if isinstance(law, GaussianNoise):
            squared_mu += (span / law.stddev) ** 2
        else:
            pure += law.epsilon if isinstance(law, StaircaseNoise) else span / law.scale

    gaussian = (
        group_epsilon(math.sqrt(squared_mu), ledger.laws.settings.delta) if squared_mu else 0.0
    )

    return max(pure, gaussian)
