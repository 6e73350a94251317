"""All windows of a user together: what moves in each, at the noise that is drawn; and twins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from meanstream.lab.evidence.central_audit import central_neighbors, gaussian_shift, replaced_user
from meanstream.lab.evidence.mechanisms_audit import mechanism_audits
from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.registry import build_estimator, build_estimator_of_budget
from meanstream.operators.noise import window_budget
from meanstream.operators.noise.calibration import calibration_delta
from meanstream.operators.noise.window_budget import WindowBudget
from tests.operators.support.binomial_users import summaries

BUDGET = WindowBudget(epsilon=1.0, delta=1e-6, windows=52)
EXACT = 1.0 + 1e-9


def shift_of_a_window(users: int, budget: WindowBudget = BUDGET) -> float:
    """Standard deviations by which one user moves all that is released of a window, at most."""
    rng = np.random.default_rng(1)
    given = summaries(300, rng)
    estimator: Any = build_estimator_of_budget("central.mean", budget, users=users)
    (step,) = estimator.rounds
    pairs = [
        (replaced_user(given, 0, 1, 1.0, 1.0), replaced_user(given, 0, 100, 0.0, 0.0)),
        (replaced_user(given, 0, 1, 0.5, 1.0), replaced_user(given, 0, 7, 1.0, 0.0)),
        *central_neighbors(given, rng, same_size=False, number=40),
    ]
    return max(gaussian_shift(step, one, other, {}, SeededWords(rng, 1)) for one, other in pairs)


@pytest.mark.parametrize("users", [300, 100_000])
def test_all_windows_together_keep_the_budget(users: int) -> None:
    """With many users a tenth of the squared shift goes to their spread."""
    together = math.sqrt(BUDGET.windows) * shift_of_a_window(users)
    assert calibration_delta(1.0 / together, BUDGET.epsilon) <= BUDGET.delta * EXACT
    assert calibration_delta(0.9 / together, BUDGET.epsilon) > BUDGET.delta


def test_the_audit_proves_the_whole_budget() -> None:
    for name in ("windows.gaussian", "windows.pure"):
        row = mechanism_audits([name], epsilon=1.0, delta=1e-6)[name]()
        assert not row.violated
        assert 0.9999 < row.ratio < 1.00001


def test_noise_for_one_window_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # Known-bad twin: the noise of one window in each of them, without the root of their number.
    forgotten = property(
        lambda self: window_budget.calibrated_analytic_stddev(self.epsilon, self.delta)
    )
    monkeypatch.setattr(WindowBudget, "gaussian_stddev", forgotten)
    together = math.sqrt(BUDGET.windows) * shift_of_a_window(300)
    assert calibration_delta(1.0 / together, BUDGET.epsilon) > 1000 * BUDGET.delta
    row = mechanism_audits(["windows.gaussian"], epsilon=1.0, delta=1e-6)["windows.gaussian"]()
    assert row.violated
    assert row.proved > 5.0


def test_two_sums_that_are_paid_once_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # Known-bad twin: the spread is measured with noise that no one has paid for.
    estimator: Any = build_estimator("central.mean", epsilon=1.0, users=100_000)
    (step,) = estimator.over_windows(BUDGET).rounds
    moved = {}
    for name, parts in (("paid", step.parts), ("unpaid", (1.0, 1.0))):
        object.__setattr__(step, "parts", parts)
        rng = np.random.default_rng(3)
        given = summaries(300, rng)
        one = replaced_user(given, 0, 2, 1.0, 1.0)
        other = replaced_user(given, 0, 2, 0.5, 1.0)
        moved[name] = gaussian_shift(step, one, other, {}, SeededWords(rng, 1))
    limit = 1.0 / float(BUDGET.gaussian_stddev or 0.0)
    assert moved["paid"] <= limit * EXACT < moved["unpaid"]


def test_an_epsilon_that_is_composed_too_lightly_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Known-bad twin: each window has what the root of their number would leave it.
    monkeypatch.setattr(
        WindowBudget, "each", property(lambda self: self.epsilon / math.sqrt(self.windows))
    )
    row = mechanism_audits(["windows.pure"], epsilon=1.0, delta=1e-6)["windows.pure"]()
    assert row.violated
    assert row.proved > 2.0
