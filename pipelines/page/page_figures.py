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
    WINDOW_SECONDS,
    FittedPicture,
    FlowPoint,
    PageView,
    Precision,
    TurnRecord,
    budget_histogram_record,
    carried_figures,
)

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
    last = view.turns[-1] if view.turns else None
    common: dict[str, Any] = {
        "version": view.version,
        "about": dict(view.about),
        "kind": kind,
        "running": view.running,
        "problem": view.problem,
        "counts": {} if last is None else {name: getattr(last, name) for name in COUNTS_OF[kind]},
        "budget": None
        if last is None or kind == "collaborate"
        else budget_histogram_record(last.agents, last.spent, horizon),
    }

    if kind == "rounds":
        rows = sorted(
            (page_figures_of_window(event, bounds) for event in view.windows),
            key=lambda row: str(row["start"]),
        )

        return common | {"bounds": bounds, "windows": rows}

    population = None if view.population is None else population_figure(view.population)
    pairs = {} if view.pairs is None else _pairs_figures(view.pairs, horizon)
    records = {
        "flow": _flow(view),
        "rejects": {} if last is None else dict(Counter(dict(last.rejected)).most_common()),
    }

    due = {
        "first_release": None if last is None else last.first_release,
        "next_release": _due(view.next_release),
        "answered_until": view.answered_until,
        "last_record": _last_record(view.turns),
    }
    convergence = _convergence(view.precision) | {"drifts": _drift_figure(view.turns)}
    events = 0 if last is None else last.events
    judged = {"judgement": run_judgement(convergence["gain"], events, records["rejects"])}

    shown = {"convergence": convergence, "population": population, "pairs": None}

    figures = common | records | due | judged | shown | pairs
    if view.pairs is not None:
        figures["counts"] = {**figures["counts"], "releases": view.pairs.releases}

    return figures


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
    shorter = None if gain is None else 1 - 1 / gain

    if shorter is not None and shorter < LITTLE:
        sentences.append(
            "Learning together gains little here: the agents know their own means about as well alone."
        )
    elif shorter is not None:
        sentences.append(
            f"Learning together makes the median interval {100 * shorter:.0f} % shorter."
        )

    rejected = sum(rejects.values())
    if events and rejected >= MANY_REJECTS * events:
        reason = max(rejects, key=lambda name: rejects[name])
        most = f", most as {reason}" if len(rejects) > 1 else f" as {reason}"
        sentences.append(f"{100 * rejected / events:.0f} % of the records are rejected{most}.")

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
    more = ((after, after.drifts - before.drifts) for before, after in itertools.pairwise(turns))
    at = [(turn, number) for turn, number in more if number > 0]
    return {
        "event_time": [turn.event_time for turn, _ in at],
        "clock": [turn.clock for turn, _ in at],
        "number": [number for _, number in at],
    }


def _convergence(points: Sequence[Precision]) -> dict[str, Any]:
    """Half-widths of the intervals in the course of time, together and alone.

    The errors where the truth is known.
    """
    last = points[-1] if points else None
    return {
        "event_time": [p.event_time for p in points],
        "clock": [p.clock for p in points],
        "gain": last.alone[1] / last.together[1]
        if last is not None and last.together[1] > 0
        else None,
        "together": {band: [p.together[i] for p in points] for i, band in enumerate(BANDS)},
        "alone": {band: [p.alone[i] for p in points] for i, band in enumerate(BANDS)},
        "error": [p.error for p in points] if any(p.error is not None for p in points) else None,
        "error_alone": [p.error_alone for p in points]
        if any(p.error is not None for p in points)
        else None,
        "answered": points[-1].answered if points else 0,
        "classes": None if last is None else last.classes,
        "class_agents": None if last is None or last.class_agents is None else last.class_agents[1],
    }


def population_figure(picture: FittedPicture) -> dict[str, Any]:
    """Components with the agents at each, the spread within them, and the density of the learned prior."""
    said = picture.description
    components = said.get("components", [])
    return {
        "method": said["method"],
        "agents": picture.agents,
        "components": [
            {**component, "agents": n}
            for component, n in zip(components, picture.at[: len(components)], strict=False)
        ],
        "spread": said.get("spread"),
        "density": said.get("density"),
        "goes_with_count": _goes_with_count(said),
        "covariates": _covariates_figure(said.get("covariates")),
        "dependent": said.get("dependent"),
    }


def _covariates_figure(learned: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Public: what declared attributes explain, and which of them are shown to have an effect."""
    if learned is None:
        return None
    attributes = [{**one, "shown": one["probability"] >= LIKELY} for one in learned["attributes"]]

    return {**learned, "attributes": attributes}


def _goes_with_count(said: Mapping[str, Any]) -> dict[str, Any] | None:
    """How likely means, or their spread, go with counts.

    And the trend's center and spread at some counts.
    """
    probability = population_count_probability(said)
    if probability is None:
        return None
    trend = said["count_trend"]["counts"]
    columns = {name: [row[name] for row in trend] for name in ("n", "center", "spread")}

    return {"probability": probability, **columns}


def forecast_figure(found: ForecastSummary | None) -> dict[str, Any] | None:
    """Public: when budgets end at this rate, as people say it."""
    if found is None:
        return None
    return {"first_in": days_text(found.first_days), "text": budget_forecast_text(found)}


def _due(found: FirstRelease | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"event_time": found.event_time, "why": found.why}


def _flow(view: PageView) -> dict[str, Any]:
    """Events per second, smooth, and how far the engine is behind, by the clock.

    First that of the runs before.
    """
    turns = view.turns
    fresh = flow_points(view.turns)
    begin = (
        FlowPoint(clock=fresh[0].clock, rate=None) if view.flow and fresh else None
    )  # a gap between the runs
    points = [point for point in (*view.flow, begin, *fresh) if point is not None]

    return {
        **{
            name: [getattr(point, name) for point in points]
            for name in ("clock", "rate", "lag", "behind")
        },
        "overall": turns[-1].events / turns[-1].seconds
        if turns and turns[-1].seconds > 0
        else None,
        "recent": _recent_rate(turns),
    }


def _last_record(turns: Sequence[TurnRecord]) -> float | None:
    """Time of day of the newest turn that read something; None where no turn that is known did."""
    before = (0, *(turn.events for turn in turns))
    return next(
        (
            turn.clock
            for turn, read in zip(reversed(turns), before[-2::-1], strict=True)
            if turn.events > read
        ),
        None,
    )


def _recent_rate(turns: Sequence[TurnRecord]) -> float | None:
    """Events per second in the minute before the newest turn, or in all of a shorter run."""
    if not turns or turns[-1].seconds <= 0:
        return None
    since = turns[-1].seconds - WINDOW_SECONDS
    seconds, events = next(
        ((one.seconds, one.events) for one in reversed(turns) if one.seconds <= since), (0.0, 0)
    )

    return (turns[-1].events - events) / (turns[-1].seconds - seconds)


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
    value = event["value"]
    interval = event["interval"]
    vector = isinstance(value, list)
    named = {part: event[part] for part in ("categories", "quantiles") if part in event}

    return {
        "start": event["start"],
        "end": event["end"],
        **named,
        "value": value[:MOST_COORDINATES] if vector else value,
        "lower": [low for low, _ in interval[:MOST_COORDINATES]] if vector else interval[0],
        "upper": [high for _, high in interval[:MOST_COORDINATES]] if vector else interval[1],
        "users": event["users"],
        "method": event["method"],
        "epsilon": event["epsilon"],
        "true": event.get("true"),
        "stages": [] if bounds is None else [_stage(stage, bounds) for stage in event["stages"]],
        "carried": None if bounds is None else carried_figures(event, *bounds),
    }


def _stage(stage: Mapping[str, Any], bounds: tuple[float, float]) -> dict[str, Any]:
    """Where a stage left the users' mean to be, within the declared bounds.

    None where it says nothing of that.
    """
    middle = (bounds[0] + bounds[1]) / 2
    half = (bounds[1] - bounds[0]) / 2
    center = stage.get("center")
    reach = stage.get("half_width", stage.get("window"))
    ends: tuple[float, float] | None = None

    if _number(stage.get("lower")) and _number(stage.get("upper")):
        ends = (stage["lower"], stage["upper"])
    elif _number(center) and _number(reach):
        ends = (max(center - reach, -1.0), min(center + reach, 1.0))

    if not _number(center):
        center = None if ends is None else (ends[0] + ends[1]) / 2

    users = stage.get("users", stage.get("reports", stage.get("n")))
    return {
        "name": str(stage.get("stage", "")),
        "users": users if _number(users) else None,
        "votes": stage.get("votes"),
        "lower": None if ends is None else middle + half * ends[0],
        "upper": None if ends is None else middle + half * ends[1],
        "center": None if center is None else middle + half * center,
    }


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
