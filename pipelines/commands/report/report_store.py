"""Reports from the store of a run.

Everything in them is public, computed from what the ledger charged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.operators.collaboration.covariates.learned_effects import LIKELY
from meanstream.operators.collaboration.followed_releases import FollowedReleases, NewestReleases
from meanstream.operators.records import Floats, ReleaseColumns
from meanstream.pipelines.commands.explain import agents_facts as explain
from meanstream.pipelines.commands.explain.explain_pairs import (
    explain_pairs_facts,
    explain_pairs_text,
)
from meanstream.pipelines.commands.report.report_charts import (
    budget_chart,
    convergence_chart,
    counts_chart,
    population_chart,
)
from meanstream.pipelines.commands.report.report_parts import (
    ReportPage,
    ReportPart,
    report_part_command_line,
    report_part_commands,
    report_part_ledger_table,
    report_part_number,
    report_run_facts,
)
from meanstream.pipelines.commands.report.report_rounds import report_of_rounds
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.page.page_figures import population_figure
from meanstream.streaming.agents.agents_budget import Budgets, agents_budgets, budget_forecast_text
from meanstream.streaming.agents.agents_releases import releases_of_ledger
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.agents.pairwise.pairwise_budget import PairBudgets, pair_budgets
from meanstream.streaming.agents.pairwise.pairwise_deployment import pairs_settings_of_store
from meanstream.streaming.agents.saved_agents import own_settings
from meanstream.streaming.agents.store_answers import covariates_of_last_run
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.times import iso_time
from meanstream.streaming.metrics.metric_records import budget_histogram_record
from meanstream.streaming.own_paths import stores_at
from meanstream.streaming.rounds.rounds_budget import has_rounds_budget
from meanstream.streaming.store.deployment_store import kind_of_store
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_audit import LedgerReport, audit_ledger
from meanstream.streaming.store.store_identity import OF_PAIRS

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings
    from meanstream.operators.collaboration.covariates.covariate_design import AgentCovariates
    from meanstream.streaming.agents.public_population import PublicPopulation
    from meanstream.streaming.store.store_audit import LedgerReport


FLAGS = (
    "lower",
    "upper",
    "epsilon",
    "delta",
    "mode",
    "counter",
    "noise",
    "calibration",
    "horizon",
    "levels",
    "schedule",
    "memory",
)
PROBABLE = 0.5
"""From there on the page and the report draw how means go with numbers of samples."""
POINTS = 16
"""Points of the course of convergence; a population is fitted for each."""


def report_of_store(path: Path) -> ReportPage:
    """Verify a store's ledger and report what was released.

    **Privacy.** It reads the ledger's outputs, all of which are public, and no agent's own state: the report may leave
    the trust domain.
    """
    stores = stores_at(path)
    if len(stores) > 1:
        return _of_shards(stores)

    # The chain is verified before anything is drawn from it.
    (path,) = stores
    ledger = audit_ledger(path)

    if kind_of_store(path) == OF_PAIRS:
        return report_of_pairs(path, ledger)
    if has_rounds_budget(path):
        return report_of_rounds(path, ledger)

    return _of_agents(path, ledger)


def _of_shards(stores: Sequence[Path]) -> ReportPage:
    """Report what each shard has released, one after the other."""
    pages = {path.stem: report_of_store(path) for path in stores}
    parts = [
        replace(part, title=f"Shard {number}: {part.title}")
        for number, page in pages.items()
        for part in page.parts
    ]

    return replace(next(iter(pages.values())), parts=parts)


def _of_agents(path: Path, ledger: LedgerReport) -> ReportPage:
    # All of it reads releases, the ledger and public settings.
    settings = own_settings(path)
    whole = agents_budgets(path, foretell=True)
    times, parts = _course(path, settings)
    parts.append(_budget_part(settings, whole))

    parts.append(
        ReportPart(
            title="Reliability",
            table=[
                *report_part_ledger_table(ledger),
                ("releases refused", report_part_number(whole.summary.refused)),
                ("agents at their horizon", report_part_number(whole.summary.at_horizon)),
            ],
        )
    )

    options = AgentsOptions(lower=settings.lower, upper=settings.upper, mode=settings.mode)

    # What the run promised, in the words of `explain`.
    facts = explain.explain_command_privacy(settings) | {
        "collaboration": explain.explain_command_collaboration(options, settings),
    }
    parts.append(
        ReportPart(title="Privacy promise", lines=explain.explain_command_text(facts), aligned=True)
    )
    person = (
        {} if settings.per_person is None else {"person": "...", "per_person": settings.per_person}
    )
    parts.append(report_part_commands("agents", path, _flags(settings) | person))

    return ReportPage(
        title="Meanstream: agents",
        about=f"From the store {path.name}; of releases only, hence public.",
        parts=parts,
        facts=[
            *report_run_facts(path, settings),
            (
                "releases, in event time",
                f"{iso_time(times[0])} to {iso_time(times[1])}" if times else "none yet",
            ),
        ],
    )


def _flags(settings: AgentsSettings) -> dict[str, Any]:
    """Give the options that make these settings again.

    Where releases have no end, counter and horizon are none.
    """
    # Settings that a memory or its absence decides are no options of the command.
    flags = {name: getattr(settings, name) for name in FLAGS}
    left_out = ("memory",) if not settings.remembers.forgets else ("counter", "horizon")
    return {name: value for name, value in flags.items() if name not in left_out}


def _budget_part(settings: AgentsSettings, whole: Budgets) -> ReportPart:
    """Draw what the agents have spent, and say when their budgets end."""
    limit = "endless" if settings.most_releases is None else str(settings.most_releases)
    spent = [0] * (
        (whole.summary.spent_max if settings.most_releases is None else settings.horizon) + 1
    )

    # How many agents have made how many releases.
    for row in whole.agents:
        spent[row.spent] += 1

    budgets = budget_histogram_record(len(whole.agents), spent, settings.most_releases)
    most = f"The agent with the most releases has made {budgets['most']} of {limit} releases. {settings.protected}"

    if whole.forecast is not None:
        most += f" {budget_forecast_text(whole.forecast)}"

    return ReportPart(title="Privacy budget", text=most, picture=budget_chart(budgets, "agents"))


def _shorter(gain: float) -> str:
    shorter = round(100 * (1 - 1 / gain))
    return f"{abs(shorter)} % {'shorter' if shorter >= 0 else 'longer'}"


def _course(
    path: Path, settings: AgentsSettings
) -> tuple[tuple[float, float] | None, list[ReportPart]]:
    """Draw how the intervals became narrower as releases came, and the population at the end.

    Say from when to when.
    """
    from meanstream.streaming.metrics.telemetry import telemetry_of_population

    points, last = report_convergence_of_store(path, settings)
    if last is None:
        return None, [ReportPart(title="Convergence", text="No agent has released anything yet.")]
    fitted = population_figure(telemetry_of_population(last))
    gain = points["alone"]["median"][-1] / points["together"]["median"][-1]
    said = (
        "Half-width of the intervals from releases alone: median, and 10 % to 90 % quantile over agents. Together uses "
        "a population learned from all releases, alone uses each agent's own releases. Agents know more, since their "
        "own samples have no noise for themselves. "
        f"At the end intervals are {_shorter(gain)} together than alone (median), by releases alone."
    )

    table = [
        (
            f"center {report_part_number(c['center'])}",
            f"weight {100 * c['weight']:.0f} %, {report_part_number(c['agents'])} agents, "
            f"standard error {report_part_number(c['center_stddev'])}",
        )
        for c in fitted["components"]
    ]
    about = f"{report_part_number(fitted['agents'])} agents have released; the method is {fitted['method']}."

    if fitted["spread"] is not None:
        about += f" Means within a component differ by {report_part_number(fitted['spread'])} (standard deviation)."

    dependent = fitted["dependent"]
    if dependent is not None:
        about += (
            f" An agent's samples depend on each other ({dependent['probability']:.0%} probable). The variance that "
            f"counts in the long run is {report_part_number(dependent['ratio'])} times the variance of neighboring "
            "samples; intervals allow for it."
        )

    drawn = population_chart(fitted) if fitted["density"] else None
    parts = [
        ReportPart(title="Convergence", text=said, picture=convergence_chart(points)),
        ReportPart(title="Learned population", text=about, picture=drawn, table=table),
    ]
    goes = fitted["goes_with_count"]

    if goes is not None and goes["probability"] >= PROBABLE and goes["n"]:
        said = f"Means depend on the number of samples: {100 * goes['probability']:.0f} % probable."
        parts.append(
            ReportPart(title="Means and numbers of samples", text=said, picture=counts_chart(goes))
        )

    parts += covariates_parts(fitted["covariates"])
    return (points["first_time"], points["event_time"][-1]), parts


def covariates_parts(found: dict[str, Any] | None) -> list[ReportPart]:
    """Say what the releases showed of declared public covariates."""
    if found is None:
        return []
    said = (
        f"Declared public covariates explain {found['explained']:.0%} of the spread of the means."
    )
    table = [
        (
            attribute["name"],
            f"explains {attribute['explained']:.0%}, size {report_part_number(attribute['size'])}, standard error "
            f"{report_part_number(attribute['standard_error'])}, {_effect(attribute['probability'])}",
        )
        for attribute in found["attributes"]
    ]

    return [ReportPart(title="Public covariates", text=said, table=table)]


def _effect(probability: float) -> str:
    """Say how probable an effect is, where releases show one; by the prior alone it is even."""
    if probability < LIKELY:
        return "no effect shown"
    return f"probability {probability:.0%}"


def report_convergence_of_store(
    path: Path, settings: AgentsSettings
) -> tuple[dict[str, Any], PublicPopulation | None]:
    """Public: quantiles of half-widths at some points of the ledger, and the population at its end.

    The population is learned at each of these points again, from everyone's newest release until
    then.
    """
    import numpy as np
    from scipy.stats import norm

    from meanstream.streaming.metrics.telemetry import QUANTILES

    releases, times, names, covariates = _releases(path)
    usual = "tests" if settings.mode == "paper" else "learned_prior"
    options = EngineOptions(collaboration=usual, covariates=covariates)
    estimates = PersonalEstimates(settings, options)
    followed = FollowedReleases(settings)
    before = NewestReleases()

    points: dict[str, Any] = {
        "events": [],
        "event_time": [],
        "together": _bands(),
        "alone": _bands(),
    }
    points["first_time"] = float(times.min(initial=np.inf))
    population: PublicPopulation | None = None
    cuts = np.unique(np.linspace(0, len(releases), POINTS + 1).astype(np.int64))

    for begin, end in pairwise(cuts.tolist()):
        chunk = releases.take(np.arange(begin, end))
        followed.observe(chunk, before.replaced(chunk))
        newest = np.unique(releases.agent[:end][::-1], return_index=True)[1]
        latest = followed.combined(releases.take(end - 1 - newest))
        population = estimates.public_population(latest, followed.posterior, names)
        alone = float(norm.ppf((1 + options.level) / 2)) * np.sqrt(population.variance)
        points["events"].append(int(latest.count.sum()))
        points["event_time"].append(float(times[:end].max()))

        for name, half_width in (
            ("together", population.precision()[0]),
            ("alone", np.minimum(alone, (settings.upper - settings.lower) / 2)),
        ):
            for band, value in zip(
                points[name].values(), np.quantile(half_width, QUANTILES).tolist(), strict=True
            ):
                band.append(value)

    return points, population


def _bands() -> dict[str, list[float]]:
    return {"low": [], "median": [], "high": []}


def _releases(path: Path) -> tuple[ReleaseColumns, Floats, list[str], AgentCovariates | None]:
    """Read all releases of a ledger, in the order in which they were charged, their event times, and of whom."""
    import numpy as np

    store = Store.read(path)
    try:
        releases = ReleaseColumns.joined(list(releases_of_ledger(store.ledger)))
        times = [time for block in store.ledger.verified() for time in block.rows.time]
        n = min(len(releases), len(times))  # an engine may be writing
        used = releases.take(np.arange(n))

        return used, np.array(times[:n], np.float64), store.agents(), covariates_of_last_run(store)
    finally:
        store.close()


PAIR_FLAGS = (
    "lower",
    "upper",
    "epsilon",
    "delta",
    "mode",
    "counter",
    "noise",
    "calibration",
    "horizon",
)
OWN_FLAGS = ("schedule", "weights", "variance", "stddev")


def report_of_pairs(path: Path, ledger: LedgerReport) -> ReportPage:
    """Report on a pairwise store whose ledger was verified.

    **Privacy.** A function of settings, names of agents and, under round_robin, of the times of
    samples: the report may leave the trust domain. How many releases there were under
    restricted_round_robin, each release, and the head of the ledger, which hashes them, are not in
    it.
    """
    pairs = pairs_settings_of_store(path)
    assert pairs is not None  # noqa: S101 - the store is one of pairs
    settings, agents = pairs
    whole = pair_budgets(path)
    facts = explain_pairs_facts(settings, agents)

    parts = [
        _readers_part(facts),
        _pair_budget_part(whole, settings),
        _elsewhere_part(path),
        _reliability_part(whole, ledger),
        ReportPart(title="Privacy promise", lines=explain_pairs_text(facts), aligned=True),
        report_part_commands("agents", path, _pair_flags(settings, path)),
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
        (f"readers: {row['readers']:,}", f"epsilon {report_part_number(row['epsilon'])}")
        for row in facts["readers_who_pool"]
    ]
    said = (
        "Each pair of agents has noise of its own, so readers who pool what they received of one "
        "agent learn more than one of them."
    )

    return ReportPart(title="Readers who pool", text=said, table=table)


def _pair_budget_part(whole: PairBudgets, settings: Any) -> ReportPart:
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
    budgets = budget_histogram_record(whole.summary.pairs, spent, whole.summary.horizon)
    said = (
        f"{whole.summary.pairs:,} pairs of an agent and a reader have exchanged "
        f"{whole.summary.releases:,} releases, the pair with most {budgets['most']:,} of "
        f"{whole.summary.horizon:,}. {settings.release.protected}"
    )

    return ReportPart(title=title, text=said, picture=budget_chart(budgets, "pairs"))


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


def _pair_flags(settings: Any, path: Path) -> dict[str, Any]:
    """Give the options that make these settings again."""
    release = {name: getattr(settings.release, name) for name in PAIR_FLAGS}
    own = {name: getattr(settings, name) for name in OWN_FLAGS}

    # A store keeps a digest of the graph of partners.
    with closing(Store.read(path)) as store:
        graph = (store.settings() or {}).get("partners")

    return release | own | {"partners": None if graph is None else "..."}
