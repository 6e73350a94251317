"""What `meanstream budget` prints of agents that query each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict

from meanstream.operators.validation import printable
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.option_errors import BadOption
from meanstream.streaming.agents.pairwise.pairwise_budget import PairBudgets, PairedAgentBudget

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
