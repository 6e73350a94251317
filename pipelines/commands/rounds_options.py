"""The options of everything that runs rounds, declared once: `run rounds` and `explain rounds` take the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pipelines.commands.agents_options import (
    INPUT,
    OFFSETS_HELP,
    OPERATION,
    OUTPUT,
    PLACES,
    PRIVACY,
    LogFormatOption,
    MetricsOption,
    PageOption,
    PageRemoteOption,
    QuietOption,
    _option,
)
from pipelines.commands.options import ConfigOption, JsonOption

if TYPE_CHECKING:
    from streaming.options import EngineOptions
    from streaming.rounds.settings import RoundsSettings

ESTIMATION, SIDES = "Estimation", "Two sides, two runners"
SOURCE_HELP = ".csv, .tsv, .jsonl, .ndjson (also .gz, .zip), .parquet or kafka://HOST:PORT/TOPIC."


@dataclass(frozen=True, kw_only=True)
class RoundsOptions:
    """What a user says about a population's mean per window, before anything is checked or opened."""

    config: ConfigOption = None
    source: Annotated[str | None, _option(SOURCE_HELP, INPUT)] = None
    user: Annotated[str, _option("Column that says whose sample it is.", INPUT)] = "user"
    value: Annotated[str, _option("Column of the value.", INPUT)] = "value"
    values: Annotated[
        str | None,
        _option("Columns x,y,z of a vector's coordinates, instead of --value, for kent.l2 and others.", INPUT),
    ] = None
    time: Annotated[str, _option("Column of the event time (ISO 8601, UTC assumed; or epoch).", INPUT)] = "time"
    id: Annotated[str | None, _option("Column that identifies a sample: duplicates are dropped.", INPUT)] = None
    sort: Annotated[
        bool, _option("Replay a file in event-time order; --no-sort takes it as it comes.", INPUT, "--sort/--no-sort")
    ] = True
    until_end: Annotated[
        bool, _option("Stop at what a topic holds at the start, as at the end of a file.", INPUT, "--until-end")
    ] = False
    window: Annotated[
        str | None, _option("SIZE (7d), SIZE,PERIOD (7d,1d: sliding) or session:GAP (session:30m).", INPUT)
    ] = None
    allowed_lateness: Annotated[str, _option("How long a window waits behind the newest event.", INPUT)] = "1h"
    batch_size: Annotated[int, _option("Samples per commit, at most.", INPUT)] = 262_144

    lower: Annotated[
        str | None, _option("Declared lower bound of a value; for --values one, or one for each: x,y,z.", PRIVACY)
    ] = None
    upper: Annotated[str | None, _option("Declared upper bound of a value, likewise.", PRIVACY)] = None
    epsilon: Annotated[float | None, _option("Of everything that one user sends within a window.", PRIVACY)] = None
    user_budget: Annotated[
        float | None, _option("Total epsilon of a user over all windows; beyond it its data does not enter.", PRIVACY)
    ] = None
    name: Annotated[str, _option("Name of the deployment, part of each round's id.", PRIVACY)] = "rounds"
    secret_file: Annotated[
        Path | None, _option("Key of the noise (else MEANSTREAM_SECRET, else a file beside the store).", PRIVACY)
    ] = None

    estimator: Annotated[
        str,
        _option("plan | one_shot | dame | kent | duchi | ... | cummings.ratio (a trusted curator) | ...", ESTIMATION),
    ] = "plan"
    option: Annotated[
        list[str] | None, _option("NAME=VALUE of the estimator's own, again for more.", ESTIMATION, "--option")
    ] = None
    mode: Annotated[str, _option("tuned, or paper: to the letter.", ESTIMATION)] = "tuned"
    sizes: Annotated[
        str | None,
        _option(
            "Law of a user's number of samples: point:K, poisson:L, ..., FILE.csv:COLUMN; or unknown.",
            ESTIMATION,
        ),
    ] = None
    users: Annotated[int | None, _option("Users per window; else counted in each window.", ESTIMATION)] = None
    between_users: Annotated[
        float | None, _option("Bound on the standard deviation of users' means, in the value's unit.", ESTIMATION)
    ] = None
    level: Annotated[float, _option("Coverage of the intervals.", ESTIMATION)] = 0.95

    store: Annotated[Path, _option("SQLite file of position, sums and ledger; resumes from it.", OUTPUT)] = Path(
        "meanstream-rounds.db"
    )
    sink: Annotated[str, _option(f"An estimate per window (public): {PLACES}", OUTPUT)] = "-"
    reports: Annotated[str | None, _option("Users' reports; or whom a trusted curator charged (public).", OUTPUT)] = (
        None
    )
    stages: Annotated[str | None, _option("What each stage found (public).", OUTPUT)] = None
    dead_letters: Annotated[str | None, _option("Rejected records, redacted (public).", OUTPUT)] = None
    notices: Annotated[str | None, _option("Users whose budget is spent (public).", OUTPUT)] = None
    json: JsonOption = False

    reports_only: Annotated[
        str | None, _option("Users' side alone: write reports here, and go on from what --stages says.", SIDES)
    ] = None
    from_reports: Annotated[
        Path | None, _option("Statistician's side alone: read reports here, write --stages and --sink.", SIDES)
    ] = None
    runner: Annotated[
        str | None,
        _option("FnApiRunner | PrismRunner | FlinkRunner | DataflowRunner: run on Beam, not on this engine.", SIDES),
    ] = None
    runner_arg: Annotated[
        list[str] | None, _option("Option of the runner, such as --flink_master=HOST:PORT.", SIDES, "--runner-arg")
    ] = None
    offsets: Annotated[str | None, _option(OFFSETS_HELP, SIDES)] = None

    metrics: MetricsOption = None
    page: PageOption = None
    page_remote: PageRemoteOption = False
    dry_run: Annotated[
        bool, _option("Check options, connections, topics and budget; read and write nothing.", OPERATION)
    ] = False
    log_format: LogFormatOption = "text"
    quiet: QuietOption = False

    def settings(self) -> RoundsSettings:
        """Check what the parties agree on, and design the estimator once, so that nothing is refused later.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from operators.release_times import parse_duration
        from operators.validation import require
        from streaming.rounds.curator import NO_SIDES
        from streaming.rounds.settings import RoundsSettings

        for name in ("lower", "upper", "epsilon", "window"):
            require(getattr(self, name) is not None, name, "be given", None)
        assert self.lower is not None  # noqa: S101 - said above, for the type checker
        assert self.upper is not None  # noqa: S101
        assert self.epsilon is not None  # noqa: S101
        assert self.window is not None  # noqa: S101
        settings = RoundsSettings(
            lower=_bounds("lower", self.lower),
            upper=_bounds("upper", self.upper),
            epsilon=float(self.epsilon),
            window=self.window,
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
        from operators.validation import require

        if self.values is None:
            return None
        require(self.value == "value", "value", "be left out with --values", self.value)
        names = tuple(name.strip() for name in self.values.split(","))
        require(all(names), "values", "be columns x,y,z", self.values)
        return names

    def engine_options(self) -> EngineOptions:
        """Check the rest.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from operators.release_times import parse_duration
        from streaming.options import EngineOptions

        lateness = parse_duration("allowed_lateness", self.allowed_lateness)
        return EngineOptions(batch_size=self.batch_size, allowed_lateness=lateness)

    @property
    def sinks(self) -> dict[str, str]:
        """Role of each sink that was asked for, and its place; all are public."""
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

    from operators.validation import require

    found: dict[str, Any] = {}
    for text in typed:
        name, equals, value = text.partition("=")
        require(bool(name and equals), "option", "be NAME=VALUE", text)
        try:
            found[name.replace("-", "_")] = _number(yaml.safe_load(value))
        except yaml.YAMLError:
            require(False, "option", "be NAME=VALUE", text)
    return found


def _bounds(name: str, typed: str) -> float | tuple[float, ...]:
    """Read a number, or several; from a file of options they may come as a list."""
    from operators.validation import require

    parts = str(typed).strip("[]()").split(",")
    try:
        numbers = tuple(float(part) for part in parts)
    except ValueError:
        require(False, name, "be a number, or one for each of --values", typed)
    return numbers if len(parts) > 1 else numbers[0]


def _number(value: Any) -> Any:
    """Read 1e-8, which YAML takes as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
