"""`private_windows`: one private mean, or shares of categories, over all users per window of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from meanstream.operators.estimators.registry import estimator_name, estimator_taken_for
from meanstream.operators.validation import require, valid_float, valid_floats
from meanstream.pipelines.frames.arguments import (
    check_arguments,
    frame_key,
    named_arguments,
    require_numbers,
    require_texts,
)
from meanstream.pipelines.frames.frame_columns import FrameSamples, frame_samples
from meanstream.pipelines.frames.frame_predictions import frame_predictions, predicted_column
from meanstream.pipelines.frames.private_frame import PrivateFrame
from meanstream.pipelines.frames.values.value_columns import missing_as_nulls
from meanstream.streaming.events.round_events import WindowEstimate
from meanstream.streaming.rounds.predictions_table import PredictionsTable
from meanstream.streaming.rounds.round_runner import Directory, Outcome, RoundRunner
from meanstream.streaming.rounds.rounds_deployment import rounds_default_estimator
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.summarize_users import summarize_windows
from meanstream.streaming.rounds.window_widths import LONGEST
from meanstream.streaming.sources.categories import require_categories

HINTS = {
    "person": "by= is the person here: all rows of one user in a window are protected together"
}
"""Arguments of other functions, and what to use here."""
HINTS |= {
    "per_person": HINTS["person"],
    "store": "`meanstream run rounds --store` keeps a ledger of windows",
}
FEW_USERS = "too few users"
"""Shown in place of an answer that says little."""
WIDE_WINDOW = 0.5
"""Width of an interval, as a part of the bounds, from which on there are too few users."""
_GIVEN_OTHERWISE = ("user_delta", "prediction", "user_epsilons")
SETTINGS = tuple(
    field.name
    for field in fields(RoundsSettings)
    if field.init and field.name not in _GIVEN_OTHERWISE
)
"""Further settings of rounds."""


@named_arguments({"by": "the column of users", "window": "such as month, week or 7d"})
def private_windows(
    frame: Any,
    *,
    by: str,
    value: str,
    time: str,
    lower: float | None = None,
    upper: float | None = None,
    epsilon: float,
    window: str,
    categories: Sequence[str] | None = None,
    quantiles: Sequence[float] | None = None,
    tz: str | None = None,
    first_weekday: str | None = None,
    nulls: str = "refuse",
    missing: Sequence[float] = (),
    central: bool = False,
    user_windows: int | None = None,
    delta: float = 0.0,
    estimator: str | type[Any] | None = None,
    level: float = 0.95,
    prediction: Any = None,
    secret: str | bytes | None = None,
    name: str | None = None,
    **settings: Any,
) -> PrivateWindows:
    """Answer for each window with the mean over its users, where each user counts once, and an interval.

    With `categories` the answers are shares: a row for each window and category. With `quantiles`
    they are quantiles over users of each user's own mean: a row for each window and probability.

    Released to anyone who gets the result: everything in it is computed from users' randomized
    reports, or from sums that a curator has noised.

    Parameters
    ----------
    frame : data frame
        As for `private_means`.
    by : str
        Column of the user whose row it is, who is protected. (In `private_means` it is the column
        of groups.)
    value, time : str
        Column of numbers, and of event times (timestamps, dates, ISO 8601 text or seconds).
    lower, upper : float, optional
        Bounds of a value, chosen without a look at the data; needed without `categories`.
    epsilon : float
        Of everything that one user has in a window, its number of rows included.
    window : str
        `day`, `week`, `month`, `quarter` or `year` of the calendar, `7d` (fixed), `7d,1d` (sliding)
        or `session:30m`.
    categories : sequence of str, optional
        Declared categories of a column of texts, for the share of each; one may be "NAME=*", which
        takes all others.
    quantiles : sequence of float, optional
        Probabilities, ascending.
    tz : str, optional
        Time zone of the calendar, such as "Europe/Berlin"; UTC by default. Times and dates without
        a zone are taken as local times of it.
    first_weekday : str, optional
        First day of a week; Monday by default.
    nulls : str
        What to do with missing values: "refuse", or "drop". A row without a user or a time is then
        left out; one without a value still makes its user take part: with the middle of the bounds,
        or a random category, if the user has no other value in the window.
    missing : sequence of float
        Numbers that stand for a missing value, such as -999: they are nulls from here on.
    central : bool
        Anyone who calls this is trusted with every row, and adds noise to sums: far more precise.
        Otherwise each user's report is randomized by itself, as it would be on the user's own
        device.
    user_windows : int, optional
        Windows of a user that epsilon and delta pay for together, with the noise of least variance;
        later windows leave out its data. Not given: each window costs epsilon.
    delta : float
        Of these windows together; 0 allows only noise of epsilon alone.
    estimator : str, optional
        A name of `meanstream.ESTIMATORS`, or a class of your own; by default the one for the trust
        that is requested: without a curator, of fixed windows, one that learns from the windows
        before.
    level : float
        Nominal coverage of the intervals.
    prediction : data frame, optional
        Public forecast of users' means: the column `by`, one column of predictions and, if they
        differ from window to window, the column `time`. It must not be made from the rows of
        `frame`.
    secret, name : optional
        As for `private_means`.
    **settings
        Others of `meanstream run rounds`: `users`, `sizes`, `between_users`, `user_budget`...

    Raises
    ------
    ValueError
        Naming the column or parameter and the rule.

    Notes
    -----
    **Privacy.** (epsilon, delta of the estimator) towards all that one user has in a window; who took part in which
    window is public. A user in k windows has k times epsilon, unless `user_budget` ends that, or
    `user_windows` makes (epsilon, delta) the budget of that many windows, within one call. Only the
    same frame under the same `secret` and `name` gives the same answers again; every other call costs epsilon again for
    each window that it answers, and nothing counts that: 30 calls are 30 times epsilon. The result says so; `meanstream
    run rounds` has a store that counts. With equal settings, secret and name the answers are the engine's, byte for
    byte.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> table = pa.table({"who": [f"u{i}" for i in range(500)] * 4, "v": rng.uniform(2, 4, 2000), "t": np.arange(2000)})
    >>> found = private_windows(table, by="who", value="v", time="t", lower=0, upper=10, epsilon=1.0, window="1h",
    ...                         central=True, secret="9b1f6c04d2a85e73bb40c9f1e6a7250d", name="doc")
    >>> found.to_frame().column_names
    ['window', 'end', 'mean', 'lower', 'upper', 'stderr', 'users', 'refused']
    >>> found.to_frame()["users"].to_pylist()
    [500]
    >>> table = table.append_column("device", pa.array(["phone", "phone", "desktop", "tv"] * 500))
    >>> found = private_windows(table, by="who", value="device", time="t", epsilon=4.0, window="1h",
    ...                         categories=["phone", "desktop", "other=*"], secret="9b1f6c04d2a85e73bb40c9f1e6a7250d",
    ...                         name="doc")
    >>> dict(zip(found.to_frame()["category"].to_pylist(), found.to_frame()["share"].to_numpy().round(3).tolist()))
    {'phone': 0.499, 'desktop': 0.256, 'other': 0.245}
    """
    check_arguments(private_windows, SETTINGS, settings, HINTS)
    require_numbers(lower=lower, upper=upper, epsilon=epsilon)
    require_texts(by=by, value=value, time=time, window=window)
    window = _calendar(window, tz, first_weekday)
    key, deployment = frame_key(secret, name)

    # Shares lie between 0 and 1; other answers are of values within declared bounds.
    if categories is not None:
        _require_no_bounds(lower=lower, upper=upper)
        require(
            not len(missing), "missing", "be left out with categories, which are texts", missing
        )
        lower = 0.0
        upper = 1.0

    require(lower is not None, "lower", "be given without categories", lower)
    require(upper is not None, "upper", "be given without categories", upper)
    usual = _usual_estimator(
        window, settings, central=central, categories=categories, quantiles=quantiles
    )
    rounds = RoundsSettings(
        lower=valid_float("lower", lower),
        upper=valid_float("upper", upper),
        epsilon=epsilon,
        window=window,
        estimator=usual if estimator is None else estimator_name(estimator),
        level=valid_float("level", level),
        name=deployment,
        categories=None if categories is None else require_categories(categories),
        quantiles=None if quantiles is None else tuple(valid_floats("quantiles", quantiles)),
        user_windows=user_windows,
        user_delta=delta,
        prediction=None if prediction is None else predicted_column(prediction, by, time),
        **settings,
    )
    _require_estimator(rounds, central=central)
    forecast = None if prediction is None else frame_predictions(prediction, rounds, by, time)

    # Nothing is read before all settings are checked.
    samples = frame_samples(
        missing_as_nulls(frame, [value], missing, [by, time]),
        by=by,
        value=value,
        time=time,
        nulls=nulls,
        tz=tz,
        categories=categories,
        protect_validity=True,
    )
    answers, most_windows = _answers(samples, rounds, key, forecast)

    return PrivateWindows.of(frame, answers, rounds, value, most=most_windows)


def _require_no_bounds(**bounds: float | None) -> None:
    rule = "be left out with categories, whose shares lie between 0 and 1"
    for name, bound in bounds.items():
        require(bound is None, name, rule, bound)


def _usual_estimator(
    window: str,
    settings: dict[str, Any],
    *,
    central: bool,
    categories: Sequence[str] | None,
    quantiles: Sequence[float] | None,
) -> str:
    """Name of the estimator for a question, where no one names another."""
    for name, question in (("categories", categories), ("quantiles", quantiles)):
        if question is not None:
            rule = f"be False with {name}: no curator answers them"
            require(not central, "central", rule, central)

    if quantiles is not None:
        return estimator_taken_for("quantiles")
    if categories is not None:
        return estimator_taken_for("categories")
    if central:
        return estimator_taken_for("curator")

    # One that learns, unless something is declared that it cannot have.
    declared = {"options", "sizes", "mode", "values", "between_users", "tails"} & set(settings)
    return rounds_default_estimator(None, window, alone=not declared)


def _require_estimator(rounds: RoundsSettings, *, central: bool) -> None:
    """Refuse an estimator of another trust, or of several means."""
    if rounds.central != central:
        trust = "central trust" if central else "local privacy (or central be True)"
        raise ValueError(f"estimator must be one of {trust}, got {rounds.estimator!r}")

    if not rounds.one_mean and rounds.categories is None and rounds.quantiles is None:
        raise ValueError(f"estimator must be one of one mean here, got {rounds.estimator!r}")


def _calendar(window: str, tz: str | None, first_weekday: str | None) -> str:
    """One text of a window, its time zone and its first weekday."""
    rule = "be left out with windows that are no unit of the calendar"
    require(window in LONGEST or tz is None, "tz", rule, tz)
    is_weekly = window == "week" or first_weekday is None
    rule = "be left out with windows that are no weeks of the calendar"
    require(is_weekly, "first_weekday", rule, first_weekday)

    if first_weekday is not None:
        window = f"{window}:{first_weekday.lower()}"
    return window if tz is None else f"{window}@{tz}"


def _answers(
    samples: FrameSamples,
    settings: RoundsSettings,
    key: bytes,
    predictions: PredictionsTable | None,
) -> tuple[list[tuple[bytes, int]], int]:
    """Run the round of each window, in the order of time.

    An answer is an event, with the number of users who were over budget. The second is the number
    of windows that one user took part in, at most.
    """
    user = samples.group.astype(np.int64)
    sums = summarize_windows(settings.windows, user, samples.value, samples.times(), settings.grid)
    taken_part = np.zeros(len(samples.names), np.int64)
    for users in sums.values():
        taken_part[users.user] += 1

    runner = RoundRunner(settings, key, Directory(samples.names), predictions)
    runner.begin_turn(np.zeros(0, np.int64))
    answers = []
    for window in sorted(sums, key=lambda window: (window.end, window.start)):
        outcome = Outcome()
        runner.run(*runner.enter(window, sums[window], outcome), outcome)
        estimates = [event for event in outcome.events if event.kind is WindowEstimate]
        (line,) = (line for event in estimates for line in event.lines)
        answers.append((line, outcome.refused))

    most_windows = int(taken_part.max(initial=0))
    return answers, most_windows if settings.horizon is None else min(
        most_windows, settings.horizon
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrivateWindows(PrivateFrame):
    """One private mean per window; see `private_windows`.

    Attributes
    ----------
    settings : RoundsSettings
        How the windows were answered.
    """

    settings: RoundsSettings

    def explain(self) -> str:
        """Say in plain words what is protected, what that means as odds, and what is not covered.

        As `meanstream explain rounds` does.
        """
        from meanstream.pipelines.commands.explain.explain_rounds import (
            explain_rounds_facts,
            explain_rounds_text,
        )

        return explain_rounds_text(explain_rounds_facts(self.settings))

    def report(self, path: str | Path) -> Path:
        """Write what is protected and what was spent as one page of HTML.

        Give its path.
        """
        from meanstream.pipelines.frames.explanation import promise_of_windows, write_promise

        title = f"Private {self.answer}s of {self.value} by window"
        return write_promise(path, title, promise_of_windows(self))

    def _texts(self, row: dict[str, Any]) -> list[str]:
        texts = super()._texts(row)
        if self._says_little(row):
            texts[self.table.column_names.index(self.answer)] = FEW_USERS

        return texts

    def _says_little(self, row: dict[str, Any]) -> bool:
        """Say whether an interval is so long that hardly more than the bounds is known."""
        # A frame has one mean per window, so that the bounds are two numbers; shares have 0 and 1.
        # The width may be of several values: an interval as long as the bounds says hardly
        # anything.
        width = np.subtract(self.settings.upper, self.settings.lower)

        return bool(row["upper"] - row["lower"] >= WIDE_WINDOW * width)

    @classmethod
    def of(
        cls,
        frame: Any,
        answers: list[tuple[bytes, int]],
        settings: RoundsSettings,
        value: str,
        *,
        most: int,
    ) -> PrivateWindows:
        """Put a result together from the events that a stream would have written."""
        events = [msgspec.json.decode(line) for line, _ in answers]
        rows = [
            row
            for event, (_, refused) in zip(events, answers, strict=True)
            for row in _rows(event, refused)
        ]
        kinds = _kinds_of_columns(settings)
        part, answer, _ = _columns_of(settings)
        delta = events[0]["delta"] if events else 0.0

        return cls(
            table=pa.table(
                {name: _column([row[name] for row in rows], kind) for name, kind in kinds.items()}
            ),
            notes=(*_costs(settings, delta, most),),
            level=settings.level,
            keys=("window",) if part is None else ("window", part),
            original=frame,
            value=value,
            answer=answer,
            settings=settings,
            meaning=_meaning(settings, answer),
        )


def _kinds_of_columns(settings: RoundsSettings) -> dict[str, pa.DataType]:
    """Columns of a result by their types, which a frame without windows has as well."""
    calendar = settings.windows.calendar
    when = pa.timestamp("us", "UTC" if calendar is None else calendar.zone)
    part, answer, kind = _columns_of(settings)

    kinds: dict[str, pa.DataType] = {"window": when, "end": when}
    if part is not None:
        kinds[part] = kind
    kinds |= dict.fromkeys((answer, "lower", "upper", "stderr"), pa.float64())

    return kinds | dict.fromkeys(("users", "refused"), pa.int64())


def _costs(settings: RoundsSettings, delta: float, most: int) -> Iterator[str]:
    """Sentences on what one window, two calls and all windows of a user cost."""
    epsilon = settings.epsilon
    shared = settings.user_windows
    windows = "each window" if shared is None else f"{shared:,} windows of a user together"
    yield f"{_promise(epsilon, delta)} for {windows}. {settings.protected}"
    yield (
        f"No ledger counts this call: 2 calls on different frames are epsilon {2 * epsilon:g} "
        "together for a window in both; `meanstream run rounds --store` keeps one"
    )

    # A user in several windows is protected in all of them together by the sum.
    if shared is not None:
        yield f"Chosen noise: {settings.window_budget_text}"
    elif most > 1 and settings.unit.startswith("one user"):
        together = _promise(most * epsilon, most * delta)
        yield f"A user in {most:,} windows, the most here, has {together} in all of them"


def _promise(epsilon: float, delta: float) -> str:
    return f"epsilon {epsilon:g}, delta {delta:g}" if delta else f"epsilon {epsilon:g}"


def _meaning(settings: RoundsSettings, answer: str) -> str:
    """Sentence on what the answers of windows and their intervals are of."""
    users_mean = (
        f"each user's own mean of values clipped to [{settings.lower:g}, {settings.upper:g}]"
    )
    said = f"its {100 * settings.level:g} % interval is for all users of the window"
    if settings.categories is not None:
        return f"`{answer}` estimates the share of users with the category; {said}"
    if settings.quantiles is not None:
        return f"`{answer}` estimates a quantile over users of {users_mean}; {said}"

    return f"`{answer}` estimates the mean over users of {users_mean}; {said}"


def _rows(event: dict[str, Any], refused: int) -> list[dict[str, Any]]:
    """A window's answer as rows: one, or one for each category or quantile."""
    common = {"window": _micros(event["start"]), "end": _micros(event["end"])}
    common |= {"users": event["users"], "refused": refused}

    parts = event.get("categories", event.get("quantiles"))
    if parts is None:
        lower, upper = event["interval"]
        answer = {"mean": event["value"], "lower": lower, "upper": upper}
        return [common | answer | {"stderr": event["stderr"]}]

    part, answer_name = ("category", "share") if "categories" in event else ("quantile", "value")
    columns = zip(parts, event["value"], event["interval"], event["stderr"], strict=True)
    names = (part, answer_name, "lower", "upper", "stderr")

    return [
        common | dict(zip(names, (name, value, *interval, stderr), strict=True))
        for name, value, interval, stderr in columns
    ]


def _columns_of(settings: RoundsSettings) -> tuple[str | None, str, pa.DataType]:
    """Name the column that says what an answer is of, with its type, and that of the answers."""
    if settings.categories is not None:
        return "category", "share", pa.string()

    if settings.quantiles is not None:
        return "quantile", "value", pa.float64()
    return (None, "mean", pa.null())


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def _micros(text: str) -> int:
    return int(np.datetime64(text.removesuffix("Z"), "us").astype(np.int64))
