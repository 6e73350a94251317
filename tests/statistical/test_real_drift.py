"""The benchmark of memories on real streams: weights by hand, truths by hand, and a change that
everybody can see."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from real.drift_sets import DriftSet
from real_drift import LEAST, Scored, alone, detected, together


def stream(change: float, periods: int = 4, each: int = 400, owners: int = 30) -> DriftSet:
    """Owners in turn; the means of all of them change with the third period."""
    rng = np.random.default_rng(8)
    owner = np.tile(np.arange(owners), periods * each)
    period = np.repeat(np.arange(periods), each * owners)
    value = (
        rng.choice([0.3, 0.5], owners)[owner]
        + change * (period >= 2)
        + rng.uniform(-0.3, 0.3, len(owner))
    )
    return DriftSet(
        name="made up", owner=owner, value=np.clip(value, 0, 1), period=period, lower=0.0, upper=1.0
    )


def test_weights_and_truths_are_those_of_a_loop() -> None:
    data = stream(0.2, each=LEAST, owners=3)
    scored = Scored.of(data)
    for period in range(3):
        mine = [data.value[(data.owner == o) & (data.period == period + 1)] for o in range(3)]
        assert scored.who[period].tolist() == [0, 1, 2]
        assert scored.truth[period] == pytest.approx([m.mean() for m in mine])
        assert scored.variance[period] == pytest.approx([m.var(ddof=1) / len(m) for m in mine])
        for owner in range(3):
            before = data.value[(data.owner == owner) & (data.period <= period)]
            weight = 0.5 ** (np.arange(len(before))[::-1] / 30)
            assert alone(data, 30)[period][owner] == pytest.approx(
                (weight * before).sum() / weight.sum()
            )
            assert alone(data, None)[period][owner] == pytest.approx(before.mean())
    few = stream(0.2, each=LEAST - 1, owners=3)
    assert [len(who) for who in Scored.of(few).who] == [0, 0, 0]


def test_who_forgets_is_right_after_a_change_and_who_does_not_is_wrong() -> None:
    """All means move by .2: the last period is answered within .05 by whoever looks for changes,
    half-way by others."""
    data = stream(0.2)
    scored = Scored.of(data)
    last = {name: np.abs(found[-1] - scored.truth[-1]).mean() for name, found in {
        "forever": alone(data, None), "EWMA": alone(data, 100), "ADWIN": detected(data, "ADWIN"),
        "ours": together(data, "half-life:400", 3), "ours forever": together(data, "forever", 3),
    }.items()}  # fmt: skip
    assert last["forever"] == pytest.approx(0.2 * 2 / 3, abs=0.03)
    assert last["ours forever"] > 0.08
    assert max(last[name] for name in ("EWMA", "ADWIN", "ours")) < 0.05
    assert np.abs(detected(data, "Page-Hinkley")[-1] - scored.truth[-1]).mean() < 0.2
