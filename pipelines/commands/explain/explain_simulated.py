"""The simulations of `meanstream explain rounds`: channels in use, and coverage if users differ."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from meanstream.operators.estimators.registry import estimator_class, estimator_taken_for
from meanstream.operators.rings import ring_module
from meanstream.operators.rounds.central_rounds import central_numeric_cost, central_spend
from meanstream.operators.rounds.channels.registry import CHANNELS, make_channel

if TYPE_CHECKING:
    from meanstream.lab.simulation.simulated_rounds import RoundsConfig
    from meanstream.operators.rounds.round_protocol import Estimator
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings


SIMULATOR = "lab.simulation.simulated_rounds"

SIZES = "uniform:1,199"
"""Used for figures if --sizes is not set."""

LAWS = (
    None,
    "normal:0.05",
    "normal:0.2",
    "skewed:0.05",
    "skewed:0.2",
    "far:0.002",
    "far:0.01",
    "far:0.05",
)
"""Laws of users' own means, standard deviations in half widths of the bounds; shares of a group at
the lower end."""

PLACES = {"far": "rademacher:0.6"}
"""Center of all others, if not the middle."""

WARNING = (
    "the papers assume that all users draw from one law; if users' own means differ and the estimator clips around "
    "their center, a bias remains and the interval may miss"
)
"""Of answers that clip; a vote for a category clips nothing."""

MARGIN = 0.15
"""Simulated coverage this far below 95 % is no accident: under 1 in 1000 for 40 honest runs, 1 in
80 for 10."""

WORK = 400_000
RUNS = 40
"""Simulated users per law, and the largest number of runs."""


def simulated_channels(
    settings: RoundsSettings, estimator: Estimator, users: int
) -> list[dict[str, Any]]:
    """Name the channels of the design, and of one simulated round; of one mean only."""
    if not settings.one_mean:
        return []
    answer = ring_module(SIMULATOR).simulate_round(_config(settings, users, None), estimator)
    half = simulated_half_bounds(settings)
    rows = []

    for name in sorted(
        (_texts(estimator.describe()) | _texts(list(answer.stages))) & set(CHANNELS)
    ):
        channel = make_channel(name, estimator.epsilon)
        noise = float(channel.variance([0.0])[0]) ** 0.5
        rows.append(
            {
                "channel": name,
                "epsilon": channel.spend(),
                "report": f"a whole number from {channel.low} to {channel.high}, worth {channel.step:.6g} half widths",
                "noise_stddev_in_half_widths": noise,
                "noise_stddev_on_the_bounds": noise * half,
            }
        )

    return rows


def _texts(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value}
    parts = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else ()
    )

    return {text for element in parts for text in _texts(element)}


def simulated_users_who_differ(settings: RoundsSettings, users: int) -> dict[str, Any]:
    """Simulate users who differ, with the user's own parameters.

    Coverage and error of the interval.
    """
    # Vectors, densities and mixtures have laws of their own: `meanstream simulate rounds`.
    rows = [_simulated(settings, users, law) for law in LAWS] if settings.one_mean else []
    return {
        "warning": None
        if settings.categories is not None or settings.quantiles is not None
        else WARNING,
        "assumed": _assumed(settings, users),
        "simulated": rows,
        "simulated_with": {"users": users, "sizes": settings.sizes or SIZES, "runs": _runs(users)},
        "dishonest_where": [
            row["law"] for row in rows if row["coverage"] < settings.level - MARGIN
        ],
    }


def _assumed(settings: RoundsSettings, users: int) -> str:
    described = settings.estimator_for(users).describe()
    if settings.between_users is not None:
        tails = "" if settings.tails is None else f", and that their tails are {settings.tails}"
        return f"declared: the standard deviation of users' own means is at most {settings.between_users:g}{tails}"

    if "assumption" in described:
        return str(described["assumption"])
    traits = estimator_class(settings.estimator)

    if traits.of_a_paper:
        return f"as in its paper: {traits.assumes}"
    return str(traits.assumes)


def _config(settings: RoundsSettings, users: int, law: str | None, **changes: Any) -> RoundsConfig:
    plain: dict[str, Any] = {
        "estimator": settings.estimator,
        "users": users,
        "epsilon": settings.window_epsilon,
        "sizes": settings.sizes or SIZES,
        "data": "rademacher:0",
        "between_users_law": law,
        "runs": _runs(users),
        "mode": settings.mode,
    }
    config: RoundsConfig = ring_module(SIMULATOR).RoundsConfig(**{**plain, **changes})

    return config


def _simulated(settings: RoundsSettings, users: int, law: str | None) -> dict[str, Any]:
    half = simulated_half_bounds(settings)
    name, _, number = (law or "").partition(":")
    data = {"data": PLACES[name]} if name in PLACES else {}
    config = _config(settings, users, law, **data)
    alone = _config(settings, users, law, estimator=estimator_taken_for("no search"), **data)
    asked = [(config, settings.estimator_for(users)), (alone, alone.build())]
    simulated, plain = ring_module(SIMULATOR).simulate_rounds_alike(asked)
    spread = f"{name}:{float(number) * half:g}" if law else "none"

    return {
        "law": f"{float(number):.1%} at the lower end" if name == "far" else spread,
        "coverage": simulated.coverage,
        "root_mean_squared_error": simulated.mse**0.5 * half,
        "of_one_shot": (simulated.mse / plain.mse) ** 0.5,
    }


def _runs(users: int) -> int:
    return max(min(RUNS, WORK // users), 10)


def simulated_half_bounds(settings: RoundsSettings) -> float:
    """Half the width of the bounds, in the value's unit; 1 where there is not one of them.

    Of shares, what leads from the error of all of them on [-1, 1] to that of one.
    """
    if settings.categories is not None:
        return float(0.5 / len(settings.categories) ** 0.5)
    lower, upper = settings.ends

    if settings.one_mean or settings.quantiles is not None:
        return float(upper - lower) / 2
    return 1.0


def explain_central_facts(settings: RoundsSettings, users: int) -> dict[str, Any]:
    """Say what differs from rounds of local privacy, as plain data."""
    estimator: Any = settings.estimator_for(users)
    public_sizes = not estimator.protects_sizes
    answers = (
        "one answer per window"
        if settings.user_windows is None
        else f"the answers of {settings.user_windows} windows of a user together"
    )
    over = f"{answers}; a curator is trusted with every sample (central)"
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
    later = "later windows leave out the user's data"

    # A budget of all windows together, of a number of them, or none.
    if settings.user_windows is not None:
        over_time = f"all of it for at most {horizon} windows; {later}"
    elif horizon is None:
        over_time = f"{each} for each window with the user's data: no --user-budget is set"
    else:
        over_time = f"at most {horizon} windows of {each}; {later}"

    return {
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "with_numerics": _with_numerics(settings, estimator),
        "over": over,
        "user_windows": settings.user_windows,
        "shared": settings.window_budget_text,
        "windows_per_sample": settings.windows.overlap,
        "user_budget": settings.user_budget,
        "over_time": over_time,
    }


def _with_numerics(settings: RoundsSettings, estimator: Any) -> dict[str, float]:
    """Add what finite arithmetic costs those who pay most.

    A larger epsilon, and a delta for tails that are cut.
    """
    epsilon, delta = central_numeric_cost(estimator, settings.window_budget)
    return {"epsilon": settings.epsilon + epsilon, "delta": settings.delta + delta}


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
            "noise": _noise_of(step),
        }
        for number, step in enumerate(estimator.rounds)
    ]


def _noise_of(step: Any) -> str:
    if step.payers == "nobody":
        return "none: it is public"
    if getattr(step, "stddev", None) is None:
        return "discrete Laplace, once, on exact sums"
    return "Gaussian, once, on exact sums; (epsilon, delta) is of all windows together"


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
