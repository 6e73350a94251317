"""What `meanstream budget` prints: a row per agent or user, and a sentence about all."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from meanstream.operators.validation import printable
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.streaming.agents.agents_budget import (
    AgentBudget,
    Budgets,
    BudgetSummary,
    agents_budgets,
    budget_forecast_text,
    budgets_of_shards,
)
from meanstream.streaming.agents.pairwise.pairwise_budget import (
    PairBudgets,
    PairedAgentBudget,
    pair_budgets,
)
from meanstream.streaming.events.times import iso_time
from meanstream.streaming.own_paths import stores_at
from meanstream.streaming.rounds.rounds_budget import (
    RoundsBudgets,
    RoundsBudgetSummary,
    has_rounds_budget,
    rounds_budgets,
)
from meanstream.streaming.store.deployment_store import kind_of_store
from meanstream.streaming.store.state_store import StoreError
from meanstream.streaming.store.store_identity import OF_PAIRS


def show_budget(*, store: Path, agent: str | None, as_of: str | None, as_json: bool) -> None:
    """Show the budget of each agent: spent, left, when it ends."""
    until = None if as_of is None else _seconds(as_of)
    with refusing_options():
        stores = stores_at(store)

    try:
        if _shown_otherwise(stores[0], agent, until, as_json=as_json):
            return

        shards = [agents_budgets(path, as_of=until, foretell=True) for path in stores]
    except StoreError as error:
        raise BadOption(str(error)) from None

    budgets = budgets_of_shards(shards) if len(shards) > 1 else shards[0]
    ends = _ends_by_agent(budgets)
    rows = [row for row in budgets.agents if agent in (None, row.agent)]

    if agent is not None and not rows:
        raise BadOption(f"agent must be one of the store's, got {agent!r}")

    if as_json:
        foretold = None if budgets.forecast is None else asdict(budgets.forecast)
        summary = (
            {} if agent is not None else {"summary": asdict(budgets.summary), "forecast": foretold}
        )
        print_options_json(
            {
                "agents": [asdict(row) | {"ends": iso_time(ends[row.agent])} for row in rows],
                **summary,
            }
        )

        return

    sys.stdout.writelines(_table(rows, ends))
    if agent is None:
        sys.stdout.write(
            "" if budgets.forecast is None else f"{budget_forecast_text(budgets.forecast)}\n"
        )
        sys.stdout.write(_sentence(budgets.summary))


def _ends_by_agent(budgets: Budgets) -> dict[str, float | None]:
    """Give when each agent's budget ends; None where that is not foretold."""
    names = (row.agent for row in budgets.agents)
    ends = budgets.ends or [None] * len(budgets.agents)
    return dict(zip(names, ends, strict=True))


def _shown_otherwise(store: Path, who: str | None, until: float | None, *, as_json: bool) -> bool:
    """Show the budgets of a store of pairs or of rounds; False if it is neither."""
    if kind_of_store(store) == OF_PAIRS:
        show_pair_budgets(pair_budgets(store, as_of=until), who, as_json=as_json)
        return True

    if has_rounds_budget(store):
        _show_rounds(rounds_budgets(store, as_of=until), who, as_json=as_json)
        return True

    return False


def _show_rounds(found: RoundsBudgets, user: str | None, *, as_json: bool) -> None:
    rows = [row for row in found.users if user in (None, row.user)]
    if user is not None and not rows:
        raise BadOption(f"agent must be one of the store's users, got {user!r}")

    if as_json:
        summary = {} if user is not None else {"summary": asdict(found.summary)}
        print_options_json({"users": [asdict(row) for row in rows], **summary})
        return

    whole = found.summary
    paid = "reports" if whole.trust == "local" else "charges"
    remaining = "remaining" if whole.user_windows is None else "windows"
    sys.stdout.write(f"{'user':<24} {paid:>7} {'epsilon':>9} {remaining:>9}\n")

    for row in rows:
        left = "-" if row.remaining is None else f"{row.remaining:g}"
        left = left if row.windows_left is None else f"{row.windows_left:,}"
        sys.stdout.write(f"{printable(row.user):<24} {row.reports:>7} {row.spent:>9g} {left:>9}\n")

    if user is None:
        sys.stdout.write(_rounds_sentence(whole, paid))


def _rounds_sentence(whole: RoundsBudgetSummary, paid: str) -> str:
    """Say what all users of rounds have spent together."""
    limit = "no limit" if whole.user_budget is None else f"{whole.user_budget:g} each"
    if whole.user_windows is not None:
        delta = f", delta {whole.delta:g}" if whole.delta else ""
        limit = f"epsilon {whole.epsilon:g}{delta} for {whole.user_windows:,} windows together"

    return (
        f"{whole.users:,} users: {whole.reports:,} {paid}, at most epsilon {whole.spent_max:g} spent "
        f"(budget: {limit}), {whole.at_budget:,} users cannot pay for another {paid[:-1]}\n"
    )


def _table(rows: list[AgentBudget], ends: Mapping[str, float | None]) -> list[str]:
    lines = [
        f"{'agent':<24} {'spent':>7} {'remaining':>9} {'horizon':>7} {'ends':>15}  protected at\n"
    ]
    lines += [
        f"{printable(row.agent):<24} {row.spent:>7} {_left(row.remaining):>9} {_left(row.horizon):>7} "
        f"{_end(row, ends[row.agent]):>15}  "
        f"({row.epsilon:g}, {row.delta:g})\n"
        for row in rows
    ]

    return lines


def _left(number: int | None) -> str:
    """Write a number of releases; none where there is no end."""
    if number is None:
        return "-"
    return str(number)


def _end(row: AgentBudget, end: float | None) -> str:
    """Say on which day of event time an agent makes its last release."""
    if row.remaining is None:
        return "no end"
    if not row.remaining:
        return "ended"

    if end is None:
        return "-"
    return (iso_time(end) or "after year 5138").partition("T")[0]


def _sentence(summary: BudgetSummary) -> str:
    refused = "" if summary.refused is None else f", {summary.refused:,} releases refused"
    if summary.horizon is None:
        return f"{summary.agents:,} agents: at most {summary.spent_max:,} releases each so far, without end{refused}\n"

    return (
        f"{summary.agents:,} agents: at most {summary.spent_max:,} of {summary.horizon:,} releases spent, "
        f"{summary.at_horizon:,} at their horizon{refused}\n"
    )


def _seconds(text: str) -> float:
    """Read a time of the command line."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"as_of must be a time in ISO 8601, got {text!r}") from None

    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


PRIVATE = "who queried whom depends on values with restricted_round_robin: this is for the operator"


def show_pair_budgets(found: PairBudgets, agent: str | None, *, as_json: bool) -> None:
    """Show the budget of each agent towards its readers; of one agent, towards each of them."""
    rows = [row for row in found.agents if agent in (None, row.agent)]
    if not rows and agent is not None:
        raise BadOption(f"agent must be one of the store's, got {agent!r}")

    if as_json:
        whole = (
            {"summary": asdict(found.summary)}
            if agent is None
            else {"readers": [asdict(row) for row in found.readers[agent]]}
        )
        print_options_json(
            {"agents": [asdict(row) for row in rows], **whole, "public": found.public}
        )
        return

    sys.stdout.writelines(_agents_table(rows))
    if agent is None:
        sys.stdout.write(_summary_sentence(found))
    else:
        sys.stdout.writelines(_readers_table(found, agent))

    if not found.public:
        sys.stdout.write(f"{PRIVATE}\n")


def _agents_table(rows: list[PairedAgentBudget]) -> Iterator[str]:
    heads = ("agent", "readers", "spent", "remaining", "horizon", "epsilon of all", "of each")
    yield "{:<24} {:>7} {:>7} {:>9} {:>9} {:>14}  {}\n".format(*heads)
    for row in rows:
        yield (
            f"{printable(row.agent):<24} {row.readers:>7} {row.spent:>7} "
            f"{row.remaining:>9} {row.horizon:>9} "
            f"{row.epsilon_of_all_readers:>14.4g}  ({row.epsilon:g}, {row.delta:g})\n"
        )


def _readers_table(found: PairBudgets, agent: str) -> Iterator[str]:
    yield f"{'released to':<24} {'spent':>15} {'remaining':>9}\n"
    for row in found.readers[agent]:
        yield f"{printable(row.reader):<24} {row.spent:>15} {row.remaining:>9}\n"


def _summary_sentence(found: PairBudgets) -> str:
    whole = found.summary
    pooled = f"{whole.epsilon_of_all_readers:.4g}"
    return (
        f"{whole.agents:,} agents: {whole.releases:,} releases in {whole.pairs:,} pairs, "
        f"at most {whole.spent_max:,} of {whole.horizon:,} to one reader, "
        f"{whole.at_horizon:,} pairs at their horizon\n"
        f"epsilon holds towards each reader; all readers of one agent together: at most {pooled}\n"
    )
