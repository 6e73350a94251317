"""Means that move, simulated: the option's grammar, where means are, and errors beside a direct
computation."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.lab.simulation.drift.simulated_drift import (
    ChangeOfMeans,
    DriftConfig,
    ExponentialMean,
    WindowMean,
    simulate_drift,
)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("step:0.2,0.5@5000", ("step", 0.2, 0.5, None, 5000)),
        ("step:-.2,1", ("step", -0.2, 1.0, None, None)),
        ("walk:0.01/50", ("walk", 0.01, 1.0, 50, None)),
        ("walk:1e-2/1@7", ("walk", 0.01, 1.0, 1, 7)),
        ("new-class:0.6", ("new-class", 0.6, 0.5, None, None)),
        ("new-class:0.6,.25@3", ("new-class", 0.6, 0.25, None, 3)),
        ("all:0.15", ("all", 0.15, 1.0, None, None)),
    ],
)
def test_what_is_written_is_read(text: str, parsed: tuple) -> None:
    kind, size, share, every, begin = parsed
    assert ChangeOfMeans.parse(text) == ChangeOfMeans(
        kind=kind, size=size, share=share, every=every, begin=begin
    )


@pytest.mark.parametrize(
    "text",
    ["", "step", "step:1", "step:1,0", "step:1,1.5", "step:1,2,3", "step:nan,.5", "walk:1", "walk:1/0", "walk:-1/5",
     "walk:1/.5", "all:", "all:1,2", "all:1e999", "all:1@", "all:1@0", "all:1@-5", "all:1@5@6", "all:\u0661",
     "new-class:x", "none", "step: 1,.5", "all:1@99999999999"],
)  # fmt: skip
def test_what_is_not_of_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^change must .*, got "):
        ChangeOfMeans.parse(text)


def levels(text: str, mean: list[float], begin: int = 3, steps: int = 9) -> np.ndarray:
    change = ChangeOfMeans.parse(text)
    return change.apply(np.random.default_rng(1), np.array(mean), begin, steps).of_samples(0, steps)


def test_means_move_where_it_is_said() -> None:
    start = [0.0, 1.0, 2.0, 3.0]
    for text, after in (
        ("step:5,.5", [5, 1, 7, 3]),
        ("step:5,.25", [5, 1, 2, 3]),
        ("new-class:9", [9, 1, 9, 3]),
        ("all:-1", [-1, 0, 1, 2]),
    ):
        found = levels(text, start)
        assert (found[:3] == start).all()
        assert (found[3:] == after).all()
    walked = levels("walk:.5/2", start)
    moved = (np.diff(walked, axis=0) != 0).all(axis=1)
    assert moved.tolist() == [False, False, True, False, True, False, True, False]
    steps = np.diff(levels("walk:.5/1", [0.0] * 4000, steps=8)[2:], axis=0)
    assert abs(steps.std() / 0.5 - 1) < 4 / np.sqrt(2 * steps.size)


@pytest.mark.parametrize("share", [0.1, 0.3, 1 / 3, 0.5, 0.999])
def test_as_many_change_as_it_is_said(share: float) -> None:
    change = ChangeOfMeans(kind="step", size=1, share=share, every=None, begin=None)
    for agents in (7, 200, 1001):
        assert change.changed(agents).sum() == max(round(share * agents), 1)


def test_errors_of_agents_alone_are_those_of_a_direct_computation() -> None:
    config = DriftConfig(change="step:0.3,0.5@150", agents=6, steps=700, runs=2, seed=4)
    window = simulate_drift(config, learner=lambda *_: WindowMean(80, stddev=0.5))
    expo = simulate_drift(config, learner=lambda *_: ExponentialMean(50, stddev=0.5))
    errors = {"window": [], "expo": []}
    for seed in (4, 5):
        rng = np.random.default_rng(seed)
        mean = np.array([0.2, 0.4, 0.8])[rng.integers(3, size=6)]
        after = mean + 0.3 * np.array([1, 0, 1, 0, 1, 0])
        half = 0.5 * np.sqrt(3)
        samples = (
            rng.random((650, 6)) * 2 * half
            - half
            + np.where(np.arange(650)[:, None] < 150, mean, after)
        )
        weights = (1 - 1 / 50) ** np.arange(650)[::-1]
        for name, value in (("window", samples[:350][-80:].mean(axis=0)),
                            ("expo", weights[300:] @ samples[:350] / weights[300:].sum())):  # fmt: skip
            errors[name].append((value - after) ** 2)
    assert window.ages == (200, 500)
    for found, name in ((window, "window"), (expo, "expo")):
        by_run = np.array(errors[name])[:, ::2].mean(axis=1)
        assert found.changed.mse[0] == pytest.approx(by_run.mean())
        assert found.changed.stderr is not None
        assert found.changed.stderr[0] == pytest.approx(by_run.std(ddof=1) / 2**0.5)
        assert found.unchanged is not None
        assert found.unchanged.mse[0] == pytest.approx(np.mean(np.array(errors[name])[:, 1::2]))


def test_a_memory_finds_a_change_that_forever_does_not() -> None:
    config = {"change": "step:0.5,0.5@600", "agents": 40, "steps": 1600, "runs": 1, "seed": 3}
    kept = simulate_drift(DriftConfig(**config))
    found = simulate_drift(DriftConfig(**config, memory="half-life:300"))
    assert found.ages == (200, 500, 1000)
    assert found.changed.mse[-1] < 0.05 * kept.changed.mse[-1]
    assert kept.changed.coverage[-1] < 0.2
    assert found.changed.coverage[-1] > 0.7
