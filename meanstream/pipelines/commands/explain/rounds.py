"""`meanstream explain rounds`: what a round protects, how, what each party sees, and when its interval is honest."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

from meanstream.pipelines.commands.explain.central import explain_central_facts, explain_central_lines
from meanstream.pipelines.commands.explain.odds import (
    explain_errors_of_rounds,
    explain_errors_of_rounds_lines,
    explain_odds_lines,
    explain_odds_of_rounds,
)
from meanstream.pipelines.commands.explain.registry import print_registry_record, registry_record_of_rounds
from meanstream.pipelines.commands.explain.simulated import (
    simulated_channels,
    simulated_half_bounds,
    simulated_users_who_differ,
)
from meanstream.pipelines.commands.explain.unit import ADDS_UP, NO_AMPLIFICATION, explain_unit_name
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.errors import refusing_options
from meanstream.pipelines.options.rounds import RoundsOptions

if TYPE_CHECKING:
    from meanstream.operators.rounds.protocol import Estimator
    from meanstream.streaming.rounds.settings import RoundsSettings

USERS = 10_000
"""For figures, where a number of users is not given."""


def explain_rounds(options: RoundsOptions, *, registry: bool) -> None:
    """Print the facts, as a record of the registry of deployments if that is asked for."""
    with refusing_options():
        settings = options.settings()
        facts = explain_rounds_facts(settings)
    if registry:
        print_registry_record(registry_record_of_rounds(facts), as_json=options.json)
    elif options.json:
        print_options_json(facts)
    else:
        sys.stdout.write(explain_rounds_text(facts))


def explain_rounds_facts(settings: RoundsSettings) -> dict[str, Any]:
    """Say what is protected, by which mechanisms, at which total, who sees what; as plain data."""
    users = settings.users or USERS
    facts = _facts(settings, settings.estimator_for(users), users)
    facts = facts | explain_central_facts(settings, users) if settings.central else facts
    total = facts["total"]
    samples = facts["privacy_unit"] == "sample"
    odds = explain_odds_of_rounds(samples=samples, epsilon=total["epsilon"], delta=total["delta"])
    errors = explain_errors_of_rounds(settings, users, simulated_half_bounds(settings))
    return facts | {"odds": odds, "by_epsilon": errors}


def _facts(settings: RoundsSettings, estimator: Estimator, users: int) -> dict[str, Any]:
    from meanstream.operators.noise.group import GROUPS

    samples = getattr(estimator, "privacy_unit", "user") == "sample"
    return {
        "name": settings.name,
        "mode": settings.mode,
        "privacy_unit": "sample" if samples else "user",
        "trust": "local",
        "protects": "each single sample, NOT all that one user sends, and NOT its number of samples"
        if samples
        else "all that one user sends within a window",
        "neighboring": "two windows that differ in the value of one sample"
        if samples
        else "two windows that differ in everything that one user sent within them, its number of samples included",
        "unit": {
            "protects": settings.protected,
            "windows": [
                {"windows": n, "epsilon": n * settings.epsilon, "delta": n * float(getattr(estimator, "delta", 0.0))}
                for n in GROUPS
            ],
            "adds_up": ADDS_UP,
            "amplification": NO_AMPLIFICATION,
        },
        "public": _public(settings) + ("; how many samples each user has" if samples else ""),
        "bounds": _bounds(settings, estimator),
        "total": _total(settings)
        | ({"over": "one sample, against everybody, the statistician included (local)"} if samples else {}),
        "window": {"window": settings.window, "kind": settings.windows.kind, "overlap": settings.windows.overlap},
        "estimator": _estimator(settings, estimator, users),
        "mechanisms": [] if settings.central else _mechanisms(settings, estimator, users),
        "post_processing": "tallies, what each stage found, the estimate and its interval: computed from reports alone",
        "who_sees_what": {
            "a user": "its own samples; what the stages before its own found",
            "the users' side and its store": "samples while they are read, exact sums per user until their window ends",
            "the statistician": "reports: who took part, in which stage, and randomized whole numbers",
            "everybody": "reports, stage results, estimates, users over budget",
        },
        "users_who_differ": simulated_users_who_differ(settings, users),
    }


def _public(settings: RoundsSettings) -> str:
    sessions = (
        "; when each session began and ended: the times of the first and last of its samples are NOT protected"
        if settings.windows.kind == "session"
        else ""
    )
    sizes = ""
    if settings.sizes is not None and ".csv:" in settings.sizes:
        sizes = "; the law of sizes, as read from the file, which must not be of the users who are protected"
    return f"who took part in which window{sessions}{sizes}"


def _bounds(settings: RoundsSettings, estimator: Estimator) -> dict[str, Any]:
    return {
        "lower": settings.lower,
        "upper": settings.upper,
        "values_outside": f"are clipped{estimator.cut_back()}",
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
    scale = simulated_half_bounds(settings)
    return {
        "name": settings.estimator,
        "estimand": estimator.estimand,
        "users": users,
        "users_are": "declared" if settings.users is not None else "an example: they are counted in each window",
        "sizes": settings.sizes,
        "predicted_stderr": float(described["predicted_stderr"]) * scale,
        "between_users": settings.between_users,
        "parameters": {k: v for k, v in described.items() if k != "predicted_stderr"},
        "carried": _carried(estimator, scale) if settings.carries else None,
    }


def _carried(estimator: Any, scale: float) -> dict[str, Any]:
    """Say what windows hand on, and what it gains after ten of them, by how far users' means are spread."""
    from meanstream.operators.forecast.rounds import CARRIED_SPREADS

    alone = float(estimator.describe()["one_shot_stderr"]) * scale
    return {
        "what": "a center, a spread (from votes), what a narrow window misses (from reports on the bounds, window "
        "after window): functions of public results, in the store and in each estimate",
        "stderr_after_ten": {
            f"{spread * scale:g}": estimator.predicted_mse(spread, 10) ** 0.5 * scale for spread in CARRIED_SPREADS
        },
        "stderr_alone": alone,
        "contradicted": "by reports on the bounds, three standard errors away in one window or over the recent ones, "
        "or by users who left the window: it is then answered from reports on the bounds alone, and all begins anew",
        "missed": "by the answers of some windows, not by the intervals, which reach as far as reports on the bounds "
        "leave it open: a group that appears far out from one window to the next, too small to contradict at once"
        if estimator.holds
        else "for some windows, by the intervals, too: a group that appears far out from one window to the next, "
        "too small to contradict at once",
    }


def _asks(step: Any, estimator: Any) -> str:
    """Say what a stage asks of a user; of vectors, about how many coordinates and at which share of epsilon."""
    asks = (inspect.getdoc(type(getattr(step, "inner", step))) or str(step.name)).partition("\n")[0]
    if not hasattr(step, "folds"):
        return asks
    each, epsilon = step.folds.participation, step.epsilon / step.folds.participation
    some = f"{each} of {step.folds.coordinates} {estimator.features_of}"
    return f"{asks} About {some}, which a public hash chooses, at epsilon {epsilon:g}"


def _mechanisms(settings: RoundsSettings, estimator: Estimator, users: int) -> list[dict[str, Any]]:
    """Tell what each stage asks, and the noise of one report through each channel that may be used."""
    stages: list[dict[str, Any]] = [
        {
            "stage": number,
            "name": step.name,
            "asks": _asks(step, estimator),
            "share_of_users": float(share),
            "epsilon": float(step.epsilon),
        }
        for number, (step, share) in enumerate(zip(estimator.rounds, estimator.shares, strict=True))
    ]
    stages[-1]["channels"] = simulated_channels(settings, estimator, users)
    return stages


def explain_rounds_text(facts: dict[str, Any]) -> str:
    """Write the same facts for reading."""
    bounds, total, estimator, differ = (facts[k] for k in ("bounds", "total", "estimator", "users_who_differ"))
    budget = "none" if total["user_budget"] is None else f"{total['user_budget']:g}"
    lines = [
        explain_unit_name(facts["name"]),
        f"mode            {facts['mode']}",
        f"protected       {facts['protects']}. Neighboring: {facts['neighboring']}",
        f"public          {facts['public']}",
        f"total           epsilon {total['epsilon']:g}, delta {total['delta']:g}: {total['over']}",
        f"                a sample is in {total['windows_per_sample']} window(s)",
        f"                user budget {budget}: {total['over_time']}",
        *_unit_lines(facts),
        *explain_odds_lines(facts["odds"]),
        f"bounds          [{_numbers(bounds['lower'])}, {_numbers(bounds['upper'])}], values outside"
        f" {bounds['values_outside']};"
        f" held in steps of {bounds['resolution']:g}",
        f"estimator       {estimator['name']}, {estimator['estimand']}",
        f"                for {estimator['users']:,} users ({estimator['users_are']}), predicted standard error"
        f" {estimator['predicted_stderr']:.4g}",
        *explain_errors_of_rounds_lines(facts["by_epsilon"]),
        *_carried_lines(estimator.get("carried")),
        *(line for stage in facts["mechanisms"] for line in _stage_lines(stage)),
        f"post-processing {facts['post_processing']}",
        "who sees what",
        *(f"  {who:<32}{what}" for who, what in facts["who_sees_what"].items()),
        f"users who differ: {differ['warning']}.",
        f"  assumed: {differ['assumed']}",
        *_simulation_lines(differ),
    ]
    return "\n".join(lines) + "\n"


def _unit_lines(facts: dict[str, Any]) -> list[str]:
    """Say whose data it is, and what it costs to take part again and again."""
    unit, exact = facts["unit"], facts["total"].get("with_numerics")
    windows = ", ".join(f"{row['windows']}: {row['epsilon']:g}" for row in unit["windows"])
    lines = [f"unit            {unit['protects']}"]
    if exact is not None:
        epsilon, delta = exact["epsilon"], exact["delta"]
        lines.insert(
            0, f"                with finite arithmetic epsilon is at most {epsilon:.9g} and delta {delta:.3g}"
        )
    grows = " (delta grows as epsilon does)" if unit["windows"][0]["delta"] else ""
    lines.append(f"                what epsilon becomes for a user in so many windows{grows}: {windows}")
    return [*lines, f"                {unit['adds_up']}", f"                {unit['amplification']}"]


def _stage_lines(stage: dict[str, Any]) -> list[str]:
    if "release" in stage:
        return explain_central_lines(stage)
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


def _carried_lines(carried: dict[str, Any] | None) -> list[str]:
    if carried is None:
        return []
    after = ", ".join(
        f"{error:.3g} if they spread by {spread}" for spread, error in carried["stderr_after_ten"].items()
    )
    return [
        f"carried         {carried['what']}",
        f"                predicted standard error after ten windows, by the spread of users' own means: {after};"
        f" {carried['stderr_alone']:.3g} where each window is answered alone",
        f"                contradicted {carried['contradicted']}",
        f"                missed {carried['missed']}",
    ]


def _numbers(bound: float | tuple[float, ...]) -> str:
    return ",".join(f"{x:g}" for x in (bound if isinstance(bound, tuple) else (bound,)))


def _simulation_lines(differ: dict[str, Any]) -> list[str]:
    from meanstream.operators.estimators.registry import LEARNING_ESTIMATOR, estimator_taken_for

    with_ = differ["simulated_with"]
    if not differ["simulated"]:
        return ["  not simulated here: vectors, densities and mixtures have laws of their own (simulate rounds)"]
    plain = estimator_taken_for("no search")
    lines = [
        f"  simulated with {with_['users']:,} users, sizes {with_['sizes']}, {with_['runs']} runs per law:",
        f"  {'law of users own means':<26}{'coverage':>9}{'error':>9}{f'of {plain}':>13}",
    ]
    lines += [
        f"  {row['law']:<26}{row['coverage']:>9.2f}{row['root_mean_squared_error']:>9.3g}{row['of_one_shot']:>13.2f}"
        for row in differ["simulated"]
    ]
    if differ["dishonest_where"]:
        lines.append(
            f"  NOT HONEST where users differ like {', '.join(differ['dishonest_where'])}: there "
            f"{LEARNING_ESTIMATOR} is, or {plain}"
        )
    return lines
