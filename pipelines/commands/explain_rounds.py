"""`meanstream explain rounds`: what a round protects, how, what each party sees, and when its interval is honest."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

from pipelines.commands.explain_central import central_facts, release_lines
from pipelines.commands.options import print_json, refusing
from pipelines.commands.rounds_options import RoundsOptions

if TYPE_CHECKING:
    from operators.rounds import Estimator
    from operators.simulation.rounds import RoundsConfig
    from streaming.rounds.settings import RoundsSettings

USERS, SIZES = 10_000, "uniform:1,199"
"""For figures, where a number of users or a law of sizes is not given."""

LAWS = (None, "normal:0.05", "normal:0.2", "skewed:0.05", "skewed:0.2")
"""Laws of users' own means, standard deviations in half widths of the bounds."""

UNCLIPPED = ("one_shot", "duchi", "item", "semi", "split")
"""Estimators whose users report on the declared bounds."""

MARGIN = 0.15
"""Simulated coverage so far below 95 % is no accident: less than 1 in 1000 of 40 honest runs, 1 in 80 of 10."""

WORK, RUNS = 400_000, 40
"""So many simulated users per law, if that is no more than so many runs."""


def explain_rounds(options: RoundsOptions) -> None:
    """Print the facts."""
    with refusing():
        settings = options.settings()
        facts = rounds_facts(settings)
    if options.json:
        print_json(facts)
    else:
        sys.stdout.write(as_text(facts))


def rounds_facts(settings: RoundsSettings) -> dict[str, Any]:
    """Say what is protected, by which mechanisms, at which total, who sees what; as plain data."""
    users = settings.users or USERS
    facts = _facts(settings, settings.estimator_for(users), users)
    return facts | central_facts(settings, users) if settings.central else facts


def _facts(settings: RoundsSettings, estimator: Estimator, users: int) -> dict[str, Any]:
    return {
        "mode": settings.mode,
        "privacy_unit": "user",
        "trust": "local",
        "protects": "all that one user sends within a window",
        "neighboring": "two windows that differ in everything that one user sent within them, its number of samples "
        "included",
        "public": _public(settings),
        "bounds": _bounds(settings),
        "total": _total(settings),
        "window": {"window": settings.window, "kind": settings.windows.kind, "overlap": settings.windows.overlap},
        "estimator": _estimator(settings, estimator, users),
        "mechanisms": [] if settings.central else _mechanisms(settings, estimator, users),
        "post_processing": "tallies, what each stage found, the estimate and its interval: computed from reports alone",
        "who_sees_what": {
            "a user": "its own samples; what the stages before its own found",
            "the users' side and its store": "samples while they are read, exact sums per user until their window ends",
            "the statistician": "reports: who took part, in which stage, and randomized whole numbers",
            "everybody": "reports, stage results, estimates, redacted dead letters, users over budget",
        },
        "users_who_differ": _heterogeneity(settings, users),
    }


def _public(settings: RoundsSettings) -> str:
    sessions = (
        "; when each session began and ended, hence times of samples" if settings.windows.kind == "session" else ""
    )
    sizes = ""
    if settings.sizes is not None and ".csv:" in settings.sizes:
        sizes = "; the law of sizes, as read from the file, which must not be of the users who are protected"
    return f"who took part in which window; which records were not used, and why{sessions}{sizes}"


def _bounds(settings: RoundsSettings) -> dict[str, Any]:
    return {
        "lower": settings.lower,
        "upper": settings.upper,
        "values_outside": "are clipped",
        "resolution": settings.grid.resolution,
    }


def _total(settings: RoundsSettings) -> dict[str, Any]:
    horizon, overlap = settings.horizon, settings.windows.overlap
    if horizon is None:
        over_time = "epsilon times the number of windows that the user takes part in: no user_budget is set"
    else:
        over_time = f"at most {horizon} windows: then the user's data does not enter any more"
    return {
        "epsilon": settings.epsilon,
        "delta": 0.0,
        "over": "one report per user and window, against everybody, the statistician included (local)",
        "windows_per_sample": overlap,
        "user_budget": settings.user_budget,
        "over_time": over_time,
    }


def _estimator(settings: RoundsSettings, estimator: Estimator, users: int) -> dict[str, Any]:
    described = estimator.describe()
    half = (settings.upper - settings.lower) / 2
    return {
        "name": settings.estimator,
        "estimand": "mean over users of each user's own mean: every user counts once",
        "users": users,
        "users_are": "declared" if settings.users is not None else "an example: they are counted in each window",
        "sizes": settings.sizes,
        "predicted_stderr": float(described["predicted_stderr"]) * half,
        "between_users": settings.between_users,
        "parameters": {k: v for k, v in described.items() if k != "predicted_stderr"},
    }


def _mechanisms(settings: RoundsSettings, estimator: Estimator, users: int) -> list[dict[str, Any]]:
    """Tell what each stage asks, and the noise of one report through each channel that may be used."""
    stages: list[dict[str, Any]] = [
        {
            "stage": number,
            "name": step.name,
            "asks": (inspect.getdoc(type(step)) or step.name).partition("\n")[0],
            "share_of_users": float(share),
            "epsilon": float(step.epsilon),
        }
        for number, (step, share) in enumerate(zip(estimator.rounds, estimator.shares, strict=True))
    ]
    stages[-1]["channels"] = _channels(settings, estimator, users)
    return stages


def _channels(settings: RoundsSettings, estimator: Estimator, users: int) -> list[dict[str, Any]]:
    """Name the channels of the design, and of one simulated round."""
    import numpy as np

    from operators.channels import CHANNELS, make_channel
    from operators.rounds import assign_stages, run_rounds
    from operators.simulation.words import SeededWords

    rng = np.random.default_rng(0)
    population = _config(settings, users, None).population.draw(rng)
    stage = assign_stages(estimator.shares, population.user, b"explained")
    asked = np.bincount(stage, minlength=len(estimator.shares)).tolist()
    answer = run_rounds(estimator, population, stage, [SeededWords(rng, n) for n in asked])
    half = (settings.upper - settings.lower) / 2
    found = []
    for name in sorted((_texts(estimator.describe()) | _texts(list(answer.stages))) & set(CHANNELS)):
        channel = make_channel(name, estimator.epsilon)
        noise = float(channel.variance([0.0])[0]) ** 0.5
        found.append(
            {
                "channel": name,
                "epsilon": channel.spend(),
                "report": f"a whole number from {channel.low} to {channel.high}, worth {channel.step:.6g} half widths",
                "noise_stddev_in_half_widths": noise,
                "noise_stddev_on_the_bounds": noise * half,
            }
        )
    return found


def _texts(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value}
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return {text for part in parts for text in _texts(part)}


def _heterogeneity(settings: RoundsSettings, users: int) -> dict[str, Any]:
    """Simulate users who differ, with the user's own parameters: is the interval still honest, and what is it worth."""
    rows = [_simulated(settings, users, law) for law in LAWS]
    return {
        "warning": "the papers assume that all users draw from one law; where users' own means differ and the "
        "estimator clips around their center, the error does not average out and the interval may miss",
        "assumed": _assumed(settings, users),
        "simulated": rows,
        "simulated_with": {"users": users, "sizes": settings.sizes or SIZES, "runs": _runs(users)},
        "dishonest_where": [row["law"] for row in rows if row["coverage"] < settings.level - MARGIN],
    }


def _assumed(settings: RoundsSettings, users: int) -> str:
    described = settings.estimator_for(users).describe()
    if settings.between_users is not None:
        return f"declared: the standard deviation of users' own means is at most {settings.between_users:g}"
    if "assumption" in described:
        return str(described["assumption"])
    if settings.estimator in UNCLIPPED:
        return "nothing: every user reports on the declared bounds"
    if settings.central:
        return "that a user's number of samples says nothing about its mean: larger users weigh more"
    return "as in its paper: all users draw from one law"


def _config(settings: RoundsSettings, users: int, law: str | None, **changes: Any) -> RoundsConfig:
    from operators.simulation.rounds import RoundsConfig

    plain: dict[str, Any] = {
        "estimator": settings.estimator,
        "users": users,
        "epsilon": settings.epsilon,
        "sizes": settings.sizes or SIZES,
        "data": "rademacher:0",
        "between_users_law": law,
        "runs": _runs(users),
        "mode": settings.mode,
    }
    return RoundsConfig(**{**plain, **changes})


def _simulated(settings: RoundsSettings, users: int, law: str | None) -> dict[str, Any]:
    from operators.simulation.rounds import simulate_rounds

    half = (settings.upper - settings.lower) / 2
    found = simulate_rounds(_config(settings, users, law), settings.estimator_for(users))
    plain = simulate_rounds(_config(settings, users, law, estimator="one_shot"))
    name, _, sd = (law or "").partition(":")
    return {
        "law": f"{name}:{float(sd) * half:g}" if law else "none",
        "coverage": found.coverage,
        "root_mean_squared_error": found.mse**0.5 * half,
        "of_one_shot": (found.mse / plain.mse) ** 0.5,
    }


def _runs(users: int) -> int:
    return max(min(RUNS, WORK // users), 10)


def as_text(facts: dict[str, Any]) -> str:
    """Write the same facts for reading."""
    bounds, total, estimator, differ = (facts[k] for k in ("bounds", "total", "estimator", "users_who_differ"))
    budget = "none" if total["user_budget"] is None else f"{total['user_budget']:g}"
    lines = [
        f"mode            {facts['mode']}",
        f"protected       {facts['protects']}. Neighboring: {facts['neighboring']}",
        f"public          {facts['public']}",
        f"total           epsilon {total['epsilon']:g}, delta {total['delta']:g}: {total['over']}",
        f"                a sample is in {total['windows_per_sample']} window(s)",
        f"                user budget {budget}: {total['over_time']}",
        f"bounds          [{bounds['lower']:g}, {bounds['upper']:g}], values outside {bounds['values_outside']};"
        f" held in steps of {bounds['resolution']:g}",
        f"estimator       {estimator['name']}, {estimator['estimand']}",
        f"                for {estimator['users']:,} users ({estimator['users_are']}), predicted standard error"
        f" {estimator['predicted_stderr']:.4g}",
        *(line for stage in facts["mechanisms"] for line in _stage_lines(stage)),
        f"post-processing {facts['post_processing']}",
        "who sees what",
        *(f"  {who:<32}{what}" for who, what in facts["who_sees_what"].items()),
        f"users who differ: {differ['warning']}.",
        f"  {differ['assumed']}",
        *_simulation_lines(differ),
    ]
    return "\n".join(lines) + "\n"


def _stage_lines(stage: dict[str, Any]) -> list[str]:
    if "release" in stage:
        return release_lines(stage)
    lines = [
        f"stage {stage['stage']}         {stage['name']}: {stage['share_of_users']:.0%} of the users, one report each"
        f" at epsilon {stage['epsilon']:g}",
        f"                {stage['asks']}",
    ]
    lines += [
        f"channel         {channel['channel']}, epsilon {channel['epsilon']:g}: {channel['report']}; noise sd"
        f" {channel['noise_stddev_in_half_widths']:.4g} half widths of the window"
        f" ({channel['noise_stddev_on_the_bounds']:.4g} on the bounds)"
        for channel in stage.get("channels", ())
    ]
    return lines


def _simulation_lines(differ: dict[str, Any]) -> list[str]:
    with_ = differ["simulated_with"]
    lines = [
        f"  simulated with {with_['users']:,} users, sizes {with_['sizes']}, {with_['runs']} runs per law:",
        f"  {'law of users own means':<26}{'coverage':>9}{'error':>9}{'of one_shot':>13}",
    ]
    lines += [
        f"  {row['law']:<26}{row['coverage']:>9.2f}{row['root_mean_squared_error']:>9.3g}{row['of_one_shot']:>13.2f}"
        for row in differ["simulated"]
    ]
    if differ["dishonest_where"]:
        lines.append(
            f"  NOT HONEST where users differ like {', '.join(differ['dishonest_where'])}: there the default (plan,"
            " without --between-users) or one_shot is"
        )
    return lines
