"""Replay Algorithm 1 on given arrays with the production operators.

How others check the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanstream.lab.papers.colme.pairwise_agents import schedule_same_class
from meanstream.lab.simulation.config import SimulationConfig
from meanstream.lab.simulation.data import MeansModel, data_model, own_or_text
from meanstream.lab.simulation.simulated_pairwise import simulated_pairwise_agents
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.validation import require, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Algorithm 1 replayed once.

    Estimates of shape (steps, agents), and every agent's class after the last step.
    """

    estimates: Floats
    classes: list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceInputs:
    """Given arrays for a replay.

    Parameters
    ----------
    data, noise : float arrays, shape (steps, agents)
        Samples, and the unit-variance fresh noise of the p-sum that the query of agent a at t
        creates.
    noise_variance : float, optional
        Variance of the noise of one p-sum (default: as calibrated by the configuration).
    variance_noise : float array, shape (steps, agents), optional
        For variance released, and used there only: the same as `noise` for the released sample
        variance; the variance of its draws is (2L)^2 times `noise_variance`.
    """

    data: Floats
    noise: Floats
    noise_variance: float | None = None
    variance_noise: Floats | None = None

    def check(self, config: SimulationConfig) -> None:
        """Refuse arrays that do not fit together or the configuration."""
        require(not config.is_broadcast, "schedule", "be pairwise for a trace", config.schedule)
        require(
            config.collaboration == "tests",
            "collaboration",
            "be tests for a trace",
            config.collaboration,
        )
        shape = (config.steps, config.agents)

        for name in ("data", "noise", "variance_noise"):
            array = getattr(self, name)
            if array is not None:
                require(
                    array.shape == shape, name, f"have shape (steps, agents) = {shape}", array.shape
                )
                require(bool(np.isfinite(array).all()), name, "be finite", "NaN or infinity")

        released = config.variance == "released"
        rule = "be given for variance released"
        require(self.variance_noise is not None or not released, "variance_noise", rule, None)

        if self.noise_variance is not None:
            require_positive(noise_variance=self.noise_variance)


def trace_true_label(config: SimulationConfig) -> Ints | None:
    """Classes of the agents in the order of `class_sizes`; None if these are not given."""
    if config.class_sizes is None:
        return None
    return np.repeat(np.arange(len(config.class_sizes)), config.class_sizes)


def trace_known_variance(config: SimulationConfig) -> Floats:
    """Variance of one sample of every agent of a trace, from stddev, or from the classes' means for other data."""
    label = trace_true_label(config)
    mean = np.full(config.agents, np.nan)

    if label is not None:
        mean = np.asarray(
            MeansModel.parse(own_or_text(config.means), data=own_or_text(config.data)).numbers
        )[label]

    variance = data_model(config.data, config.stddev, config.half_width).variance(mean)
    unknown = config.variance == "known" and not np.isfinite(variance).all()
    require(
        not unknown, "class_sizes", f"be given to know the variances of {config.data} data", None
    )

    return variance


def trace(config: SimulationConfig, given: TraceInputs) -> Trace:
    """Replay Algorithm 1 on given data and noise with the production operators.

    Examples
    --------
    >>> config = SimulationConfig.from_options(mode="paper", agents=2, steps=3)
    >>> flat = np.full((3, 2), 0.25)
    >>> trace(config, TraceInputs(data=flat, noise=0 * flat)).classes
    [[0, 1], [0, 1]]
    """
    given.check(config)
    label = trace_true_label(config)
    require(
        config.test != "oracle" or label is not None,
        "class_sizes",
        "be given for a trace with test oracle",
        None,
    )

    variance = trace_known_variance(config)[np.newaxis]
    classes = None if label is None else schedule_same_class(label[np.newaxis])
    agents = simulated_pairwise_agents(
        config, runs=1, variance=variance, classes=classes, noise_variance=given.noise_variance
    )
    stddev = agents.settings.fresh_variance**0.5
    estimates = np.empty_like(given.data)

    for step, (values, fresh) in enumerate(zip(given.data, stddev * given.noise, strict=True)):
        second = None
        if given.variance_noise is not None and config.variance == "released":
            second = 2 * config.half_width * stddev * given.variance_noise[step]

        agents.step(values, fresh, second)
        estimates[step] = agents.estimate()[0]

    return Trace(estimates=estimates, classes=_members(agents.accepted))


def _members(accepted: Bools) -> list[list[int]]:
    """List every agent's class, itself included, from the layout of the pairs of one run."""
    agents = range(accepted.shape[1])
    return [
        sorted([a, *(int(o + (a <= o)) for o in np.flatnonzero(accepted[:, a]))]) for a in agents
    ]
