"""Reports from the store of the users' side of rounds: computed from the reports that its ledger charged."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.commands.report_parts import Part, Report, commands, ledger_rows, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.rounds.settings import RoundsSettings
    from streaming.store.audit import LedgerReport

FLAGS = (
    "window",
    "lower",
    "upper",
    "epsilon",
    "user_budget",
    "name",
    "estimator",
    "mode",
    "sizes",
    "users",
    "between_users",
    "level",
    "values",
)


def report_of_rounds(path: Path, ledger: LedgerReport) -> Report:
    """Report the rounds of a store whose ledger was verified."""
    from pipelines.commands import explain_rounds
    from pipelines.commands.report_charts import budget_chart
    from pipelines.commands.report_result import window_parts
    from streaming.rounds.budget import rounds_budgets
    from streaming.telemetry_records import budget

    settings, whole = _rounds_settings(path), rounds_budgets(path)
    counts = [user.reports for user in whole.users]
    spent = [counts.count(k) for k in range(max(counts, default=0) + 1)]
    found = budget(len(counts), spent, settings.horizon)
    rows = [] if settings.central else answers_again(path, settings)
    if rows:
        parts = window_parts(rows)
    elif settings.central:
        said = "The answers of a trusted curator are not in the store: give the file of --sink as --result."
        parts = [Part(title="Rounds per window", text=said)]
    else:
        parts = [Part(title="Rounds per window", text="No window has been answered yet.")]
    most = f"Who spent most has spent epsilon {whole.summary.spent_max:g}, in {found['most']} rounds"
    limit = "there is no limit." if settings.user_budget is None else f"the budget is {settings.user_budget:g}."
    parts.append(Part(title="Privacy budget", text=f"{most}; {limit}", picture=budget_chart(found, "users")))
    table = [*ledger_rows(ledger), ("users who cannot pay for another round", number(whole.summary.at_budget))]
    if rows:
        table.append(("windows whose answer was computed again from the charged reports", number(len(rows))))
    parts.append(Part(title="Reliability", table=table))
    lines = explain_rounds.as_text(explain_rounds.rounds_facts(settings))
    parts.append(Part(title="What is protected, and how", lines=lines))
    own = "".join(f" --option {name}={value}" for name, value in settings.options.items())
    parts.append(commands("rounds", path, {name: getattr(settings, name) for name in FLAGS}, own))
    return Report(
        title="Meanstream: rounds",
        about=f"From the store {path.name}; of users' reports only, hence public.",
        parts=parts,
    )


def _rounds_settings(path: Path) -> RoundsSettings:
    from streaming.rounds.settings import RoundsSettings
    from streaming.store.store import Store

    store = Store.read(path)
    try:
        plain = store.state("identity")["settings"]
    finally:
        store.close()
    return RoundsSettings(**{name: value for name, value in plain.items() if name != "side"})


def answers_again(path: Path, settings: RoundsSettings) -> list[dict[str, Any]]:
    """Public: compute the answer of every complete round again, from the reports in the ledger."""
    import msgspec

    from pipelines.page.figures import window_row

    decoder = msgspec.json.Decoder(dict[str, Any])
    rounds: dict[str, dict[int, list[list[int]]]] = defaultdict(lambda: defaultdict(list))
    for block in ledger_blocks(path):
        for report in map(decoder.decode, block.output):
            rounds[report["round_id"]][report["stage"]].append(report["payload"])
    events = [event for name, stages in rounds.items() if (event := _answer(settings, name, stages)) is not None]
    return [window_row(event, None) for event in sorted(events, key=lambda event: str(event["start"]))]


def _answer(settings: RoundsSettings, name: str, stages: dict[int, list[list[int]]]) -> dict[str, Any] | None:
    """Compute one round's answer; None if a stage is missing whose users have not been asked yet."""
    import json
    from datetime import datetime

    import numpy as np

    from operators.round_records import Estimate
    from streaming.rounds.reports import WindowRound
    from streaming.rounds.windows import MICROS, Window

    begin, end = (round(datetime.fromisoformat(text).timestamp() * MICROS) for text in name.split("/")[1:3])
    users = sum(map(len, stages.values()))
    this = WindowRound(settings, Window(begin, end), settings.design_users(users))
    public: dict[str, Any] = {}
    counted = 0
    for stage in this.stages:
        payload = stages.get(stage, [])
        reports = np.array(payload, np.int64).reshape(len(payload), -1 if payload else 0)
        tally, _ = this.tally(stage, public, reports)
        found = this.decode(stage, public, tally)
        counted += tally.n
        if isinstance(found, Estimate):
            event: dict[str, Any] = json.loads(this.estimate_line(found, counted).lines[0])
            return event
        public = found
    return None


def ledger_blocks(path: Path) -> Iterator[Any]:
    """Give the rows of a ledger, each compared with its chain."""
    from streaming.store.store import Store

    store = Store.read(path)
    try:
        for block in store.ledger.verified():
            yield block.rows
    finally:
        store.close()
