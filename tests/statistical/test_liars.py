"""The benchmark of liars, on one world of each kind; `benchmarks/liars.py` measures all."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_a_tenth_who_lie_cost_the_honest_less_than_half_of_what_they_err_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A prior without guards is the twin: it is at least a tenth worse with the same lies
    somewhere."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    liars = importlib.import_module("liars")
    worse = []
    for population in liars.POPULATIONS:
        world = liars.World.draw(population, 7)
        for mean in liars.MEANS:
            lies = world.lied(0.1, mean, claimed=True)
            assert lies.count.max() == liars.CLAIMED
            ratio, covered = world.judged("learned_prior", lies, 0.1)
            assert ratio < 1.5
            assert covered > 0.87  # of 540: .90 less two standard errors
            worse.append(world.judged("pooled_prior", lies, 0.1)[0] / ratio)
    assert max(worse) > 1.1
