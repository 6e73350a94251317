"""Reports from the store of the users' side of rounds.

Computed from the reports that its ledger charged.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.operators.rounds.round_records import Estimate
from meanstream.pipelines.commands.explain import explain_rounds
from meanstream.pipelines.commands.report.report_charts import budget_chart
from meanstream.pipelines.commands.report.report_parts import (
    ReportPage,
    ReportPart,
    report_part_commands,
    report_part_ledger_table,
    report_part_number,
    report_run_facts,
)
from meanstream.pipelines.commands.report.report_result import report_result_windows
from meanstream.pipelines.page.page_figures import page_figures_of_window
from meanstream.streaming.metrics.metric_records import budget_histogram_record
from meanstream.streaming.rounds.rounds_budget import rounds_budgets
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_round import WindowRound, estimate_event_line
from meanstream.streaming.rounds.window_widths import MICROS, Window
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_identity import SIDE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meanstream.streaming.store.store_audit import LedgerReport

FLAGS = (
    "window",
    "lower",
    "upper",
    "epsilon",
    "user_budget",
    "user_windows",
    "name",
    "estimator",
    "mode",
    "sizes",
    "users",
    "between_users",
    "level",
    "values",
    "categories",
    "quantiles",
)


def report_of_rounds(path: Path, ledger: LedgerReport) -> ReportPage:
    """Report the rounds of a store whose ledger was verified."""
    settings = _rounds_settings(path)
    whole = rounds_budgets(path)
    times = "none yet"
    counts = [user.reports for user in whole.users]
    spent = [counts.count(k) for k in range(max(counts, default=0) + 1)]
    budgets = budget_histogram_record(len(counts), spent, settings.horizon)
    apart = settings.central or settings.prediction is not None
    rows = [] if apart else report_answers_of_rounds(path, settings)

    if rows:
        parts = report_result_windows(rows)
        times = f"{rows[0]['start']} to {rows[-1]['end']}"
    elif apart:
        whose = "a trusted curator" if settings.central else "windows with a forecast"
        said = f"The answers of {whose} are not in the store: give the file of --sink as --result."
        parts = [ReportPart(title="Rounds per window", text=said)]
    else:
        parts = [ReportPart(title="Rounds per window", text="No window has been answered yet.")]

    most = (
        f"The user with the largest spending has spent epsilon {whole.summary.spent_max:g}, in "
        f"{budgets['most']} rounds"
    )
    limit = (
        "there is no limit."
        if settings.user_budget is None
        else f"the budget is {settings.user_budget:g}."
    )
    if settings.user_windows is not None:
        shared = f"{settings.user_windows:,} windows together"
        limit = f"the budget is epsilon {settings.epsilon:g} for {shared}."

    text = f"{most}; {limit} {settings.protected}"

    parts.append(
        ReportPart(title="Privacy budget", text=text, picture=budget_chart(budgets, "users"))
    )
    unable = "users who cannot pay for another round", report_part_number(whole.summary.at_budget)
    table = [*report_part_ledger_table(ledger), unable]

    if rows:
        again = "windows whose answer was computed again from the charged reports"
        table.append((again, report_part_number(len(rows))))

    parts.append(ReportPart(title="Reliability", table=table))
    lines = explain_rounds.explain_rounds_text(explain_rounds.explain_rounds_facts(settings))
    parts.append(ReportPart(title="Privacy promise", lines=lines, aligned=True))
    own = "".join(f" --option {name}={value}" for name, value in settings.options.items())
    flags = {name: getattr(settings, name) for name in FLAGS}
    flags |= {"delta": settings.user_delta or None}

    if settings.categories is not None:
        flags |= {"lower": None, "upper": None}

    for name in ("prediction", "user_epsilons"):
        column = getattr(settings, name)
        if column is not None:
            flags |= {name: f"FILE.csv:{column}"}

    parts.append(report_part_commands("rounds", path, flags, own))
    return ReportPage(
        title="Meanstream: rounds",
        about=f"From the store {path.name}; of users' reports only, hence public.",
        parts=parts,
        facts=[*report_run_facts(path, settings), ("windows answered, in event time", times)],
    )


def _rounds_settings(path: Path) -> RoundsSettings:
    store = Store.read(path)
    try:
        plain = store.state("identity")["settings"]
    finally:
        store.close()

    return RoundsSettings.of_plain({name: value for name, value in plain.items() if name != SIDE})


def report_answers_of_rounds(path: Path, settings: RoundsSettings) -> list[dict[str, Any]]:
    """Public: compute the answer of every complete round again, from the reports in the ledger."""
    import msgspec

    decoder = msgspec.json.Decoder(dict[str, Any])
    rounds: dict[str, dict[int, list[list[int]]]] = defaultdict(lambda: defaultdict(list))
    for block in _ledger_of_rounds(path):
        for report in map(decoder.decode, block.output):
            rounds[report["round_id"]][report["stage"]].append(report["payload"])

    events = []
    carried = None
    for name in sorted(
        rounds, key=_begin_and_end
    ):  # what one window shows may be carried into the next
        event, carried = _answer(settings, name, rounds[name], carried)
        events += [] if event is None else [event]

    lower = settings.lower
    upper = settings.upper
    bounds = None if isinstance(lower, tuple) or isinstance(upper, tuple) else (lower, upper)

    return [
        page_figures_of_window(event, bounds)
        for event in sorted(events, key=lambda event: str(event["start"]))
    ]


def _begin_and_end(name: str) -> tuple[int, int]:
    """Read a round's window off its id, in microseconds."""
    begin, end = (
        round(datetime.fromisoformat(text).timestamp() * MICROS) for text in name.split("/")[1:3]
    )
    return begin, end


def _answer(
    settings: RoundsSettings,
    name: str,
    stages: dict[int, list[list[int]]],
    carried: dict[str, Any] | None,
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Compute one round's answer, and what it carries on.

    None if a stage is missing whose users are not asked yet.
    """
    import json

    import numpy as np

    users = sum(map(len, stages.values()))
    window_round = WindowRound(
        settings, Window(*_begin_and_end(name)), settings.design_users(users), carried
    )
    public: dict[str, Any] = {}
    counted = 0

    for stage in window_round.stages:
        payload = stages.get(stage, [])
        reports = np.array(payload, np.int64).reshape(len(payload), -1 if payload else 0)
        tally, _ = window_round.tally(stage, public, reports)
        result = window_round.decode(stage, public, tally)
        counted += tally.n

        if isinstance(result, Estimate):
            event: dict[str, Any] = json.loads(
                estimate_event_line(window_round, result, counted).lines[0]
            )
            return event, window_round.carried_after(result)

        public = result

    return None, carried


def _ledger_of_rounds(path: Path) -> Iterator[Any]:
    """Give the rows of a ledger, each compared with its chain."""
    store = Store.read(path)
    try:
        for block in store.ledger.verified():
            yield block.rows
    finally:
        store.close()
