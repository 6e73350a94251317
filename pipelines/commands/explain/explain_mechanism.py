"""Bounds, counter and noise of agents, for `meanstream explain`: as plain data, and for reading."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from meanstream.operators.agents.defaults import MechanismFacts, mechanism_facts

if TYPE_CHECKING:
    from meanstream.operators.agents.agents_settings import AgentsSettings


def agents_bounds(settings: AgentsSettings) -> dict[str, Any]:
    """Say which values count, and how much one of them moves a sum."""
    grid = settings.grid
    return {
        "lower": settings.lower,
        "upper": settings.upper,
        "values_outside": "are clipped",
        "resolution": grid.resolution,
        "sensitivity": (settings.upper - settings.lower) * (settings.per_person or 1),
        "sensitivity_in_grid_units": grid.span * (settings.per_person or 1),
    }


def agents_mechanism(settings: AgentsSettings) -> dict[str, Any]:
    """Say by which counter and noise sums are released."""
    counter = settings.mechanism
    fresh = settings.fresh
    return {
        "counter": counter.name,
        "horizon": settings.most_releases,
        "column_norm": counter.l2_sensitivity,
        "levels": getattr(counter, "levels", None),
        # The noise, and what the best other one would be.
        "noise": settings.noise,
        "least_noise": asdict(mechanism_facts(settings)),
        "calibration": settings.calibration if settings.noise == "gaussian" else None,
        "stddev_of_a_fresh_draw": float(fresh.variance) ** 0.5 * settings.grid.resolution,
        "published": "the noisy integer sum on the grid",
        "tail_delta": fresh.tail_delta,
        "epsilon_slack": fresh.epsilon_slack,
        "noise_source": "keyed: a function of the secret, the agent, the release and its exact "
        "input",
    }


def agents_bounds_lines(bounds: dict[str, Any]) -> list[str]:
    """Write the bounds of values for reading."""
    return [
        f"bounds          [{bounds['lower']:g}, {bounds['upper']:g}], "
        f"values outside {bounds['values_outside']};"
        f" sensitivity of a sum {bounds['sensitivity']:g}"
        f" = {bounds['sensitivity_in_grid_units']} grid units of {bounds['resolution']:g}",
    ]


def agents_mechanism_lines(mechanism: dict[str, Any], *, reader: str | None = None) -> list[str]:
    """Write counter and noise for reading; `reader` is who alone gets what is released."""
    leaves = "is published" if reader is None else f"goes to {reader} alone"

    return [
        f"counter         {mechanism['counter']}, "
        + (
            "no end of releases,"
            if mechanism["horizon"] is None
            else f"at most {mechanism['horizon']} releases,"
        )
        + f" column norm {mechanism['column_norm']:.4g}",
        # What a draw adds, and by what it is chosen.
        f"noise           {mechanism['noise']}"
        + (f" ({mechanism['calibration']} calibration)" if mechanism["calibration"] else "")
        + f", standard deviation {mechanism['stddev_of_a_fresh_draw']:.6g} per fresh draw",
        f"                {MechanismFacts(**mechanism['least_noise']).said}",
        f"                {mechanism['noise_source']}; {mechanism['published']} {leaves}",
        f"                numerical slack per draw: delta {mechanism['tail_delta']:.1e},"
        f" epsilon {mechanism['epsilon_slack']:.1e}",
    ]
