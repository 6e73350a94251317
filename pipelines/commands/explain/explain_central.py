"""What `meanstream explain rounds` says of a trusted curator.

Who is trusted, with what, and what releases cost.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from meanstream.operators.rounds.central_rounds import central_numeric_cost, central_spend
from meanstream.pipelines.commands.explain.explain_simulated import simulated_half_bounds

if TYPE_CHECKING:
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings


def explain_central_facts(settings: RoundsSettings, users: int) -> dict[str, Any]:
    """Say what differs from rounds of local privacy, as plain data."""
    estimator: Any = settings.estimator_for(users)
    public_sizes = not estimator.protects_sizes
    over = "one answer per window; a curator is trusted with every sample (central)"
    described = estimator.describe()
    half = simulated_half_bounds(settings)

    return {
        "trust": "central",
        "protects": "the values that one user sends within a window, NOT its number of samples"
        if public_sizes
        else "all that one user sends within a window",
        "neighboring": "two windows that differ in the values of one user, with the same number of samples in both"
        if public_sizes
        else "two windows that differ in everything that one user sent within them, its number of samples included",
        "public": _public(settings, public_sizes=public_sizes),
        "total": _total(settings, estimator, over),
        "estimator": {
            "name": settings.estimator,
            "estimand": estimator.estimand,
            "users": users,
            "users_are": "declared"
            if settings.users is not None
            else "an example: each window counts its users",
            "sizes": settings.sizes,
            "predicted_stderr": float(described["predicted_stderr"]) * half,
            "between_users": settings.between_users,
            "parameters": {k: v for k, v in described.items() if k != "predicted_stderr"},
        },
        "mechanisms": _releases(estimator),
        "post_processing": "the estimate and its interval, computed from noisy sums alone",
        "who_sees_what": {
            "a user": "its own samples; it adds no noise and must trust the curator",
            "the curator and its store": "every sample while it is read, exact sums per user until their window ends, "
            "exact sums over users while a window is answered",
            "everyone": "noisy sums, estimates, charged users, users over budget",
        },
    }


def _public(settings: RoundsSettings, *, public_sizes: bool) -> str:
    sessions = (
        "; start and end of each session: the times of its first and last sample are NOT protected"
    )
    return "participation in each window" + (
        (sessions if settings.windows.kind == "session" else "")
        + ("; the number of samples of each user" if public_sizes else "")
    )


def _total(settings: RoundsSettings, estimator: Any, over: str) -> dict[str, Any]:
    each = f"epsilon {settings.epsilon:g}" + (
        f" and delta {estimator.delta:g}" if estimator.delta else ""
    )
    horizon = settings.horizon

    return {
        "epsilon": settings.epsilon,
        "delta": float(estimator.delta),
        "with_numerics": _with_numerics(estimator),
        "over": over,
        "windows_per_sample": settings.windows.overlap,
        "user_budget": settings.user_budget,
        "over_time": f"{each} for each window with the user's data: no --user-budget is set"
        if horizon is None
        else f"at most {horizon} windows of {each}; later windows leave out the user's data",
    }


def _with_numerics(estimator: Any) -> dict[str, float]:
    """Add what finite arithmetic costs those who pay most.

    A larger epsilon, and a delta for tails that are cut.
    """
    epsilon, delta = central_numeric_cost(estimator)
    return {"epsilon": float(estimator.epsilon) + epsilon, "delta": float(estimator.delta) + delta}


def _releases(estimator: Any) -> list[dict[str, Any]]:
    """List each release: its sums, who pays for it, and how much."""
    paid = central_spend(estimator.rounds)
    return [
        {
            "release": number,
            "name": step.name,
            "asks": (inspect.getdoc(type(step)) or step.name).partition("\n")[0],
            "share_of_users": float(estimator.shares[step.cohort]),
            "payers": step.payers,
            "epsilon": float(step.epsilon),
            "delta": float(step.delta),
            "paid_by_them_in_all": list(paid[step.payers]),
            "noise": "none: it is public"
            if step.payers == "nobody"
            else "discrete Laplace, once, on exact sums",
        }
        for number, step in enumerate(estimator.rounds)
    ]


def explain_central_lines(release: dict[str, Any]) -> list[str]:
    """Write a release for reading."""
    delta = f", delta {release['delta']:g}" if release["delta"] else ""
    share = release["share_of_users"]
    payers = "no one" if release["payers"] == "nobody" else release["payers"]
    who = (
        f"from {share:.0%} of the users" if share < 1 else "from users chosen by their public sizes"
    )

    return [
        f"release {release['release']}       {release['name']}: {who}, paid"
        f" by {payers} at epsilon {release['epsilon']:g}{delta}; noise: {release['noise']}",
        f"                {release['asks']}",
    ]
