"""`meanstream explain rounds`.

What a round protects, how, what each party sees, and when its interval is honest.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from meanstream.operators.estimators.registry import LEARNING_ESTIMATOR, estimator_taken_for
from meanstream.operators.forecast.rounds_forecast import CARRIED_SPREADS
from meanstream.operators.noise.group_privacy import GROUPS
from meanstream.pipelines.commands.explain.explain_registry import (
    print_registry_record,
    registry_record_of_rounds,
)
from meanstream.pipelines.commands.explain.explain_simulated import (
    explain_central_facts,
    explain_central_lines,
    simulated_channels,
    simulated_half_bounds,
    simulated_users_who_differ,
)
from meanstream.pipelines.commands.explain.promise_facts import (
    ADDS_UP,
    NO_AMPLIFICATION,
    explain_answer,
    explain_answer_lines,
    explain_errors_of_rounds,
    explain_errors_of_rounds_lines,
    explain_odds_lines,
    explain_odds_of_rounds,
    explain_unit_name,
)
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.option_errors import refusing_options
from meanstream.streaming.sources.categories import OTHER, category_names

if TYPE_CHECKING:
    from meanstream.operators.rounds.round_protocol import Estimator
    from meanstream.pipelines.options.rounds_options import RoundsOptions
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings

LATER = "later windows leave out the user's data"
PREDICTION = (
    "users report in narrow windows what a slope times the forecast leaves of their means; the "
    "slope is 0 at first, then cov/var from reports on the bounds of earlier windows, and "
    "announced before each window"
)
"""How a forecast is used."""

USERS = 10_000
"""Used for figures if --users is not set."""

WIDTH = 100
"""Columns of a line for reading."""

_PROTECTED = {
    "user": {
        "protects": "all that one user sends within a window",
        "neighboring": "two windows that differ in everything that one user sent, its number of samples included",
    },
    "sample": {
        "protects": "each single sample, NOT all that one user sends, and NOT its number of samples",
        "neighboring": "two windows that differ in the value of one sample",
    },
}
"""What is protected, and which windows are neighbors, by the unit of privacy."""

_WHO_SEES_WHAT = {
    "a user": "its own samples, and results of earlier stages",
    "the users' side and its store": "samples while they are read, exact sums per user until their window ends",
    "the statistician": "reports: user, stage, and a randomized whole number",
    "everyone": "reports, stage results, estimates, users over budget",
}


def explain_rounds(options: RoundsOptions, *, registry: bool) -> None:
    """Print the facts, as a record of the registry of deployments if that is requested."""
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
    # Without a declared number of users, facts are of an example that says so.
    users = settings.users or USERS
    facts = _facts(settings, settings.estimator_for(users), users)
    facts = facts | explain_central_facts(settings, users) if settings.central else facts
    total = facts["total"]
    samples = facts["privacy_unit"] == "sample"
    odds = explain_odds_of_rounds(
        samples=samples,
        epsilon=total["epsilon"],
        delta=total["delta"],
        shared=settings.window_budget,
        gaussian=settings.gaussian,
    )
    errors = explain_errors_of_rounds(settings, users, simulated_half_bounds(settings))
    strength = f"epsilon {total['epsilon']:g}" + (
        f", delta {total['delta']:g}" if total["delta"] else ""
    )
    unit = _unit_of(facts)
    answer = explain_answer(
        unit, _adversary(settings), strength, odds, windows=settings.user_windows
    )

    if settings.user_windows is not None:
        facts |= _of_windows_together(facts, settings.user_windows)

    return {"answer": answer} | facts | {"odds": odds, "by_epsilon": errors}


def _of_windows_together(facts: dict[str, Any], windows: int) -> dict[str, Any]:
    """Say what is protected, and who neighbors are, where windows share a budget."""
    within = f"within {windows:,} windows"
    return {
        "protects": facts["protects"].replace("within a window", within),
        "neighboring": facts["neighboring"]
        .replace("two windows that", "two streams that")
        .replace("one user sent within them", f"one user sent {within}")
        .replace("one user sent,", f"one user sent {within},"),
    }


def _unit_of(facts: dict[str, Any]) -> str:
    if facts["privacy_unit"] == "sample":
        return "sample"

    if "NOT its number" in facts["protects"]:
        return "values"
    return "window"


def _adversary(settings: RoundsSettings) -> str:
    if settings.central:
        return "everyone but the curator"
    return "everyone else together, the statistician included"


def _facts(settings: RoundsSettings, estimator: Estimator, users: int) -> dict[str, Any]:
    """Give the facts of reports that users randomize themselves."""
    unit = getattr(estimator, "privacy_unit", "user")
    mechanisms = [] if settings.central else _mechanisms(settings, estimator, users)

    return {
        "name": settings.name,
        "mode": settings.mode,
        "planned": settings.categories is None and settings.quantiles is None,
        "privacy_unit": unit,
        "trust": "local",
        **_PROTECTED[unit],
        "unit": _unit_facts(settings, estimator),
        "public": _public(settings, unit),
        "bounds": _bounds(settings, estimator),
        "total": _total(settings, unit),
        "window": {
            "window": settings.window,
            "kind": settings.windows.kind,
            "overlap": settings.windows.overlap,
        },
        "estimator": _estimator(settings, estimator, users),
        "mechanisms": mechanisms,
        "post_processing": "tallies, results of stages, the estimate and its interval, computed from reports alone",
        "who_sees_what": _WHO_SEES_WHAT,
        "users_who_differ": simulated_users_who_differ(settings, users),
    }


def _unit_facts(settings: RoundsSettings, estimator: Estimator) -> dict[str, Any]:
    """Say whose data epsilon covers, and what several windows of a user cost together."""
    delta = _delta_of(settings, estimator)
    windows = []

    # A budget that windows share has one delta for all of them.
    for number in GROUPS:
        deltas = 1 if settings.user_windows else number
        epsilon = float(settings.spent_epsilon(np.array(number)))
        windows.append({"windows": number, "epsilon": epsilon, "delta": deltas * delta})

    return {
        "protects": settings.protected,
        "windows": windows,
        "adds_up": ADDS_UP,
        "amplification": NO_AMPLIFICATION,
    }


def _delta_of(settings: RoundsSettings, estimator: Estimator) -> float:
    """Delta of one window, or of all windows that share a budget."""
    if settings.user_windows is not None:
        return settings.user_delta
    return float(getattr(estimator, "delta", 0.0))


def _public(settings: RoundsSettings, unit: str) -> str:
    """List the public facts besides reports."""
    # Sessions begin and end with a sample: their times show when it was.
    sessions = (
        "; start and end of each session: the times of its first and last sample are NOT protected"
        if settings.windows.kind == "session"
        else ""
    )
    sizes = ""

    if settings.sizes is not None and ".csv:" in settings.sizes:
        sizes = (
            "; the law of sizes as read from the file, which must not be from the protected users"
        )

    forecast = ""
    if settings.prediction is not None:
        forecast = (
            f"; the predictions {settings.prediction!r} of all users who take part, which must "
            "not be made from samples that are protected here"
        )

    accepted = ""
    if settings.user_epsilons is not None:
        accepted = f"; the epsilon {settings.user_epsilons!r} that each user accepts"

    numbers = "; the number of samples of each user" if unit == "sample" else ""

    return f"participation in each window{sessions}{sizes}{forecast}{accepted}{numbers}"


def _bounds(settings: RoundsSettings, estimator: Estimator) -> dict[str, Any]:
    if settings.categories is not None:
        names = category_names(settings.categories)
        unknown_text = (
            "private dead letters (unknown_category); their users take part, with a random category"
        )

        # One category may take all values that are none of the others.
        others = [
            name
            for name, category in zip(names, settings.categories, strict=True)
            if category.endswith(OTHER)
        ]

        return {
            "categories": names,
            "values_outside": f"are {others[0]}" if others else f"become {unknown_text}",
        }

    return {
        "lower": settings.lower,
        "upper": settings.upper,
        "values_outside": f"are clipped{estimator.cut_back()}",
        "resolution": settings.grid.resolution,
    }


def _total(settings: RoundsSettings, unit: str) -> dict[str, Any]:
    """Say what epsilon is of, and what windows of a user cost over time."""
    horizon = settings.horizon
    overlap = settings.windows.overlap

    # Without a budget for users each further window costs epsilon again.
    if settings.user_windows is not None:
        over_time = f"all of it for at most {horizon} windows; {LATER}"
    elif horizon is None:
        over_time = (
            "epsilon times the number of windows with the user's data: no --user-budget is set"
        )
    else:
        over_time = f"at most {horizon} windows; {LATER}"

    over = "one report per user and window (local)"
    if unit == "sample":
        over = "one sample (local)"
    elif settings.user_windows is not None:
        over = f"the reports of {horizon} windows of a user together (local)"

    return {
        "epsilon": settings.epsilon,
        "delta": settings.user_delta,
        "over": over,
        "user_windows": settings.user_windows,
        "shared": settings.window_budget_text,
        "windows_per_sample": overlap,
        "user_budget": settings.user_budget,
        "over_time": over_time,
    }


def _estimator(settings: RoundsSettings, estimator: Estimator, users: int) -> dict[str, Any]:
    # Predictions are on [-1, 1]; a half width of the bounds makes them the value's unit.
    described = estimator.describe()
    scale = simulated_half_bounds(settings)
    return {
        "name": settings.estimator,
        "estimand": estimator.estimand,
        "users": users,
        "users_are": "declared"
        if settings.users is not None
        else "an example: each window counts its users",
        "sizes": settings.sizes,
        "predicted_stderr": float(described["predicted_stderr"]) * scale,
        "between_users": settings.between_users,
        "parameters": {k: v for k, v in described.items() if k != "predicted_stderr"},
        "carried": _carried(estimator, scale) if settings.carries else None,
        "prediction": None if settings.prediction is None else PREDICTION,
    }


def _carried(estimator: Any, scale: float) -> dict[str, Any]:
    """Say what windows hand on, and what it gains after ten of them, by how far users' means are spread."""
    alone = float(estimator.describe()["one_shot_stderr"]) * scale
    return {
        "what": "a center, a spread (from votes), and the users outside a narrow window (from reports on the bounds): "
        "functions of public results, in the store and in each estimate",
        "stderr_after_ten": {
            f"{spread * scale:g}": estimator.predicted_mse(spread, 10) ** 0.5 * scale
            for spread in CARRIED_SPREADS
        },
        "stderr_alone": alone,
        "contradicted": "by reports on the bounds (three standard errors, in one window or the recent ones), "
        "or by users who left the window: then reports on the bounds alone give the answer, and learning restarts",
        "missed": "a small group that suddenly appears far out: by some windows' answers, but not by their intervals, "
        "which cover what reports on the bounds allow"
        if estimator.holds
        else "a small group that suddenly appears far out: by some windows' answers, and by their intervals, too",
    }


def _asks(step: Any, estimator: Any) -> str:
    """Say what a stage asks of a user.

    Of vectors, about how many coordinates and at which share of epsilon.
    """
    asks = (inspect.getdoc(type(getattr(step, "inner", step))) or str(step.name)).partition("\n")[0]

    # Stages of many coordinates ask each user about a few of them.
    if not hasattr(step, "folds"):
        return asks
    each = step.folds.participation
    epsilon = step.epsilon / step.folds.participation
    coordinates = f"{each} of {step.folds.coordinates} {estimator.features_of}"

    return f"{asks} About {coordinates}, which a public hash chooses, at epsilon {epsilon:g}"


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

    # Categories are voted on in the last stage.
    if settings.categories is not None:
        stages[-1]["vote"] = estimator.describe()["vote"]

    stages[-1]["channels"] = simulated_channels(settings, estimator, users)
    return stages


def explain_rounds_text(facts: dict[str, Any]) -> str:
    """Write the same facts for reading."""
    bounds, total, estimator, differ = (
        facts[k] for k in ("bounds", "total", "estimator", "users_who_differ")
    )

    # Lines in the order of the questions: what is protected, from whom, at which strength, how.
    lines = [
        *explain_answer_lines(facts["answer"]),
        explain_unit_name(facts["name"]),
        f"mode            {facts['mode']}",
        f"neighboring     {facts['neighboring']}",
        f"public          {facts['public']}",
        f"total           epsilon {total['epsilon']:g}, delta {total['delta']:g}: {total['over']}",
        f"                a sample is in {total['windows_per_sample']} window(s)",
        *_budget_lines(total),
        *_unit_lines(facts),
        *explain_odds_lines(facts["odds"]),
        _bounds_line(bounds),
        f"estimator       {estimator['name']}, {estimator['estimand']}",
        f"                for {estimator['users']:,} users ({estimator['users_are']}), predicted standard error"
        f" {estimator['predicted_stderr']:.4g}",
        *explain_errors_of_rounds_lines(facts["by_epsilon"], planned=facts["planned"]),
        *_carried_lines(estimator.get("carried")),
        *_prediction_lines(estimator.get("prediction")),
        *(line for stage in facts["mechanisms"] for line in _stage_lines(stage)),
        f"post-processing {facts['post_processing']}",
        "who sees what",
        *(f"  {who:<32}{what}" for who, what in facts["who_sees_what"].items()),
        *_differ_lines(differ),
    ]

    return "\n".join(lines) + "\n"


def _budget_lines(total: dict[str, Any]) -> list[str]:
    """Say what all windows of a user may cost, and which noise keeps a budget that they share."""
    if total["user_windows"] is not None:
        budget = f"                user budget {total['epsilon']:g}: {total['over_time']}"
        return [budget, *_wrapped("one budget", total["shared"])]

    budget = "none" if total["user_budget"] is None else f"{total['user_budget']:g}"
    return [f"                user budget {budget}: {total['over_time']}"]


def _wrapped(title: str, text: str) -> list[str]:
    """Write a long fact on lines of up to 100 columns, below each other."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"{title:<16}",
        subsequent_indent=" " * 16,
        break_on_hyphens=False,
    )


def _bounds_line(bounds: dict[str, Any]) -> str:
    """Say which values are declared, and what becomes of the others."""
    if "categories" in bounds:
        return f"categories      {', '.join(bounds['categories'])}; other values {bounds['values_outside']}"
    return (
        f"bounds          [{_numbers(bounds['lower'])}, {_numbers(bounds['upper'])}], values outside"
        f" {bounds['values_outside']};"
        f" held in steps of {bounds['resolution']:g}"
    )


def _unit_lines(facts: dict[str, Any]) -> list[str]:
    """Say whose data it is, and what it costs to take part again and again."""
    unit = facts["unit"]
    exact = facts["total"].get("with_numerics")
    windows = ", ".join(f"{row['windows']}: {row['epsilon']:g}" for row in unit["windows"])
    lines = [f"unit            {unit['protects']}"]

    # Finite arithmetic costs a little: the exact figures stand above the nominal ones.
    if exact is not None:
        epsilon = exact["epsilon"]
        delta = exact["delta"]
        lines.insert(
            0,
            f"                with finite arithmetic epsilon is at most {epsilon:.9g} and delta {delta:.3g}",
        )

    each_costs = facts["total"]["user_windows"] is None and unit["windows"][0]["delta"]
    grows = " (delta grows as epsilon does)" if each_costs else ""
    lines.append(f"                epsilon by a user's number of windows{grows}: {windows}")
    return [
        *lines,
        f"                {unit['adds_up']}",
        f"                {unit['amplification']}",
    ]


def _stage_lines(stage: dict[str, Any]) -> list[str]:
    if "release" in stage:
        return explain_central_lines(stage)
    lines = [
        f"stage {stage['stage']}         {stage['name']}: {stage['share_of_users']:.0%} of the users, one report each"
        f" at epsilon {stage['epsilon']:g}",
        f"                {stage['asks']}",
    ]

    if "vote" in stage:
        vote = stage["vote"]
        lines.append(
            f"vote            {vote['votes']}: a report names a user's own category with probability {vote['own']:.4g},"
            f" each other one with {vote['other']:.4g}"
        )

    # One line for each channel, in the window's unit and on the bounds.
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
        f"{error:.3g} if they spread by {spread}"
        for spread, error in carried["stderr_after_ten"].items()
    )

    return [
        f"carried         {carried['what']}",
        f"                predicted standard error after ten windows, by the spread of users' own means: {after};"
        f" {carried['stderr_alone']:.3g} if each window is answered alone",
        f"                contradicted {carried['contradicted']}",
        f"                missed {carried['missed']}",
    ]


def _prediction_lines(prediction: str | None) -> list[str]:
    if prediction is None:
        return []
    return [f"forecast        {prediction}"]


def _numbers(bound: float | tuple[float, ...]) -> str:
    return ",".join(f"{number:g}" for number in (bound if isinstance(bound, tuple) else (bound,)))


def _differ_lines(differ: dict[str, Any]) -> list[str]:
    assumed = f"assumed: {differ['assumed']}"
    if differ["warning"] is None:
        return [f"users who differ: {assumed}"]
    return [f"users who differ: {differ['warning']}.", f"  {assumed}", *_simulation_lines(differ)]


def _simulation_lines(differ: dict[str, Any]) -> list[str]:
    with_ = differ["simulated_with"]
    if not differ["simulated"]:
        return [
            "  not simulated here for vectors, densities and mixtures: `meanstream simulate rounds`"
        ]

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
            f"  TOO NARROW if users differ like {', '.join(differ['dishonest_where'])}: there use "
            f"--estimator {LEARNING_ESTIMATOR} or {plain}"
        )

    return lines
