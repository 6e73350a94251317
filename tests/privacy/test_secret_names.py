"""Secret names and sizes: the threshold exactly, the sums exactly, and worlds that differ in a row.

The known-bad twins: a threshold without noise, one at half of the sensitivity, and noise of sums at
half of it. The same checks catch each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import beta

from meanstream.operators.noise.distributions import LaplaceNoise
from meanstream.operators.records import Floats
from meanstream.pipelines.frames.secret_groups import noisy_sums, secret_means
from meanstream.pipelines.frames.secret_groups.noisy_sums import ExactSums, SecretReleases
from meanstream.pipelines.frames.secret_groups.secret_plan import (
    ONE_ROW,
    SQUARES_SHARE,
    SecretPlan,
    least_rare_noise,
    noise_tail,
)
from meanstream.pipelines.frames.values.whole_persons import PersonLimits
from tests.pipelines.frames.test_secret_groups import rows, secret

PLANS = {
    "row": SecretPlan(lower=0, upper=1, epsilon=1.0, delta=1e-6),
    "large delta": SecretPlan(lower=-30, upper=120, epsilon=0.5, delta=0.01),
    "small delta": SecretPlan(lower=0, upper=1, epsilon=2.0, delta=1e-10),
    "person": SecretPlan(
        lower=0, upper=1, epsilon=3.0, delta=1e-6, limits=PersonLimits(max_groups=3, max_rows=2)
    ),
}
Law = Callable[[int], float]
"""Probability that the name of a group with some rows comes out."""


def excess(comes_out: Law, epsilon: float, most: int = 200, step: int = 1) -> float:
    """Least delta for which the name of a group is (epsilon, delta)-private, over all numbers of rows.

    Neighbors differ by up to `step` rows of one group, in both directions, and the name is either
    in the result or not.
    """
    worst = 0.0
    factor = math.exp(epsilon)
    for count in range(most):
        for other in range(count + 1, count + step + 1):
            p, q = comes_out(count), comes_out(other)
            pairs = ((q, p), (p, q), (1 - p, 1 - q), (1 - q, 1 - p))
            worst = max(worst, *(one - factor * two for one, two in pairs))
    return worst


def law_of(plan: SecretPlan) -> Law:
    """The product's law; a group without rows is never in the result."""
    return lambda count: plan.comes_out(count) if count else 0.0


@cache
def enumerated_tail(scale: float, least: int) -> float:
    """P(two draws >= least), summed over the probabilities of every integer of one draw."""
    noise = LaplaceNoise(scale)
    k = np.arange(-int(20 * scale), int(45 * scale) + 1)
    return float(np.sum(noise.pmf(k) * noise.cdf(k - least)))


@pytest.mark.parametrize("name", PLANS)
def test_a_name_of_one_unit_comes_out_with_probability_delta_at_most(name: str) -> None:
    """By the law of each draw, every integer from -20 to 45 scales: what is beyond is below 1e-16."""
    plan = PLANS[name]
    own = plan.limits.max_rows * plan.grid.span
    single = enumerated_tail(plan.sums_noise.scale, plan.least_total - own)
    assert single * plan.limits.max_groups <= plan.delta * (1 + 1e-9)
    assert single * plan.limits.max_groups >= 0.99 * plan.delta  # and no more rows than needed
    assert plan.comes_out(plan.limits.max_rows) == pytest.approx(single, rel=1e-6)


@pytest.mark.parametrize("q", [Fraction(1, 4), Fraction(3, 4), Fraction(9, 10)])
def test_the_tail_is_that_of_exact_fractions(q: Fraction) -> None:
    scale = -1 / math.log(q)
    peak = (1 - q) / (1 + q)
    far = int(50 * scale)
    pmf = {k: peak * q ** abs(k) for k in range(-far, far + 1)}
    for least in (-3, 0, 1, 5, int(12 * scale)):
        tail = sum(pmf[k] * q ** max(least - k, 0) / (1 + q) for k in pmf if least - k > 0)
        tail += sum(pmf[k] * (1 - q ** (k - least + 1) / (1 + q)) for k in pmf if least - k <= 0)
        assert noise_tail(scale, least) == pytest.approx(float(tail), rel=1e-9)
    number = least_rare_noise(scale, 1e-4)
    assert noise_tail(scale, number) <= 1e-4 < noise_tail(scale, number - 1)


@pytest.mark.parametrize("name", PLANS)
def test_names_are_private_at_every_number_of_rows(name: str) -> None:
    plan = PLANS[name]
    step = plan.limits.max_rows
    each = plan.epsilon / plan.limits.max_groups
    found = excess(law_of(plan), each, step=step)
    assert found <= plan.delta / plan.limits.max_groups


def test_the_same_check_catches_a_threshold_without_noise_and_one_too_low() -> None:
    plan = PLANS["row"]
    bare: Law = lambda count: float(count >= plan.least_rows)  # noqa: E731
    assert excess(bare, plan.epsilon) == 1.0

    low: Law = lambda count: (  # noqa: E731
        noise_tail(plan.sums_noise.scale, plan.least_total - (count + 1) * plan.grid.span)
        if count
        else 0.0
    )
    assert excess(low, plan.epsilon) > 2 * plan.delta

    half = replace_scale(plan, 0.5)
    assert excess(half, plan.epsilon) > 2 * plan.delta


def replace_scale(plan: SecretPlan, factor: float) -> Law:
    """Law of a twin whose noise is too small, with the threshold that belongs to it."""
    scale = factor * plan.sums_noise.scale
    least = plan.grid.span + least_rare_noise(scale, plan.delta)
    return lambda count: noise_tail(scale, least - count * plan.grid.span) if count else 0.0


@pytest.mark.parametrize("name", PLANS)
def test_both_sums_of_all_groups_of_a_unit_cost_their_part_of_epsilon(name: str) -> None:
    """The log-ratio of both sums is largest at a move by W, however it lies between them."""
    plan = PLANS[name]
    span = plan.grid.span
    law = plan.sums_noise
    per_group = plan.limits.max_rows * span
    values = np.unique(np.linspace(0, span, 50).astype(np.int64))
    moved = plan.limits.max_rows * np.stack([values, span - values])
    assert np.all(moved.sum(0) == per_group)

    k = np.unique(np.r_[-3 * span : 3 * span : 997, -2:3])
    sides = [
        np.max(
            np.abs(np.log(law.pmf(k)[:, None] / law.pmf(k[:, None] - side)), dtype=np.float64), 0
        )
        for side in moved
    ]
    spent = plan.limits.max_groups * (sides[0] + sides[1]).max()
    squares = plan.units * span / plan.squares_noise.scale
    assert spent <= plan.epsilon * (1 - SQUARES_SHARE) * (1 + 1e-9)
    assert squares <= plan.epsilon * SQUARES_SHARE * (1 + 1e-9)
    assert spent + squares >= 0.98 * plan.epsilon


@pytest.mark.parametrize("limits", [ONE_ROW, PersonLimits(max_groups=3, max_rows=2)])
def test_a_unit_moves_the_exact_sums_by_no_more_than_the_noise_is_for(limits: PersonLimits) -> None:
    """Sums of the product with and without a person at extreme values, in many shops."""
    plan = SecretPlan(lower=0, upper=10, epsilon=1.0, delta=1e-6, limits=limits)
    made: list[tuple[list[str], ExactSums]] = []

    def keep(samples: Any, plan: SecretPlan) -> ExactSums:
        exact = EXACT(samples, plan)
        made.append((samples.names, exact))
        return exact

    persons = {"person": "customer", "max_groups": limits.max_groups, "max_rows": limits.max_rows}
    rng = np.random.default_rng(2)
    paid = 1e9 * rng.choice([-1.0, 1.0], 40)
    mine = pa.table(
        {
            "shop": [f"s{g:02}" for g in rng.integers(0, 14, 40)],
            "customer": [9_999] * 40,
            "paid": paid,
            "open": [True] * 40,
        }
    )
    mine = mine.slice(0, 1) if limits is ONE_ROW else mine
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noisy_sums, "_exact_sums", keep)
        for frame in (rows(), pa.concat_tables([rows(), mine])):
            secret(frame, **({} if limits is ONE_ROW else persons))

    moved = {"above": 0, "below": 0, "squares": 0}
    (names, before), (others, after) = made
    for name in {*names, *others}:
        for part in moved:
            old = getattr(before, part)[names.index(name)] if name in names else 0
            new = getattr(after, part)[others.index(name)]
            moved[part] += abs(int(new) - int(old))
    assert 0 < moved["above"] + moved["below"] <= plan.units * plan.grid.span
    assert moved["squares"] <= plan.units * plan.grid.span


EXACT = noisy_sums._exact_sums
DRAWN = noisy_sums._drawn
SINGLES = 20_000
FALSE_ALARM = 1e-6


def names_out(count: int, name: str, delta: float = 0.01) -> int:
    """How many of many groups with so many rows each come out of the product."""
    frame = pa.table(
        {"shop": np.repeat(np.arange(SINGLES), count), "paid": np.full(count * SINGLES, 5.0)}
    )
    return len(secret(frame, delta=delta, collaboration="none", name=name))


def proved_delta(epsilon: float, more: int, fewer: int) -> float:
    """Delta that numbers of names prove, at a false-alarm rate of `FALSE_ALARM` (Clopper-Pearson)."""
    upper = beta.ppf(1 - FALSE_ALARM / 2, fewer + 1, SINGLES - fewer)
    lower = beta.ppf(FALSE_ALARM / 2, more, SINGLES - more + 1) if more else 0.0
    return float(lower - math.exp(epsilon) * (upper if fewer else upper * (fewer > 0)))


def test_the_product_brings_out_names_of_one_row_as_often_as_delta_says() -> None:
    """20,000 names of one row at delta .01: between .0065 and .01 but for a chance of 1e-6 a side.

    Five standard errors of a share of .01 are .0035.
    """
    out = names_out(1, "singles") / SINGLES
    assert 0.01 - 0.0035 <= out <= 0.01 + 0.0035
    assert proved_delta(1.0, names_out(1, "singles"), 0) <= 0.01


def test_the_same_count_catches_a_threshold_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one row more, names come out in all places instead of none."""
    plan = SecretPlan(lower=0, upper=10, epsilon=1.0, delta=0.01)
    edge = math.ceil(plan.least_rows)
    honest = names_out(edge, "edge"), names_out(edge - 1, "edge")
    assert proved_delta(1.0, *honest) <= 0.01

    monkeypatch.setattr(noisy_sums, "_drawn", lambda law, bits: np.zeros(len(bits), np.int64))
    twin = names_out(edge, "edge"), names_out(edge - 1, "edge")
    assert twin == (SINGLES, 0)
    assert proved_delta(1.0, *twin) > 0.99


def proved_epsilon(*, factor: float = 1.0) -> float:
    """Epsilon that 20,000 groups prove, half of which have a row more, at the upper bound.

    The event is that the sum above `lower` is no less than it is with the row.
    """
    half = SINGLES // 2
    sizes = np.repeat([30, 31], half)
    frame = pa.table(
        {"shop": np.repeat(np.arange(SINGLES), sizes), "paid": np.full(sizes.sum(), 10.0)}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            noisy_sums,
            "_drawn",
            lambda law, bits: np.rint(factor * DRAWN(law, bits)).astype(np.int64),
        )
        table = secret(frame, groups=[*range(SINGLES)], delta=0, collaboration="none").releases

    span = SecretPlan(lower=0, upper=10, epsilon=1.0, declared=True).grid.span
    is_high = np.asarray(table["above"]) >= 31 * span
    without, with_row = np.count_nonzero(is_high[:half]), np.count_nonzero(is_high[half:])
    upper = beta.ppf(1 - FALSE_ALARM / 2, without + 1, half - without)
    lower = beta.ppf(FALSE_ALARM / 2, with_row, half - with_row + 1)
    return float(np.log(lower / upper))


def test_the_product_proves_most_of_epsilon_and_never_more() -> None:
    """Confidence 1 - 1e-6; of .95, the part of sums, at most .8 can be shown by so many groups."""
    assert 0.7 < proved_epsilon() <= 1.0


def test_the_same_audit_catches_half_of_the_noise() -> None:
    assert proved_epsilon(factor=0.5) > 1.5


# Worlds: everything that leaves is a function of the noisy sums.

ROW = {"shop": "s01", "customer": 5_001, "paid": 3.0, "open": True}
LIMITED = {"person": "customer", "max_groups": 2, "max_rows": 2}


def with_row(**changes: Any) -> pa.Table:
    row = {name: [value] for name, value in (ROW | changes).items()}
    return pa.concat_tables([rows(), pa.table(row, rows().schema)])


WORLDS: dict[str, pa.Table] = {
    "a row more": with_row(),
    "a row at a bound": with_row(paid=1e300),
    "a row less": rows().slice(1),
    "without the name that occurs once": rows().slice(0, 3000),
    "another name that occurs once": with_row(shop="another"),
    "a row without a value": with_row(paid=None),
    "a row without a name": with_row(shop=None),
    "a value that is no number": with_row(paid=float("nan")),
    "another order": rows().take(pa.array(np.arange(3001)[::-1])),
}


def surfaces(found: Any, folder: Path) -> list[Any]:
    """Give all that a result shows."""
    frame = found.to_frame()
    page = found.report(folder / "page.html").read_text()
    types = [str(kind) for kind in getattr(frame, "dtypes", [])]
    parts = [repr(found), found._repr_html_(), found.explain(), page, found.notes, types]
    parts += [found.table.to_pylist(), found.releases.to_pylist(), str(found.table.schema)]
    parts += [frame.to_csv() if isinstance(frame, pd.DataFrame) else str(frame), len(found)]
    return [*parts, found.ranks().table.to_pylist(), repr(found.top(1)), found.joint.value.tolist()]


def forced(monkeypatch: pytest.MonkeyPatch, frame: Any, **changes: Any) -> Any:
    """Answer a frame whose noisy sums are those of `rows()`, whatever its own are.

    The noise of a name is fixed, and what the exact sums differ by is taken off.
    """
    exact: dict[str, tuple[int, int, int]] = {}
    base = noisy_sums._exact_sums

    def first(samples: Any, plan: SecretPlan) -> ExactSums:
        sums = base(samples, plan)
        columns = zip(sums.above.tolist(), sums.below.tolist(), sums.squares.tolist(), strict=True)
        exact.update(zip(samples.names, columns, strict=True))
        return sums

    def second(samples: Any, plan: SecretPlan) -> ExactSums:
        row = (plan.grid.span, 0, plan.grid.span)
        kept = np.array([exact.get(name, row) for name in samples.names]).reshape(-1, 3)
        return ExactSums(above=kept[:, 0], below=kept[:, 1], squares=kept[:, 2])

    monkeypatch.setattr(noisy_sums, "_frame_digest", lambda *_: 7)
    monkeypatch.setattr(noisy_sums, "_exact_sums", first)
    secret(KIND[type(frame)](rows()), **changes)
    monkeypatch.setattr(noisy_sums, "_exact_sums", second)
    found = secret(frame, **changes)
    monkeypatch.setattr(noisy_sums, "_exact_sums", base)
    return found


def categorical(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas().astype({"shop": "category"})


KIND: dict[type, Callable[[pa.Table], Any]] = {
    pa.Table: lambda table: table,
    pd.DataFrame: categorical,
}


@pytest.mark.parametrize("kind", KIND.values(), ids=["arrow", "categorical"])
@pytest.mark.parametrize("changes", [{}, LIMITED, {"groups": ["s01", "none"], "delta": 0}],
                         ids=["rows", "persons", "declared"])  # fmt: skip
@pytest.mark.parametrize("world", WORLDS)
def test_worlds_with_equal_noisy_sums_are_equal_in_every_byte(
    world: str,
    changes: dict[str, Any],
    kind: Callable[[pa.Table], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = surfaces(forced(monkeypatch, kind(rows()), **changes), tmp_path)
    there = surfaces(forced(monkeypatch, kind(WORLDS[world]), **changes), tmp_path)
    assert here == there


def test_worlds_differ_where_exact_numbers_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin says how many rows it has read: a row more is seen in a byte."""
    told = secret_means.secret_notes
    monkeypatch.setattr(
        secret_means, "secret_notes", lambda plan, person: (*told(plan, person), f"{READ[-1]} rows")
    )
    counted = secret_means.counted_rows

    def keep(frame: Any, **options: Any) -> Any:
        samples = counted(frame, **options)
        READ.append(len(samples.group))
        return samples

    monkeypatch.setattr(secret_means, "counted_rows", keep)
    here = surfaces(forced(monkeypatch, rows()), tmp_path)
    there = surfaces(forced(monkeypatch, with_row()), tmp_path)
    assert here != there


READ: list[int] = []


def test_a_name_that_does_not_come_out_is_in_no_release(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[SecretReleases] = []
    made = secret_means.released_sums

    def keep(*arguments: Any) -> SecretReleases:
        kept.append(made(*arguments))
        return kept[-1]

    monkeypatch.setattr(secret_means, "released_sums", keep)
    secret(categorical(rows()))
    assert "once" in rows()["shop"].to_pylist()
    assert "once" not in repr(kept[0])
    assert "once" not in repr(kept[0].keys["shop"].to_pylist())
    assert len(kept[0].above) == len(kept[0].names) == 12


def test_noise_of_sums_is_that_of_the_plan() -> None:
    """400 releases of one frame: variances within 6 standard errors, and none is met twice."""
    plan = SecretPlan(lower=0, upper=10, epsilon=1.0, delta=1e-6)
    frame = pa.table({"shop": np.repeat(np.arange(200), 40), "paid": np.full(8000, 2.5)})
    errors: list[Floats] = []
    for name in ("first", "second"):
        table = secret(frame, name=name).releases
        half = plan.grid.encode(np.array([2.5]))[0] * 40
        errors.append(np.asarray(table["above"]) - half)
        errors.append(np.asarray(table["below"]) - (40 * plan.grid.span - half))
    drawn = np.concatenate(errors) / plan.grid.span
    assert len(np.unique(np.concatenate(errors))) > 0.99 * len(drawn)

    # Kurtosis of Laplace noise is 6: the variance of a squared draw is 5 times its square.
    variance = plan.sums_noise.variance / plan.grid.span**2
    assert abs(np.mean(drawn**2) / variance - 1) <= 6 * math.sqrt(5 / len(drawn))
