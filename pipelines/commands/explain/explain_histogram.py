"""The part of the budget that shows the distribution of agents' samples, and what agents receive."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from meanstream.operators.agents.own_histogram import SAMPLE_SENSITIVITY
from meanstream.operators.agents.vote_of_spread import FACTOR
from meanstream.operators.collaboration.shares.asked_shares import query_labels

if TYPE_CHECKING:
    from meanstream.operators.agents.agents_settings import AgentsSettings


def explain_histogram(
    settings: AgentsSettings, quantiles: tuple[float, ...] | None
) -> dict[str, Any] | None:
    """Say what gets noise and what agents receive, as plain data; None where there is no histogram.

    `quantiles` is None where they are not known.
    """
    if settings.histogram is None:
        return None
    return {
        "share": settings.histogram_share,
        "of": "rho" if settings.noise == "gaussian" else "epsilon",
        "what": f"an agent's samples, counted in {settings.histogram.bins} bins between the bounds and at them",
        "when": f"with its first release, and with each of {FACTOR} times the samples of the last histogram",
        "sensitivity": SAMPLE_SENSITIVITY[2 if settings.noise == "gaussian" else 1]
        * (settings.per_person or 1),
        "noise_stddev_of_a_bin": math.sqrt(settings.histogram.noise.variance),
        "total": "means and histograms together are the total above"
        if settings.vote is None
        else "means, votes and histograms together are the total above",
        "quantiles": None if quantiles is None else list(quantiles),
        "exceeds": list(settings.exceeds),
        "answers": "for each agent from its own samples and a prior of all histograms; for that agent only",
    }


def explain_histogram_lines(found: dict[str, Any] | None) -> list[str]:
    """Write the same for reading; nothing where there is none.

    Examples
    --------
    >>> explain_histogram_lines(None)
    []
    """
    if found is None:
        return []
    unknown = ["the requested quantiles"] if found["quantiles"] is None else []
    asked = unknown + query_labels(found["quantiles"] or (), found["exceeds"])

    return [
        f"histogram       {found['share']:g} of the budget (of {found['of']}): {found['what']},",
        f"                {found['when']};",
        f"                sensitivity {found['sensitivity']:.4g}, "
        f"noise sd {found['noise_stddev_of_a_bin']:.4g} per bin; {found['total']}",
        f"answers         {', '.join(asked) or 'the requested figures'}: {found['answers']}",
    ]
