"""What a page or a report draws, as plain data; computed from snapshots."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from meanstream.operators.collaboration.covariates.learned_effects import LIKELY
from meanstream.streaming.agents.agents_budget import (
    ForecastSummary,
    budget_forecast_text,
    days_text,
)
from meanstream.streaming.agents.first_release import FirstRelease
from meanstream.streaming.agents.pairwise.pairs_picture import PairsPicture
from meanstream.streaming.agents.public_population import population_count_probability
from meanstream.streaming.metrics.history import flow_points
from meanstream.streaming.metrics.metric_records import (
    FittedPicture,
    FlowPoint,
    PageView,
    Precision,
    TurnRecord,
    budget_histogram_record,
    carried_figures,
)
from meanstream.streaming.metrics.recent_rate import WINDOW_SECONDS

COUNTS = (
    "events",
    "accepted",
    "agents",
    "releases",
    "refusals",
    "drifts",
    "estimates",
    "input_lag",
    "pending",
    "event_time",
)
ROUNDS_COUNTS = ("agents", "releases", "estimates", "waiting", "over_budget")
COLLABORATION_COUNTS = ("events", "agents", "own_agents", "releases", "estimates", "event_time")
COUNTS_OF = {"agents": COUNTS, "rounds": ROUNDS_COUNTS, "collaborate": COLLABORATION_COUNTS}
LITTLE = 0.05
"""Part by which intervals must be shorter for a gain to be called one."""
MANY_REJECTS = 0.01
"""Part of the records from which on rejected ones are worth a sentence."""
BANDS = ("low", "median", "high")
MOST_COORDINATES = 256


def page_figures(
    view: PageView, *, kind: str, horizon: int | None, bounds: tuple[float, float] | None
) -> dict[str, Any]:
    """Everything that a page shows of a view.

    Notes
    -----
    **Privacy.** As the view: for `kind` "rounds" it holds public figures only, for the others private ones, too.
    """
    common: dict[str, Any] = {
        "version": view.version,
        "about": dict(view.about),
        "kind": kind,
        "running": view.running,
        "problem": view.problem,
    } | _counted(view, kind, horizon)
    if kind == "rounds":
        rows = [page_figures_of_window(event, bounds) for event in view.windows]
        return common | {
            "bounds": bounds,
            "windows": sorted(rows, key=lambda row: str(row["start"])),
        }

    convergence = _convergence(view.precision) | {"drifts": _drift_figure(view.turns)}
    figures = common | {
        "flow": _flow(view),
        **_waited_for(view),
        "convergence": convergence,
        "population": None,
        "pairs": None,
    }
    if view.population is not None:
        figures["population"] = population_figure(view.population)

    events, rejects = _events_and_rejects(view.turns)
    figures |= {
        "rejects": rejects,
        "judgement": run_judgement(convergence["gain"], events, rejects),
    }
    if view.pairs is None:
        return figures

    counts = {**figures["counts"], "releases": view.pairs.releases}
    return figures | _pairs_figures(view.pairs, horizon) | {"counts": counts}


def _counted(view: PageView, kind: str, horizon: int | None) -> dict[str, Any]:
    """Counts of the newest turn, and the budgets spent by then; nothing before the first turn."""
    counted: dict[str, Any] = {"counts": {}, "budget": None}
    for newest in view.turns[-1:]:
        counted["counts"] = {name: getattr(newest, name) for name in COUNTS_OF[kind]}
        if kind != "collaborate":
            counted["budget"] = budget_histogram_record(newest.agents, newest.spent, horizon)

    return counted


def _waited_for(view: PageView) -> dict[str, Any]:
    """When the first and the next release are due, and what was read and answered last."""
    first_release = None
    for newest in view.turns[-1:]:
        first_release = newest.first_release

    return {
        "first_release": first_release,
        "next_release": _due(view.next_release),
        "answered_until": view.answered_until,
        "last_record": _last_record(view.turns),
    }


def _events_and_rejects(turns: Sequence[TurnRecord]) -> tuple[int, dict[str, int]]:
    """Records read so far, and the rejected ones by reason, the most frequent first."""
    for newest in turns[-1:]:
        return newest.events, dict(Counter(dict(newest.rejected)).most_common())

    return 0, {}


def _pairs_figures(picture: PairsPicture, horizon: int | None) -> dict[str, Any]:
    """Public: budgets of agents that query each other."""
    return {
        "pairs": asdict(picture),
        "budget": budget_histogram_record(picture.pairs, picture.spent, horizon),
    }


def run_judgement(gain: float | None, events: int, rejects: Mapping[str, int]) -> str:
    """Say in a sentence what the operator should make of the figures.

    **Privacy.** The gain is of personal estimates, and so is what is said of it: for the page of agents alone, which is
    the operator's.

    Examples
    --------
    >>> run_judgement(1.01, 1000, {})
    'Learning together gains little here: the agents know their own means about as well alone.'
    >>> run_judgement(2.0, 1000, {"late": 30, "bad_value": 20})
    'Learning together makes the median interval 50 % shorter. 5 % of the records are rejected, most as late.'
    """
    sentences = []
    if gain is not None:
        shorter = 1 - 1 / gain
        said = f"Learning together makes the median interval {100 * shorter:.0f} % shorter."
        if shorter < LITTLE:
            said = "Learning together gains little here: the agents know their own means about as well alone."
        sentences.append(said)

    rejected = sum(rejects.values())
    if events and rejected >= MANY_REJECTS * events:
        reason = f" as {max(rejects, key=lambda name: rejects[name])}"
        if len(rejects) > 1:
            reason = f", most{reason}"
        sentences.append(f"{100 * rejected / events:.0f} % of the records are rejected{reason}.")

    return " ".join(sentences)


def _drift_figure(turns: Sequence[TurnRecord]) -> dict[str, list[Any]]:
    """Public: when releases showed that agents' means have changed, and how many since the turn before.

    Examples
    --------
    >>> from dataclasses import replace
    >>> turn = TurnRecord(seconds=1.0, clock=9.0, events=1, accepted=1, agents=1, releases=1, refusals=0, estimates=0,
    ...                   rejected=(), input_lag=None, event_time=5.0, watermark=None, spent=())
    >>> _drift_figure([turn, replace(turn, event_time=6.0, drifts=3)])
    {'event_time': [6.0], 'clock': [9.0], 'number': [3]}
    """
    pairs = itertools.pairwise(turns)
    drifts = [(after, after.drifts - before.drifts) for before, after in pairs]
    drifts = [(turn, number) for turn, number in drifts if number > 0]
    return {
        "event_time": [turn.event_time for turn, _ in drifts],
        "clock": [turn.clock for turn, _ in drifts],
        "number": [number for _, number in drifts],
    }


def _convergence(points: Sequence[Precision]) -> dict[str, Any]:
    """Half-widths of the intervals in the course of time, together and alone.

    The errors where the truth is known.
    """
    figure: dict[str, Any] = {
        "event_time": [point.event_time for point in points],
        "clock": [point.clock for point in points],
        "gain": None,
        "together": {band: [point.together[i] for point in points] for i, band in enumerate(BANDS)},
        "alone": {band: [point.alone[i] for point in points] for i, band in enumerate(BANDS)},
        "error": None,
        "error_alone": None,
        "answered": 0,
        "classes": None,
        "class_agents": None,
    }

    # Errors are known in simulations alone.
    if any(point.error is not None for point in points):
        figure["error"] = [point.error for point in points]
        figure["error_alone"] = [point.error_alone for point in points]

    for newest in points[-1:]:
        figure |= {"answered": newest.answered, "classes": newest.classes}
        if newest.together[1] > 0:
            figure["gain"] = newest.alone[1] / newest.together[1]
        if newest.class_agents is not None:
            figure["class_agents"] = newest.class_agents[1]

    return figure


def population_figure(picture: FittedPicture) -> dict[str, Any]:
    """Components with the agents at each, the spread within them, and the density of the learned prior."""
    description = picture.description
    components = description.get("components", [])
    agents = picture.at[: len(components)]
    return {
        "method": description["method"],
        "agents": picture.agents,
        "components": [
            component | {"agents": n} for component, n in zip(components, agents, strict=False)
        ],
        "spread": description.get("spread"),
        "density": description.get("density"),
        "goes_with_count": _goes_with_count(description),
        "covariates": _covariates_figure(description.get("covariates")),
        "dependent": description.get("dependent"),
    }


def _covariates_figure(learned: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Public: what declared attributes explain, and which of them are shown to have an effect."""
    if learned is None:
        return None
    attributes = [
        {**attribute, "shown": attribute["probability"] >= LIKELY}
        for attribute in learned["attributes"]
    ]

    return {**learned, "attributes": attributes}


def _goes_with_count(description: Mapping[str, Any]) -> dict[str, Any] | None:
    """How likely means, or their spread, go with counts.

    And the trend's center and spread at some counts.
    """
    probability = population_count_probability(description)
    if probability is None:
        return None
    trend = description["count_trend"]["counts"]
    columns = {name: [row[name] for row in trend] for name in ("n", "center", "spread")}

    return {"probability": probability, **columns}


def forecast_figure(forecast: ForecastSummary | None) -> dict[str, Any] | None:
    """Public: when budgets end at this rate, as people say it."""
    if forecast is None:
        return None
    return {"first_in": days_text(forecast.first_days), "text": budget_forecast_text(forecast)}


def _due(release: FirstRelease | None) -> dict[str, Any] | None:
    if release is None:
        return None
    return {"event_time": release.event_time, "why": release.why}


def _flow(view: PageView) -> dict[str, Any]:
    """Events per second, smooth, and how far the engine is behind, by the clock.

    First that of the runs before.
    """
    turns = view.turns
    fresh = flow_points(turns)
    points = [*view.flow]
    if fresh:
        gap = FlowPoint(clock=fresh[0].clock, rate=None)
        points += [gap, *fresh] if points else fresh

    overall = None
    for newest in turns[-1:]:
        if newest.seconds > 0:
            overall = newest.events / newest.seconds

    columns = ("clock", "rate", "lag", "behind")
    flow: dict[str, Any] = {name: [getattr(p, name) for p in points] for name in columns}
    return flow | {"overall": overall, "recent": _recent_rate(turns)}


def _last_record(turns: Sequence[TurnRecord]) -> float | None:
    """Time of day of the newest turn that read something; None where no turn that is known did."""
    read_before = [0, *(turn.events for turn in turns)]
    pairs = zip(turns, read_before, strict=False)
    times = [turn.clock for turn, before in pairs if turn.events > before]
    return times[-1] if times else None


def _recent_rate(turns: Sequence[TurnRecord]) -> float | None:
    """Events per second in the minute before the newest turn, or in all of a shorter run."""
    if not turns or turns[-1].seconds <= 0:
        return None
    newest = turns[-1]
    since = newest.seconds - WINDOW_SECONDS
    earlier = ((t.seconds, t.events) for t in reversed(turns) if t.seconds <= since)
    seconds, events = next(earlier, (0.0, 0))

    return (newest.events - events) / (newest.seconds - seconds)


def page_figures_of_window(
    event: Mapping[str, Any], bounds: tuple[float, float] | None
) -> dict[str, Any]:
    """Public: one window's answer with its interval, and what each stage of its round found, in the value's unit.

    Examples
    --------
    >>> event = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-02T00:00:00Z", "value": 4.0, "interval": [3.0, 5.0],
    ...          "users": 9, "method": "dame", "epsilon": 1.0,
    ...          "stages": [{"stage": "vote", "users": 4, "bin": 1, "votes": 3, "lower": 0.0, "upper": 0.5}]}
    >>> page_figures_of_window(event, (0.0, 10.0))["stages"]
    [{'name': 'vote', 'users': 4, 'votes': 3, 'lower': 5.0, 'upper': 7.5, 'center': 6.25}]
    """
    names = ("start", "end", "categories", "quantiles", "users", "method", "epsilon")
    row: dict[str, Any] = {name: event[name] for name in names if name in event}
    row |= {"value": event["value"], "true": event.get("true"), "stages": [], "carried": None}
    ends = event["interval"]

    # Of vectors the first coordinates.
    if isinstance(event["value"], list):
        row["value"] = event["value"][:MOST_COORDINATES]
        ends = zip(*ends[:MOST_COORDINATES], strict=True)

    row["lower"], row["upper"] = (list(e) if isinstance(e, tuple) else e for e in ends)
    if bounds is not None:
        row["stages"] = [_stage(stage, bounds) for stage in event["stages"]]
        row["carried"] = carried_figures(event, *bounds)

    return row


def _stage(stage: Mapping[str, Any], bounds: tuple[float, float]) -> dict[str, Any]:
    """Where a stage left the users' mean to be, within the declared bounds.

    None where it says nothing of that.
    """
    lower, upper, center = _place(stage)
    users = stage.get("users", stage.get("reports", stage.get("n")))
    figure: dict[str, Any] = {
        "name": str(stage.get("stage", "")),
        "users": users if _number(users) else None,
        "votes": stage.get("votes"),
    }

    # From [-1, 1] to the bounds.
    middle = (bounds[0] + bounds[1]) / 2
    half = (bounds[1] - bounds[0]) / 2
    for name, position in (("lower", lower), ("upper", upper), ("center", center)):
        figure[name] = None if position is None else middle + half * position

    return figure


def _place(stage: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    """Both ends and the center that a stage says, on [-1, 1]; None where it says none."""
    center = stage.get("center")
    reach = stage.get("half_width", stage.get("window"))
    if not _number(center):
        center = None

    if _number(stage.get("lower")) and _number(stage.get("upper")):
        lower, upper = stage["lower"], stage["upper"]
        return lower, upper, (lower + upper) / 2 if center is None else center

    if center is None or not _number(reach):
        return None, None, center
    return max(center - reach, -1.0), min(center + reach, 1.0), center


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
