"""The options of everything that runs rounds, declared once: `run rounds` and `explain rounds` take the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from meanstream.operators.estimators.registry import DEFAULT_ESTIMATOR, ESTIMATORS
from meanstream.operators.limits import MAX_AGENTS, MAX_DEAD_LETTERS, MAX_FUTURE, QUORUM
from meanstream.pipelines.options.base import ConfigOption, JsonOption, given_option
from meanstream.pipelines.options.shared import (
    INPUT,
    NAME_HELP,
    OFFSETS_HELP,
    OPERATION,
    OUTPUT,
    PLACES,
    PRIVACY,
    WAIT_FOR,
    LogFormatOption,
    MaxDeadLettersOption,
    MaxFutureOption,
    MaxUsersOption,
    MetricsOption,
    PageOption,
    PageRemoteOption,
    PrivateFiguresOption,
    PrivateMetricsOption,
    QuietOption,
    QuorumOption,
    WaitForOption,
    cli_option,
    quorum_for,
)

if TYPE_CHECKING:
    from meanstream.streaming.engine.options import EngineOptions
    from meanstream.streaming.rounds.settings import RoundsSettings
    from meanstream.streaming.sources.mapping import ColumnMapping

ESTIMATION, SIDES = "Estimation", "Two sides, two runners"
SOURCE_HELP = ".csv, .tsv, .jsonl, .ndjson (also .gz, .zip), .parquet or kafka://HOST:PORT/TOPIC."


@dataclass(frozen=True, kw_only=True)
class RoundsOptions:
    """What a user says about a population's mean per window, before anything is checked or opened."""

    WHO: ClassVar[str] = "user"
    LATENESS: ClassVar[str] = "allowed_lateness"

    config: ConfigOption = None
    source: Annotated[str | None, cli_option(SOURCE_HELP, INPUT)] = None
    user: Annotated[str, cli_option("Column that says whose sample it is.", INPUT)] = "user"
    value: Annotated[str, cli_option("Column of the value.", INPUT)] = "value"
    values: Annotated[
        str | None,
        cli_option("Columns x,y,z of a vector's coordinates, instead of --value, for estimators of vectors.", INPUT),
    ] = None
    time: Annotated[str, cli_option("Column of the event time (ISO 8601, UTC assumed; or epoch).", INPUT)] = "time"
    id: Annotated[str | None, cli_option("Column that identifies a sample: duplicates are dropped.", INPUT)] = None
    sort: Annotated[
        bool,
        cli_option("Replay a file in event-time order; --no-sort takes it as it comes.", INPUT, "--sort/--no-sort"),
    ] = True
    until_end: Annotated[
        bool, cli_option("Stop at what a topic holds at the start, as at the end of a file.", INPUT, "--until-end")
    ] = False
    window: Annotated[
        str | None, cli_option("SIZE (7d), SIZE,PERIOD (7d,1d: sliding) or session:GAP (session:30m).", INPUT)
    ] = None
    allowed_lateness: Annotated[str, cli_option("How long a window waits behind the newest event.", INPUT)] = "1h"
    batch_size: Annotated[int, cli_option("Samples per commit, at most.", INPUT)] = 262_144
    max_future: MaxFutureOption = f"{MAX_FUTURE:g}s"
    quorum: QuorumOption = QUORUM
    max_users: MaxUsersOption = MAX_AGENTS

    lower: Annotated[
        str | None, cli_option("Declared lower bound of a value; for --values one, or one for each: x,y,z.", PRIVACY)
    ] = None
    upper: Annotated[str | None, cli_option("Declared upper bound of a value, likewise.", PRIVACY)] = None
    epsilon: Annotated[float | None, cli_option("Of everything that one user sends within a window.", PRIVACY)] = None
    user_budget: Annotated[
        float | None,
        cli_option("Total epsilon of a user over all windows; beyond it its data does not enter.", PRIVACY),
    ] = None
    name: Annotated[str | None, cli_option(NAME_HELP, PRIVACY)] = None
    secret_file: Annotated[
        Path | None, cli_option("Key of the noise (else MEANSTREAM_SECRET, else a file beside the store).", PRIVACY)
    ] = None

    estimator: Annotated[
        str,
        cli_option(f"{' | '.join(ESTIMATORS)}; `explain rounds` says whom each trusts.", ESTIMATION),
    ] = DEFAULT_ESTIMATOR
    option: Annotated[
        list[str] | None, cli_option("NAME=VALUE of the estimator's own, again for more.", ESTIMATION, "--option")
    ] = None
    mode: Annotated[str, cli_option("tuned, or paper: to the letter.", ESTIMATION)] = "tuned"
    sizes: Annotated[
        str | None,
        cli_option(
            "Law of a user's number of samples: point:K, poisson:L, ..., FILE.csv:COLUMN; or unknown.",
            ESTIMATION,
        ),
    ] = None
    users: Annotated[int | None, cli_option("Users per window; else counted in each window.", ESTIMATION)] = None
    between_users: Annotated[
        float | None, cli_option("Bound on the standard deviation of users' means, in the value's unit.", ESTIMATION)
    ] = None
    level: Annotated[float, cli_option("Coverage of the intervals.", ESTIMATION)] = 0.95

    store: Annotated[Path, cli_option("SQLite file of position, sums and ledger; resumes from it.", OUTPUT)] = Path(
        "meanstream-rounds.db"
    )
    sink: Annotated[str, cli_option(f"An estimate per window (public): {PLACES}", OUTPUT)] = "-"
    reports: Annotated[
        str | None, cli_option("Users' reports; or whom a trusted curator charged (public).", OUTPUT)
    ] = None
    stages: Annotated[str | None, cli_option("What each stage found (public).", OUTPUT)] = None
    dead_letters: Annotated[str | None, cli_option("Rejected records, redacted (private: of samples).", OUTPUT)] = None
    max_dead_letters: MaxDeadLettersOption = MAX_DEAD_LETTERS
    notices: Annotated[str | None, cli_option("Users whose budget is spent (public).", OUTPUT)] = None
    json: JsonOption = False

    reports_only: Annotated[
        str | None, cli_option("Users' side alone: write reports here, and go on from what --stages says.", SIDES)
    ] = None
    from_reports: Annotated[
        Path | None, cli_option("Statistician's side alone: read reports here, write --stages and --sink.", SIDES)
    ] = None
    runner: Annotated[
        str | None,
        cli_option("FnApiRunner | PrismRunner | FlinkRunner | DataflowRunner: run on Beam, not on this engine.", SIDES),
    ] = None
    runner_arg: Annotated[
        list[str] | None, cli_option("Option of the runner, such as --flink_master=HOST:PORT.", SIDES, "--runner-arg")
    ] = None
    offsets: Annotated[str | None, cli_option(OFFSETS_HELP, SIDES)] = None

    metrics: MetricsOption = None
    private_metrics: PrivateMetricsOption = None
    private_figures: PrivateFiguresOption = None
    page: PageOption = None
    page_remote: PageRemoteOption = False
    dry_run: Annotated[
        bool, cli_option("Check options, connections, topics and budget; read and write nothing.", OPERATION)
    ] = False
    wait_for: WaitForOption = WAIT_FOR
    log_format: LogFormatOption = "text"
    quiet: QuietOption = False

    def settings(self) -> RoundsSettings:
        """Check what the parties agree on, and design the estimator once, so that nothing is refused later.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from meanstream.operators.agents.release_times import parse_duration
        from meanstream.operators.validation import require
        from meanstream.streaming.rounds.curator import NO_SIDES
        from meanstream.streaming.rounds.settings import RoundsSettings

        lower, upper = given_option("lower", self.lower), given_option("upper", self.upper)
        epsilon, window = given_option("epsilon", self.epsilon), given_option("window", self.window)
        settings = RoundsSettings(
            lower=_bounds("lower", lower),
            upper=_bounds("upper", upper),
            epsilon=float(epsilon),
            window=window,
            estimator=self.estimator,
            options=_own_options(self.option or []),
            sizes=self.sizes,
            users=self.users,
            between_users=self.between_users,
            user_budget=self.user_budget,
            allowed_lateness=parse_duration("allowed_lateness", self.allowed_lateness),
            name=self.name,
            level=self.level,
            mode=self.mode,
            values=self.coordinates,
        )
        settings.estimator_for(settings.users or 1)
        for side in ("reports_only", "from_reports"):
            rule = f"be of local privacy with --{side.replace('_', '-')}: {NO_SIDES}"
            require(getattr(self, side) is None or not settings.central, "estimator", rule, self.estimator)
        return settings

    @property
    def coordinates(self) -> tuple[str, ...] | None:
        """Columns of the coordinates of a vector.

        Raises
        ------
        ValueError
            If there is a column of a value, too, or a name is empty.
        """
        from meanstream.operators.validation import require

        if self.values is None:
            return None
        require(self.value == "value", "value", "be left out with --values", self.value)
        names = tuple(name.strip() for name in self.values.split(","))
        require(all(names), "values", "be columns x,y,z", self.values)
        return names

    def column_mapping(self) -> ColumnMapping:
        """Say which column means what; a user is what sources call an agent."""
        from meanstream.streaming.sources.mapping import ColumnMapping

        return ColumnMapping(agent=self.user, value=self.value, values=self.coordinates, time=self.time, id=self.id)

    def engine_options(self) -> EngineOptions:
        """Check the rest.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from meanstream.operators.agents.release_times import parse_duration
        from meanstream.operators.validation import require
        from meanstream.streaming.engine.options import EngineOptions

        lateness = parse_duration("allowed_lateness", self.allowed_lateness)
        require(self.max_users >= 1, "max_users", "be at least 1", self.max_users)
        return EngineOptions(
            batch_size=self.batch_size,
            allowed_lateness=lateness,
            max_future=parse_duration("max_future", self.max_future),
            quorum=quorum_for(self.quorum, self.source, sort=self.sort),
            max_agents=self.max_users,
            max_dead_letters=self.max_dead_letters,
        )

    @property
    def sinks(self) -> dict[str, str]:
        """Role of each sink that was asked for, and its place; all but `dead_letters` are public."""
        places = {
            "reports": self.reports,
            "stages": self.stages,
            "dead_letters": self.dead_letters,
            "notices": self.notices,
        }
        if self.reports_only is not None:
            places |= {"reports": self.reports_only, "stages": None}  # results are read there
        elif self.from_reports is not None:
            places = {"means": self.sink, "stages": self.stages}
        else:
            places = {"means": self.sink, **places}
        return {role: place for role, place in places.items() if place is not None}


def _own_options(typed: list[str]) -> dict[str, Any]:
    """Read NAME=VALUE; values as in YAML."""
    import yaml

    from meanstream.operators.validation import require
    from meanstream.streaming.strict_yaml import read_strict_yaml

    found: dict[str, Any] = {}
    for text in typed:
        name, equals, value = text.partition("=")
        require(bool(name and equals), "option", "be NAME=VALUE", text)
        try:
            found[name.replace("-", "_")] = read_strict_yaml(value)
        except yaml.YAMLError:
            require(False, "option", "be NAME=VALUE", text)
    return found


def _bounds(name: str, typed: str) -> float | tuple[float, ...]:
    """Read a number, or several; from a file of options they may come as a list."""
    import yaml

    from meanstream.operators.validation import require
    from meanstream.streaming.strict_yaml import read_strict_yaml

    parts = str(typed).strip("[]()").split(",")
    try:
        read = [read_strict_yaml(part) for part in parts]
    except yaml.YAMLError:
        read = [None]
    good = all(isinstance(number, int | float) and not isinstance(number, bool) for number in read)
    require(good, name, "be a number, or one for each of --values", typed)
    numbers = tuple(map(float, read))
    return numbers if len(parts) > 1 else numbers[0]
