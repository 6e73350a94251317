"""Errors of a configuration as tables, before anything is released: predicted, and simulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import usual_histogram
from meanstream.operators.collaboration.registry import Collaboration, collaboration_name
from meanstream.operators.collaboration.shares.shares_quantiles import valid_quantiles
from meanstream.operators.estimators.registry import DEFAULT_ESTIMATOR, estimator_name
from meanstream.operators.rings import ring_module
from meanstream.operators.validation import require
from meanstream.pipelines.frames.arguments import check_arguments
from meanstream.pipelines.frames.frame_table import ShownTable, table_axes
from meanstream.streaming.long_work import tracked_work
from meanstream.streaming.rounds.sizes_file import read_sizes_of


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ForecastTable(ShownTable):
    """Predicted errors of agents by how many samples they have; see `forecast_agents`.

    Attributes
    ----------
    shares : pyarrow.Table, optional
        The same of the quantiles and exceedances that were requested.
    """

    shares: pa.Table | None = None

    def plot(self, axes: Any = None) -> Any:
        """Draw the error of learning alone, and together, by the number of samples.

        Give the axes.
        """
        axes = table_axes(axes, (6, 4))
        for column in ("alone", "together"):
            axes.loglog(
                self.table["samples"].to_numpy(), self.table[column].to_numpy(), "o-", label=column
            )

        axes.set(xlabel="samples of the agent", ylabel="predicted error")
        axes.legend()
        return axes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SimulationTable(ShownTable):
    """Errors of simulated agents at the checkpoints; see `simulate_agents`."""

    def plot(self, axes: Any = None) -> Any:
        """Draw the squared errors by step, as the paper's figures do; give the axes."""
        axes = table_axes(axes, (6, 4))
        for column in ("local", "mse", "ideal"):
            axes.loglog(
                self.table["step"].to_numpy(), self.table[column].to_numpy(), "o-", label=column
            )

        axes.set(xlabel="samples of each agent", ylabel="mean squared error")
        axes.legend()
        return axes


def forecast_agents(
    *,
    agents: int | None = None,
    sizes: str,
    lower: float,
    upper: float,
    spread: float,
    epsilon: float,
    delta: float = 0.0,
    stddev: float | None = None,
    target_half_width: float | None = None,
    level: float = 0.95,
    quantiles: Sequence[float] = (),
    exceeds: Sequence[float] = (),
    mean: float | None = None,
    **settings: Any,
) -> ForecastTable:
    """Predict each agent's error alone and together, as `meanstream plan agents`.

    Computed from what is declared.

    Parameters
    ----------
    agents : int, optional
        How many take part; left out, as many as the column of a file of `sizes` has names.
    sizes : str
        Samples per agent: `uniform:20,400`, `lognormal:80,1`, `FILE.csv:column`...
    lower, upper : float
        Declared bounds of a value.
    spread, stddev : float
        Standard deviation of the agents' means, and of one sample around its agent's mean (default:
        a quarter of the width), in the value's unit.
    epsilon, delta : float
        Of one sample's value, over the life of a stream.
    target_half_width : float, optional
        Which epsilon does it need at the median count?
    level : float
        Of the intervals.
    quantiles, exceeds : sequence of float
        As of `private_means`: their errors and half-widths are in `shares`, of one release of all
        samples unless a `horizon` is given, by drawing agents of normal laws.
    mean : float, optional
        Mean of the agents' means, for quantiles and exceedances; default: the middle of the bounds.
    **settings
        Others of `AgentsSettings`.

    Raises
    ------
    ValueError
        Naming the parameter and the rule.

    Notes
    -----
    **Privacy.** No data are read but numbers of samples, which are public; nothing is spent.

    Examples
    --------
    >>> found = forecast_agents(agents=4000, sizes="lognormal:80,1", lower=-30, upper=120, spread=6, epsilon=1.0)
    >>> found.to_frame().column_names[:4]
    ['samples', 'quantile', 'alone', 'together']
    >>> print(found.notes[0])
    Together agents will have 36% of the squared error of learning alone (with all data public 36%).
    """
    from meanstream.operators.collaboration.shares.asked_shares import ShareQueries
    from meanstream.operators.forecast.shares_forecast import (
        forecast_shares,
        shares_release_settings,
    )
    from meanstream.operators.forecast.together_forecast import Crowd, forecast_together

    check_arguments(forecast_agents, (field.name for field in fields(AgentsSettings)), settings)
    wanted = valid_quantiles(quantiles)
    chosen = {**settings, **usual_histogram(wanted, exceeds, settings)}
    private = AgentsSettings(lower=lower, upper=upper, epsilon=epsilon, delta=delta, **chosen)
    varies = (upper - lower) / 4 if stddev is None else stddev
    counted, number = read_sizes_of(sizes, agents, who="agents")
    crowd = Crowd(agents=number, sizes=counted, spread=spread, stddev=varies)
    forecast = forecast_together(crowd, private, level=level, target_half_width=target_half_width)
    table = pa.Table.from_pylist([asdict(row) for row in forecast.rows])

    if private.histogram is None:
        require(mean is None, "mean", "be left out without quantiles or exceeds", mean)
        return ForecastTable(table=table, notes=(*forecast.sentences(),))

    released = shares_release_settings(private, settings.get("horizon"))
    rows = forecast_shares(crowd, ShareQueries(released, wanted, level), center=mean)
    middle = (row.sentence() for row in rows if row.quantile == forecast.rows[1].quantile)
    shares = pa.Table.from_pylist([asdict(row) for row in rows])

    return ForecastTable(table=table, notes=(*forecast.sentences(), *middle), shares=shares)


def simulate_agents(
    *,
    means: Any = "classes:0.2,0.4,0.8",
    samples: Callable[..., Any] | None = None,
    collaboration: str | Collaboration | None = None,
    **options: Any,
) -> SimulationTable:
    """Simulate agents that receive samples, release and collaborate, as `meanstream simulate agents`.

    Parameters
    ----------
    means : str, float array or callable
        Means as the command writes them, one for each agent, or `means(generator, agents)`, drawn
        again in each run.
    samples : callable, optional
        `samples(generator, mean, n)` draws n samples of each agent: an array of shape
        `(n, agents)`. It needs `half_width`, half of the declared bounds' width. A sample's
        variance is learned unless `stddev` is given.
    collaboration : str or Collaboration, optional
        Name of one, or an object of your own; by default that of the mode.
    **options
        Others of the command: `agents`, `steps`, `data`, `epsilon`, `delta`, `runs`, `seed`,
        `checkpoints`, `mode`...

    Returns
    -------
    SimulationTable
        Mean squared errors at the checkpoints: `mse` together, `local` alone, `ideal` with all raw
        data of the own class, `oracle` with the same releases and the true classes.

    Raises
    ------
    ValueError
        Naming the option and the rule.

    Notes
    -----
    **Privacy.** Data and noise are seeded: for simulation only.

    Examples
    --------
    >>> found = simulate_agents(agents=60, steps=600, runs=2, means="classes:0.2,0.8", seed=1)
    >>> found.to_frame()["mse"][0].as_py() < 0.3 * found.to_frame()["local"][0].as_py()
    True
    >>> found = simulate_agents(means=np.linspace(0, 1, 40), half_width=1, steps=200, runs=2,
    ...                         samples=lambda generator, mean, n: generator.random((n, len(mean))) < mean)
    >>> found.to_frame()["mse"][0].as_py() < found.to_frame()["local"][0].as_py()
    True
    """
    made = ring_module("lab.simulation.config").SimulationConfig
    simulate = ring_module("lab.simulation.simulate_agents").simulate
    check_arguments(simulate_agents, (field.name for field in fields(made)), options)

    if not isinstance(means, str) and not callable(means):
        means = np.asarray(means, np.float64)
        options.setdefault("agents", len(means))

    if samples is not None:
        require("data" not in options, "data", "be left out with samples", options.get("data"))
        options["data"] = samples

    named = None if collaboration is None else collaboration_name(collaboration)
    config = made.from_options(means=means, collaboration=named, **options)
    simulated = simulate(config, lambda runs: tracked_work(runs, "simulating"))
    columns: dict[str, Any] = {"step": simulated.checkpoints}

    for name in ("mse", "stderr", "local", "ideal", "oracle", "coverage", "type1", "type2"):
        measured = getattr(simulated, name)
        if measured is not None:
            columns[name] = measured

    config = simulated.config
    said = f"mode {config['mode']}, epsilon {config['epsilon']:g}, delta {config['delta']:g} per sample; simulated"
    return SimulationTable(
        table=pa.table(columns), notes=(f"{said}: {config['runs']} runs, seed {config['seed']}",)
    )


def simulate_rounds(
    estimator: str | type[Any] = DEFAULT_ESTIMATOR, *, data: Any = "rademacher:0", **options: Any
) -> ShownTable:
    """Simulate windows of a population's mean, as `meanstream simulate rounds`.

    Parameters
    ----------
    estimator : str or class
        Name of one of one mean, or a class of your own.
    data : str or SampleLaw
        Law of samples on [-1, 1] as the command writes it, or an object with `mean`, `lower`,
        `upper` and `draw` (`meanstream.lab.simulation.round_laws.SampleLaw`).
    **options
        Others: `users`, `epsilon`, `sizes`, `between_users_law`, `order`, `least_size`, `mode`,
        `runs`, `seed`, and `options`, a mapping of the estimator's own.

    Returns
    -------
    ShownTable
        One row: `mse`, `stderr`, `bias`, `bias_stderr`, `coverage`, `predicted_mse`, `theta`,
        `mse_cut`.

    Raises
    ------
    ValueError
        Naming the option and the rule.

    Notes
    -----
    **Privacy.** Data and random bits are seeded: for simulation only.

    Examples
    --------
    >>> found = simulate_rounds("one_shot", users=1000, epsilon=1.0, runs=20, seed=1)
    >>> found.to_frame().column_names[:3], found.to_frame()["coverage"][0].as_py() > 0.8
    (['mse', 'stderr', 'bias'], True)
    """
    simulated = ring_module("lab.simulation.simulated_rounds")
    check_arguments(
        simulate_rounds, (field.name for field in fields(simulated.RoundsConfig)), options
    )
    config = simulated.RoundsConfig(estimator=estimator_name(estimator), data=data, **options)
    errors = simulated.simulate_rounds(config, track=lambda runs: tracked_work(runs, "simulating"))
    row = {name: value for name, value in errors.as_dict().items() if isinstance(value, float)}
    said = f"{config.estimator}, epsilon {config.epsilon:g}; {config.users} users, sizes {config.sizes}; simulated"

    return ShownTable(
        table=pa.Table.from_pylist([row]),
        notes=(f"{said}: {config.runs} runs, seed {config.seed}",),
    )
