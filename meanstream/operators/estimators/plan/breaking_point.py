"""How much users may differ before the windows of a plan give wrong intervals."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from meanstream.operators.estimators.plan.plan_design import PlanDesign
from meanstream.operators.estimators.plan.plan_risk import plan_risk_clip_moments, plan_risk_skewed_law
from meanstream.operators.rounds.user_sizes import SizeDistribution


def breaking_point(design: PlanDesign, sizes: SizeDistribution, *, declared: float, level: float) -> float | None:
    """Smallest spread of users' means (exponential tail) that biases the plan by a half-width of its interval.

    Parameters
    ----------
    design : PlanDesign
        Public.
    sizes : SizeDistribution
        Of users' numbers of samples (public).
    declared : float
        Spread that the design is for, on [-1, 1].
    level : float
        Of the interval.

    Returns
    -------
    float or None
        On [-1, 1]; None if no spread does.

    Notes
    -----
    **Privacy.** A function of public numbers.
    """
    margin = float(ndtri(0.5 * (1.0 + level))) * math.sqrt(design.risk)
    for spread in np.geomspace(1e-5, 0.5, 48).tolist():
        if spread > declared and abs(_bias(design, sizes, spread)) > margin:
            return float(spread)
    return None


def _bias(design: PlanDesign, sizes: SizeDistribution, spread: float) -> float:
    """Where the last stage ends up, center after center, if users' means are skewed; 0 for reports on [-1, 1]."""
    law = plan_risk_skewed_law(sizes, spread)
    error = 0.0
    for stage in design.stages:
        if stage.kind == "clip":
            mean, _ = plan_risk_clip_moments(law, stage.cap, np.array([stage.window]), np.array([error]))
            error += float(mean[0, 0]) / (stage.shrunk * stage.gain)
    return error
