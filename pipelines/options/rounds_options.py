"""The options of everything that runs rounds, declared once.

`run rounds` and `explain rounds` take the same.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic.dataclasses import dataclass

from meanstream.operators.estimators.registry import (
    DEFAULT_ESTIMATOR,
    ESTIMATORS,
    LEARNING_ESTIMATOR,
    estimator_taken_for,
)
from meanstream.operators.limits import MAX_AGENTS
from meanstream.pipelines.options.base import DEFERRED, given_option, require_given
from meanstream.pipelines.options.declaration import (
    ESTIMATION,
    INPUT,
    OUTPUT,
    PRIVACY,
    SIDES,
    cli_option,
)
from meanstream.pipelines.options.shared_options import (
    COLUMN_HELP,
    PLACES,
    AskedStoreOption,
    MaxUsersOption,
    OffsetsOption,
    RegistryOption,
    RunnerArgOption,
    RunnerOption,
    checked_layout,
)
from meanstream.pipelines.options.store_settings import settings_of_rounds_store
from meanstream.pipelines.options.stream_options import StreamOptions

if TYPE_CHECKING:
    from meanstream.pipelines.options.stream_defaults import Lateness
    from meanstream.streaming.engine.engine_options import EngineOptions
    from meanstream.streaming.rounds.predictions_table import PredictionsTable
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings
    from meanstream.streaming.rounds.user_epsilons import UserEpsilons
    from meanstream.streaming.sources.mapping import ColumnMapping


SOURCE_HELP = "Samples: .csv, .tsv, .jsonl, .ndjson (also .gz, .zip), .parquet or kafka://HOST:PORT/TOPIC[,TOPIC...]."


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class RoundsOptions(StreamOptions):
    """What a user says about a population's mean per window, before anything is checked or opened."""

    WHO: ClassVar[str] = "user"
    LATENESS: ClassVar[str] = "allowed_lateness"

    source: Annotated[
        str | None,
        cli_option(
            SOURCE_HELP,
            INPUT,
            first=True,
            required=True,
        ),
    ] = None
    user: Annotated[
        str,
        cli_option(
            f"Column of the user: {COLUMN_HELP}",
            INPUT,
            first=True,
        ),
    ] = "user"
    values: Annotated[
        str | None,
        cli_option(
            "Columns x,y,z of a vector, instead of --value, for estimators of vectors.",
            INPUT,
        ),
    ] = None
    categories: Annotated[
        str | None,
        cli_option(
            "Categories a,b,c or FILE.txt of --value, a column of text, for the share of each; NAME=* takes all "
            "others.",
            INPUT,
            first=True,
        ),
    ] = None
    quantiles: Annotated[
        str | None,
        cli_option(
            "Quantiles over users of each user's own mean, such as .5,.9, instead of the mean.",
            INPUT,
        ),
    ] = None
    window: Annotated[
        str | None,
        cli_option(
            "Windows of event time: SIZE (7d), SIZE,PERIOD (7d,1d: sliding), session:GAP (session:30m), or a calendar "
            "unit: day, week, month, quarter or year, with a time zone (month@Europe/Berlin) and a first weekday "
            "(week:sunday).",
            INPUT,
            first=True,
            required=True,
        ),
    ] = None
    allowed_lateness: Annotated[
        str | None,
        cli_option(
            "Time from the end of a window to its close, by the clock, for a source without an end. Default: the "
            "store's, "
            "else 10s.",
            INPUT,
            "--allowed-lateness",
            "--lateness",
            unit="duration",
        ),
    ] = None
    max_users: MaxUsersOption = MAX_AGENTS

    lower: Annotated[
        str | None,
        cli_option(
            "Lower bound of a value, declared without a look at the data; for --values one, or one each: x,y,z; "
            "needed without --categories.",
            PRIVACY,
            first=True,
        ),
    ] = None
    upper: Annotated[
        str | None,
        cli_option(
            "Upper bound of a value, declared in the same way; needed without --categories.",
            PRIVACY,
            first=True,
        ),
    ] = None
    epsilon: Annotated[
        float | None,
        cli_option(
            "Privacy budget of everything that one user sends within a window.",
            PRIVACY,
            first=True,
            required=True,
        ),
    ] = None
    user_budget: Annotated[
        float | None,
        cli_option(
            "Largest total epsilon of a user over all windows; later windows leave out its data.",
            PRIVACY,
        ),
    ] = None
    user_windows: Annotated[
        int | None,
        cli_option(
            "Windows of a user that --epsilon and --delta pay for together, with the noise of least "
            "variance; later windows leave out its data. Default: each window costs epsilon.",
            PRIVACY,
        ),
    ] = None
    user_epsilons: Annotated[
        str | None,
        cli_option(
            "Public table of the largest --epsilon that each user accepts, FILE.csv:COLUMN or "
            "FILE.parquet:COLUMN, by --user. Records of users who accept less are not used.",
            PRIVACY,
            host="engine",
        ),
    ] = None
    delta: Annotated[
        float,
        cli_option(
            "Privacy budget delta of the windows of --user-windows; 0 allows only noise of epsilon "
            "alone.",
            PRIVACY,
        ),
    ] = 0.0

    estimator: Annotated[
        str | None,
        cli_option(
            f"Estimator: {' | '.join(ESTIMATORS)}; `explain rounds` shows whom each trusts. Default: the store's, else "
            f"{LEARNING_ESTIMATOR}, or {DEFAULT_ESTIMATOR} for sliding windows, sessions, two sides and declared "
            "users.",
            ESTIMATION,
            first=True,
        ),
    ] = None
    option: Annotated[
        list[str] | None,
        cli_option(
            "Own option of the estimator, NAME=VALUE; may be repeated.",
            ESTIMATION,
            "--option",
        ),
    ] = None
    mode: Annotated[
        str,
        cli_option(
            "Form of the estimator: tuned | paper (to the letter).",
            ESTIMATION,
        ),
    ] = "tuned"
    sizes: Annotated[
        str | None,
        cli_option(
            "Distribution of a user's number of samples: point:K, poisson:L, ..., FILE.csv:COLUMN; or unknown.",
            ESTIMATION,
        ),
    ] = None
    users: Annotated[
        int | None,
        cli_option(
            "Users per window; default: counted in each window.",
            ESTIMATION,
        ),
    ] = None
    between_users: Annotated[
        float | None,
        cli_option(
            "Declared bound on the standard deviation of users' means, in the unit of the value.",
            ESTIMATION,
        ),
    ] = None
    prediction: Annotated[
        str | None,
        cli_option(
            "Public forecast of each user's mean, FILE.csv:COLUMN or FILE.parquet:COLUMN, by --user "
            "and, where the file has that column, --time.",
            ESTIMATION,
            host="engine",
        ),
    ] = None
    tails: Annotated[
        str | None,
        cli_option(
            "Declared tails of users' means: exponential (few lie far from the others); default: no assumption.",
            ESTIMATION,
        ),
    ] = None
    level: Annotated[
        float,
        cli_option(
            "Coverage of the intervals.",
            ESTIMATION,
        ),
    ] = 0.95

    store: Annotated[
        Path,
        cli_option(
            "SQLite file of position, sums and ledger. A run continues from it.", OUTPUT, first=True
        ),
    ] = Path("meanstream-rounds.db")
    sink: Annotated[
        str,
        cli_option(
            f"Estimates, one per window (public): {PLACES}",
            OUTPUT,
            first=True,
        ),
    ] = "-"
    reports: Annotated[
        str | None,
        cli_option(
            "Users' reports (public); with a curator, the charged users.", OUTPUT, host="engine"
        ),
    ] = None
    stages: Annotated[
        str | None, cli_option("Results of stages (public).", OUTPUT, host="engine")
    ] = None
    dead_letters: Annotated[
        str | None,
        cli_option(
            "Dead letters (private): rejected records without their content.",
            OUTPUT,
            host="engine",
        ),
    ] = None
    notices: Annotated[
        str | None,
        cli_option("Notices (public): users whose budget is spent.", OUTPUT, host="engine"),
    ] = None

    reports_only: Annotated[
        str | None,
        cli_option(
            "Output of reports for the users' side alone, which reads --stages (a file or a topic).",
            SIDES,
            shows=True,
            host="engine",
        ),
    ] = None
    from_reports: Annotated[
        str | None,
        cli_option(
            "Input of reports for the statistician's side alone, which writes --stages and --sink (a .jsonl file or "
            "a topic).",
            SIDES,
            shows=False,
            host="engine",
        ),
    ] = None
    runner: RunnerOption = None
    runner_arg: RunnerArgOption = None
    offsets: OffsetsOption = None

    def settings(self) -> "RoundsSettings":
        """Check what the parties agree on, and design the estimator once, so that nothing is refused later.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from meanstream.operators.validation import require
        from meanstream.streaming.rounds.rounds_settings import NO_ORDER, RoundsSettings
        from meanstream.streaming.rounds.window_round import NO_SIDES

        require_given(
            self, *(() if self.categories is not None else ("lower", "upper")), "epsilon", "window"
        )
        lower, upper = self._ends()

        epsilon = given_option("epsilon", self.epsilon)
        window = given_option("window", self.window)
        settings = RoundsSettings(
            lower=lower,
            upper=upper,
            epsilon=float(epsilon),
            window=window,
            estimator=self.estimator or self._estimator_by_default(window),
            options=_own_options(self.option or []),
            sizes=self.sizes,
            users=self.users,
            between_users=self.between_users,
            user_budget=self.user_budget,
            user_windows=self.user_windows,
            user_delta=self.delta,
            allowed_lateness=self.lateness_in_force().seconds,
            name=self.name,
            level=self.level,
            mode=self.mode,
            values=self.coordinates,
            tails=self.tails,
            categories=self.declared_categories,
            quantiles=self.declared_quantiles,
            prediction=column_of(self.prediction),
            user_epsilons=column_of(self.user_epsilons),
        )
        settings.estimator_for(settings.users or 1)

        for side in ("reports_only", "from_reports"):
            rule = f"be of local privacy with --{side.replace('_', '-')}: {NO_SIDES}"
            require(
                getattr(self, side) is None or not settings.central,
                "estimator",
                rule,
                settings.estimator,
            )

        rule = "be left out with --from-reports: it concerns who reports"
        alone = self.from_reports is None or self.user_epsilons is None
        require(alone, "user_epsilons", rule, self.user_epsilons)

        for option in ("reports_only", "from_reports"):
            if getattr(self, option) is not None:
                settings.require_nothing_carried(f"with --{option.replace('_', '-')}", NO_ORDER)

        return settings

    def accepted_epsilons(self) -> "UserEpsilons | None":
        """Read which epsilon each user accepts."""
        from meanstream.streaming.rounds.user_epsilons import read_user_epsilons

        if self.user_epsilons is None:
            return None
        return read_user_epsilons(self.user_epsilons, user=self.user)

    def predictions(self, settings: "RoundsSettings") -> "PredictionsTable | None":
        """Read the public forecast of users' means."""
        from meanstream.streaming.rounds.predictions_table import read_predictions

        if self.prediction is None:
            return None
        lower, upper = map(float, settings.ends)
        return read_predictions(
            self.prediction,
            user=self.user,
            time=self.time,
            windows=settings.windows,
            ends=(lower, upper),
        )

    def _ends(self) -> tuple[float | tuple[float, ...], float | tuple[float, ...]]:
        """Give the bounds of a value; of shares they are known."""
        from meanstream.operators.validation import require

        if self.categories is None:
            return (
                _bounds("lower", given_option("lower", self.lower)),
                _bounds("upper", given_option("upper", self.upper)),
            )

        for name in ("lower", "upper"):
            bound = getattr(self, name)
            require(
                bound is None,
                name,
                "be left out with --categories: shares lie between 0 and 1",
                bound,
            )

        return 0.0, 1.0

    def _estimator_by_default(self, window: str) -> str:
        """Name the estimator where nobody does.

        One that learns, unless something else was said that it cannot have.
        """
        if self.categories is not None:
            return estimator_taken_for("categories")
        if self.quantiles is not None:
            return estimator_taken_for("quantiles")

        from meanstream.streaming.rounds.rounds_deployment import rounds_default_estimator

        said = (
            self.reports_only,
            self.from_reports,
            self.option,
            self.values,
            self.between_users,
            self.tails,
        )
        alone = not any(x is not None for x in said) and self.mode == "tuned"

        return rounds_default_estimator(
            None if self.runner else Path(self.store),
            window,
            alone=alone and self.sizes != "unknown",
            side="users" if self.from_reports is None else "statistician",
        )

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

    @property
    def declared_categories(self) -> tuple[str, ...] | None:
        """Categories of the column of the value, where shares are asked for.

        Raises
        ------
        ValueError
            If they cannot be categories, or there are coordinates, too.
        """
        from meanstream.operators.validation import require
        from meanstream.streaming.sources.categories import read_categories

        if self.categories is None:
            return None
        require(self.values is None, "values", "be left out with --categories", self.values)

        return read_categories(str(self.categories))

    @property
    def declared_quantiles(self) -> tuple[float, ...] | None:
        """Probabilities of the quantiles, where these are asked for."""
        if self.quantiles is None:
            return None
        probabilities = _bounds("quantiles", self.quantiles)

        if isinstance(probabilities, tuple):
            return probabilities
        return (probabilities,)

    def column_mapping(self) -> "ColumnMapping":
        """Say which column means what; a user is what sources call an agent."""
        from meanstream.streaming.sources.mapping import ColumnMapping

        return ColumnMapping(
            agent=self.user,
            value=self.value,
            values=self.coordinates,
            categories=self.declared_categories,
            time=self.time,
            id=self.id,
            layout=checked_layout(self.layout),
            numbers_in_text=self.numbers_in_text,
            owner="user",
        )

    def engine_options(self) -> "EngineOptions":
        """Check everything that is not privacy; see `StreamOptions.engine_options`."""
        from meanstream.operators.validation import require

        require(self.max_users >= 1, "max_users", "be at least 1", self.max_users)
        return super().engine_options()

    def lateness_in_force(self) -> "Lateness":
        """Say how long a window stays open by the clock; see `lateness_of_file_that_ends`."""
        from meanstream.pipelines.options.stream_defaults import lateness_of_file_that_ends

        return (
            lateness_of_file_that_ends(self.source, self.allowed_lateness)
            or super().lateness_in_force()
        )

    @property
    def sinks(self) -> dict[str, str]:
        """Role of each sink that was asked for, and its place.

        All but `dead_letters` are public.
        """
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

        return {role: location for role, location in places.items() if location is not None}


def _own_options(typed: list[str]) -> dict[str, Any]:
    """Read NAME=VALUE; values as in YAML."""
    import yaml

    from meanstream.operators.validation import require
    from meanstream.streaming.strict_yaml import read_strict_yaml

    options: dict[str, Any] = {}
    for text in typed:
        name, equals, value = text.partition("=")
        require(bool(name and equals), "option", "be NAME=VALUE", text)

        try:
            options[name.replace("-", "_")] = read_strict_yaml(value)
        except yaml.YAMLError:
            require(False, "option", "be NAME=VALUE", text)

    return options


def _bounds(name: str, typed: str) -> float | tuple[float, ...]:
    """Read a number, or several; from a file of options they may come as a list."""
    import yaml

    from meanstream.operators.validation import require
    from meanstream.streaming.strict_yaml import read_strict_yaml

    parts = str(typed).strip("[]()").split(",")
    try:
        read = [read_strict_yaml(text) for text in parts]
    except yaml.YAMLError:
        read = [None]

    good = all(isinstance(number, int | float) and not isinstance(number, bool) for number in read)
    rule = (
        "be numbers separated by commas"
        if name == "quantiles"
        else "be a number, or one for each of --values"
    )
    require(good, name, rule, typed)
    numbers = tuple(map(float, read))

    if len(parts) > 1:
        return numbers
    return numbers[0]


AGREED = ("lower", "upper", "epsilon", "window")


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class ExplainRoundsOptions(RoundsOptions):
    """What `run rounds` takes, and for whom it is explained."""

    store: AskedStoreOption = Path("meanstream-rounds.db")
    registry: RegistryOption = False

    def settings(self) -> "RoundsSettings":
        """Check what the parties agree on.

        Or read it from the store, and explain it for the users that are given.
        """
        if "store" not in self.said or not self.said.isdisjoint(AGREED):
            return super().settings()
        settings_of_store = settings_of_rounds_store(self.store)

        if self.users is None:
            return settings_of_store
        return replace(settings_of_store, users=self.users)


def column_of(table: str | None) -> str | None:
    """Give the column of FILE:COLUMN."""
    return None if table is None else table.rpartition(":")[2]
