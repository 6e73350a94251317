"""The options of `run collaborate`.

Everybody's releases to the estimates of one organization's agents.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic.dataclasses import dataclass

from meanstream.pipelines.options.base import DEFERRED, ConfigOption, JsonOption
from meanstream.pipelines.options.declaration import (
    COLLABORATION,
    INPUT,
    OPERATION,
    OUTPUT,
    cli_option,
)
from meanstream.pipelines.options.shared_options import (
    WAIT_FOR,
    CollaborationOption,
    CovariatesOption,
    CoverageOption,
    DryRunOption,
    LevelOption,
    LogFormatOption,
    MetricsOption,
    PageOption,
    PageRemoteOption,
    PopulationOption,
    QuantilesOption,
    QuietOption,
    StddevOption,
    WaitForOption,
    option_numbers,
)

if TYPE_CHECKING:
    from meanstream.streaming.engine.engine_options import EngineOptions


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class CollaborateOptions:
    """What a user says about answering the agents of a store from everybody's releases."""

    config: ConfigOption = None
    releases: Annotated[
        str | None,
        cli_option(
            "All releases of the federation: kafka://HOST:PORT/TOPIC or FILE.jsonl.",
            INPUT,
            first=True,
            required=True,
        ),
    ] = None
    store: Annotated[
        Path | None,
        cli_option(
            "Store of `run agent-side`, which is only read.", INPUT, first=True, required=True
        ),
    ] = None
    until_end: Annotated[
        bool, cli_option("Answer once, from the present releases, and stop.", INPUT, first=True)
    ] = False
    max_samples: Annotated[
        int | None,
        cli_option(
            "Largest number of samples of an agent; releases of more are left out. Default: those of the last "
            "release of "
            "the budget.",
            INPUT,
            unit="samples",
        ),
    ] = None
    collaboration: CollaborationOption = "learned_prior"
    stddev: StddevOption = None
    covariates: CovariatesOption = None
    agent: Annotated[str, cli_option("Key column of --covariates.", COLLABORATION)] = "agent"
    level: LevelOption = 0.95
    coverage: CoverageOption = "pointwise"
    quantiles: QuantilesOption = None
    refresh: Annotated[
        str,
        cli_option(
            "Shortest time between answers, which follow new releases or own samples.",
            COLLABORATION,
            first=True,
            unit="duration",
        ),
    ] = "10s"
    sink: Annotated[
        str,
        cli_option(
            "Personal estimates (private): FILE.jsonl, FILE.parquet or -.", OUTPUT, first=True
        ),
    ] = "-"
    population: PopulationOption = None
    json: JsonOption = False
    metrics: MetricsOption = None
    private_metrics: Annotated[
        str | None,
        cli_option(
            "Address of the operator's metrics: process, disk, precision of the estimates.",
            OPERATION,
            shows=True,
        ),
    ] = None
    page: PageOption = None
    page_remote: PageRemoteOption = False
    dry_run: DryRunOption = False
    wait_for: WaitForOption = WAIT_FOR
    log_format: LogFormatOption = "text"
    quiet: QuietOption = False

    def engine_options(self) -> "EngineOptions":
        """Check how agents are answered.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from meanstream.operators.collaboration.anytime_intervals import valid_coverage
        from meanstream.streaming.agents.declared_covariates import read_covariates_file
        from meanstream.streaming.engine.engine_options import EngineOptions

        declared = (
            None if self.covariates is None else read_covariates_file(self.covariates, self.agent)
        )

        return EngineOptions(
            collaboration=self.collaboration or "learned_prior",
            level=self.level,
            coverage=valid_coverage(self.coverage),
            stddev=self.stddev,
            covariates=declared,
            quantiles=tuple(option_numbers("quantiles", self.quantiles)),
        )

    @property
    def sinks(self) -> dict[str, str]:
        """Role of each sink that was asked for, and its place; the private one is `estimates`."""
        return {
            "estimates": self.sink,
            **({} if self.population is None else {"population": self.population}),
        }
