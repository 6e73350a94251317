"""Reports from the store of a run: everything in them is public, computed from what the ledger charged."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.commands.report_parts import Part, Report, commands, ledger_rows, number
from pipelines.commands.report_rounds import ledger_blocks, report_of_rounds

if TYPE_CHECKING:
    from operators.agents import AgentsSettings
    from streaming.personal import PublicPopulation
    from streaming.store.audit import LedgerReport

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
)
POINTS = 16
"""Points of the course of convergence; a population is fitted for each."""


def report_of_store(path: Path) -> Report:
    """Verify a store's ledger and report what was released.

    **Privacy.** It reads the ledger's outputs, all of which are public, and no agent's own state: the report may leave
    the trust domain.

    Raises
    ------
    StoreError
        If there is no store, nothing has begun on it, or its ledger is not what was written.
    """
    from streaming.rounds.budget import is_of_rounds
    from streaming.store.audit import verify_ledger

    ledger = verify_ledger(path)
    return report_of_rounds(path, ledger) if is_of_rounds(path) else _of_agents(path, ledger)


def _of_agents(path: Path, ledger: LedgerReport) -> Report:
    from pipelines.commands import explain
    from pipelines.commands.agents_options import AgentsOptions
    from pipelines.commands.report_charts import budget_chart
    from streaming.budget import budgets
    from streaming.own_state import store_settings
    from streaming.telemetry_records import budget

    settings = store_settings(path)
    whole = budgets(path)
    spent = [0] * (settings.horizon + 1)
    for row in whole.agents:
        spent[row.spent] += 1
    found = budget(len(whole.agents), spent, settings.horizon)
    parts = _course(path, settings)
    most = f"Who spent most has made {found['most']} of {settings.horizon} releases."
    parts.append(Part(title="Privacy budget", text=most, picture=budget_chart(found, "agents")))
    parts.append(
        Part(
            title="Reliability",
            table=[
                *ledger_rows(ledger),
                ("releases refused", number(whole.summary.refused)),
                ("agents at their horizon", number(whole.summary.at_horizon)),
            ],
        )
    )
    options = AgentsOptions(lower=settings.lower, upper=settings.upper, mode=settings.mode)
    facts = explain.privacy_facts(settings) | {"collaboration": explain._collaboration(options)}
    parts.append(Part(title="What is protected, and how", lines=explain.as_text(facts)))
    parts.append(commands("agents", path, {name: getattr(settings, name) for name in FLAGS}))
    return Report(
        title="Meanstream: agents", about=f"From the store {path.name}; of releases only, hence public.", parts=parts
    )


def _course(path: Path, settings: AgentsSettings) -> list[Part]:
    """Draw how the intervals became narrower as releases came, and the population at the end."""
    from pipelines.commands.report_charts import convergence_chart, population_chart
    from pipelines.page.figures import population_figure
    from streaming.telemetry import picture

    points, last = convergence_of_releases(path, settings)
    if last is None:
        return [Part(title="Convergence", text="No agent has released anything yet.")]
    fitted = population_figure(picture(last))
    said = (
        "Half-width of the intervals that the releases alone give, median and from the 10 % to the 90 % quantile over "
        "agents: with a population learned from everybody's releases (together), and from each agent's own newest "
        "release (alone). Agents know more: their own samples have no noise for themselves."
    )
    table = [
        (
            f"center {number(c['center'])}",
            f"weight {c['weight']:.0%}, {number(c['agents'])} agents, standard error {number(c['center_stddev'])}",
        )
        for c in fitted["components"]
    ]
    about = f"{number(fitted['agents'])} agents have released; the method is {fitted['method']}."
    if fitted["spread"] is not None:
        about += f" Means within a component differ by {number(fitted['spread'])} (standard deviation)."
    drawn = population_chart(fitted) if fitted["density"] else None
    return [
        Part(title="Convergence", text=said, picture=convergence_chart(points, "samples that releases sum up")),
        Part(title="Learned population", text=about, picture=drawn, table=table),
    ]


def convergence_of_releases(path: Path, settings: AgentsSettings) -> tuple[dict[str, Any], PublicPopulation | None]:
    """Public: quantiles of half-widths at some points of the ledger, and the population at its end.

    The population is learned at each of these points anew, from everybody's newest release until then.
    """
    import numpy as np
    from scipy.stats import norm

    from streaming.options import EngineOptions
    from streaming.personal import PersonalEstimates
    from streaming.telemetry import QUANTILES
    from streaming.variance import ReleaseVariance

    options = EngineOptions(collaboration="tests" if settings.mode == "paper" else "learned_prior")
    estimates, pooled = PersonalEstimates(settings, options), ReleaseVariance(settings)
    releases = _releases(path)
    points: dict[str, Any] = {"events": [], "together": _bands(), "alone": _bands()}
    population: PublicPopulation | None = None
    cuts = np.unique(np.linspace(0, len(releases), POINTS + 1).astype(np.int64))
    for begin, end in pairwise(cuts.tolist()):
        pooled.observe(releases.take(np.arange(begin, end)))
        newest = np.unique(releases.agent[:end][::-1], return_index=True)[1]
        latest = releases.take(end - 1 - newest)
        population = estimates.public_population(latest, pooled.variance)
        alone = float(norm.ppf((1 + options.level) / 2)) * np.sqrt(population.variance)
        points["events"].append(int(latest.count.sum()))
        for name, half_width in (
            ("together", population.precision()[0]),
            ("alone", np.minimum(alone, (settings.upper - settings.lower) / 2)),
        ):
            for band, value in zip(points[name].values(), np.quantile(half_width, QUANTILES).tolist(), strict=True):
                band.append(value)
    return points, population


def _bands() -> dict[str, list[float]]:
    return {"low": [], "median": [], "high": []}


def _releases(path: Path) -> Any:
    """Read all releases of a ledger, in the order in which they were charged."""
    import msgspec
    import numpy as np

    from operators.records import ReleaseColumns

    said = msgspec.defstruct("Said", [("n", int), ("total", int), ("mean", float), ("noise_variance", float)])
    decoder = msgspec.json.Decoder(said)
    agent: list[int] = []
    index: list[int] = []
    outputs: list[Any] = []
    for block in ledger_blocks(path):
        agent += block.agent
        index += block.release_index
        outputs += map(decoder.decode, block.output)
    integers = {name: np.array([getattr(one, name) for one in outputs], np.int64) for name in ("n", "total")}
    return ReleaseColumns(
        agent=np.array(agent, np.int64),
        index=np.array(index, np.int64),
        count=integers["n"],
        total=integers["total"],
        mean=np.array([one.mean for one in outputs], np.float64),
        noise_variance=np.array([one.noise_variance for one in outputs], np.float64),
    )
