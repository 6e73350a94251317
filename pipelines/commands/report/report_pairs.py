"""Reports from the store of agents that query each other.

Their releases are for one reader each, so a report has none of them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.pipelines.commands.explain.explain_pairs import (
    explain_pairs_facts,
    explain_pairs_text,
)
from meanstream.pipelines.commands.report.report_charts import budget_chart
from meanstream.pipelines.commands.report.report_parts import (
    ReportPage,
    ReportPart,
    report_part_command_line,
    report_part_commands,
    report_part_number,
    report_run_facts,
)
from meanstream.streaming.agents.pairwise.pairwise_budget import PairBudgets, pair_budgets
from meanstream.streaming.agents.pairwise.pairwise_deployment import pairs_settings_of_store
from meanstream.streaming.metrics.metric_records import budget_histogram_record
from meanstream.streaming.store.state_store import Store

if TYPE_CHECKING:
    from meanstream.streaming.store.store_audit import LedgerReport

FLAGS = ("lower", "upper", "epsilon", "delta", "mode", "counter", "noise", "calibration", "horizon")
OWN_FLAGS = ("schedule", "weights", "variance", "stddev")


def report_of_pairs(path: Path, ledger: LedgerReport) -> ReportPage:
    """Report on a pairwise store whose ledger was verified.

    **Privacy.** A function of settings, names of agents and, under round_robin, of the times of
    samples: the report may leave the trust domain. How many releases there were under
    restricted_round_robin, each release, and the head of the ledger, which hashes them, are not in
    it.
    """
    found = pairs_settings_of_store(path)
    assert found is not None  # noqa: S101 - the store is one of pairs
    settings, agents = found
    whole = pair_budgets(path)
    facts = explain_pairs_facts(settings, agents)

    parts = [
        _readers_part(facts),
        _budget_part(whole, settings),
        _elsewhere_part(path),
        _reliability_part(whole, ledger),
        ReportPart(title="Privacy promise", lines=explain_pairs_text(facts), aligned=True),
        report_part_commands("agents", path, _flags(settings, path)),
    ]

    return ReportPage(
        title="Meanstream: agents that query each other",
        about=f"From the store {path.name}; without any release, hence public.",
        parts=parts,
        facts=[
            *report_run_facts(path, settings.release),
            ("holds towards", "each reader, see Readers who pool"),
            ("agents", report_part_number(agents)),
        ],
    )


def _readers_part(facts: dict[str, Any]) -> ReportPart:
    """Say what several readers of one agent learn."""
    table = [
        (f"readers: {one['readers']:,}", f"epsilon {report_part_number(one['epsilon'])}")
        for one in facts["readers_who_pool"]
    ]
    said = (
        "Each pair of agents has noise of its own, so readers who pool what they received of one "
        "agent learn more than one of them."
    )

    return ReportPart(title="Readers who pool", text=said, table=table)


def _budget_part(whole: PairBudgets, settings: Any) -> ReportPart:
    """Draw how often agents have released to a reader, where that is a function of times alone."""
    title = "Privacy budget"
    if not whole.public:
        said = (
            f"Under {settings.schedule} the number of releases depends on values, and is for the "
            f"operator: `meanstream budget`. {settings.release.protected}"
        )
        return ReportPart(title=title, text=said)

    counts = Counter(row.spent for rows in whole.readers.values() for row in rows)
    spent = [counts[made] for made in range(whole.summary.spent_max + 1)]
    found = budget_histogram_record(whole.summary.pairs, spent, whole.summary.horizon)
    said = (
        f"{whole.summary.pairs:,} pairs of an agent and a reader have exchanged "
        f"{whole.summary.releases:,} releases, the pair with most {found['most']:,} of "
        f"{whole.summary.horizon:,}. {settings.release.protected}"
    )

    return ReportPart(title=title, text=said, picture=budget_chart(found, "pairs"))


def _elsewhere_part(path: Path) -> ReportPart:
    """Say where the answers are, which are for one agent each."""
    lines = [
        report_part_command_line("get AGENT", {"store": path.name}),
        report_part_command_line("budget", {"store": path.name}),
    ]
    said = (
        "An estimate, with the members of its class, is for its agent; who released how often to "
        "whom is for the operator."
    )

    return ReportPart(title="Where the answers are", text=said, lines="\n".join(lines))


def _reliability_part(whole: PairBudgets, ledger: LedgerReport) -> ReportPart:
    rows = report_part_number(ledger.rows)
    table = [("each row of the ledger compared with its hash chain", "yes")]
    if whole.public:
        table = [("rows of the ledger, each compared with its hash chain", rows)]

    return ReportPart(title="Reliability", table=table)


def _flags(settings: Any, path: Path) -> dict[str, Any]:
    """Give the options that make these settings again."""
    release = {name: getattr(settings.release, name) for name in FLAGS}
    own = {name: getattr(settings, name) for name in OWN_FLAGS}

    # A store keeps a digest of the graph of partners.
    with closing(Store.read(path)) as store:
        graph = (store.settings() or {}).get("partners")

    return release | own | {"partners": None if graph is None else "..."}
