"""`meanstream explain --diff`: what one configuration protects less than another, and what more."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.help_text import without_passwords
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.pipelines.options.typer_commands import prepare_commands, takes_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meanstream.operators.agents.agents_settings import AgentsSettings
    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings


ENDLESS = "without end"
HOUR = 3_600_000_000
"""Microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseFact:
    """One fact: what it is, its value for reading, and how much is lost.

    The greater, the weaker the promise.
    """

    name: str
    value: Any
    loss: float
    meaning: str


def promise_of_agents(settings: AgentsSettings) -> list[PromiseFact]:
    """Give the facts of agents.

    Examples
    --------
    >>> from meanstream.operators.agents.agents_settings import AgentsSettings
    >>> facts = promise_of_agents(AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6))
    >>> [(one.name, one.value) for one in facts][:5]
    [('unit', 'one sample'), ('epsilon', 1.0), ('delta', 1e-06), ('right guesses', '70.6 %'), ('horizon', 40)]
    """
    from meanstream.pipelines.commands.explain.promise_facts import explain_odds_of_agents

    persons = settings.per_person is not None
    releases = settings.most_releases
    guess = explain_odds_of_agents(settings)["guessed_right"]
    unit = "all samples of one person in one agent" if persons else "one sample"

    return [
        PromiseFact(
            name="unit",
            value=unit,
            loss=0 if persons else 1,
            meaning="epsilon protects this together",
        ),
        *_budget(settings.epsilon, settings.delta, guess, "over all releases of an agent"),
        PromiseFact(
            name="horizon",
            value=ENDLESS if releases is None else releases,
            loss=math.inf if releases is None else releases,
            meaning="largest number of releases of an agent, which share the budget",
        ),
        _shown(
            "votes",
            settings.vote is not None,
            "noisy counts of differences between an agent's samples",
        ),
        _shown("histogram", settings.histogram_share > 0, "noisy histograms of an agent's samples"),
    ]


def promise_of_rounds(settings: RoundsSettings) -> list[PromiseFact]:
    """Give the facts of rounds.

    Examples
    --------
    >>> from meanstream.streaming.rounds.rounds_settings import RoundsSettings
    >>> facts = promise_of_rounds(RoundsSettings(lower=0, upper=1, epsilon=1, window="7d", users=500))
    >>> [(one.name, one.value) for one in facts][-4:]
    [('trust', 'no one (local)'), ('user budget', 'none'), ('window', 'one begins every 168 h'), ('overlap', 1)]
    """
    from meanstream.pipelines.commands.explain.explain_rounds import explain_rounds_facts

    facts = explain_rounds_facts(settings)
    total = facts["total"]
    together = settings.user_windows is not None
    over = "in all windows of a user together" if together else "in one window"

    return [
        _unit_of_rounds(facts),
        *_budget(total["epsilon"], total["delta"], facts["odds"]["guessed_right"], over),
        _trust_of_rounds(facts),
        _budget_of_users(settings),
        _window_of_rounds(settings),
        PromiseFact(
            name="overlap",
            value=settings.windows.overlap,
            loss=settings.windows.overlap,
            meaning="windows that a sample is in",
        ),
    ]


def _unit_of_rounds(facts: dict[str, Any]) -> PromiseFact:
    """Compare units: all of a user, its values alone, one sample."""
    loss = 2 if facts["privacy_unit"] == "sample" else int("NOT its number" in facts["protects"])
    return PromiseFact(
        name="unit",
        value=facts["protects"],
        loss=loss,
        meaning="epsilon protects this together",
    )


def _trust_of_rounds(facts: dict[str, Any]) -> PromiseFact:
    central = facts["trust"] == "central"
    return PromiseFact(
        name="trust",
        value="a curator, with every sample (central)" if central else "no one (local)",
        loss=int(central),
        meaning="users must trust them",
    )


def _budget_of_users(settings: RoundsSettings) -> PromiseFact:
    """Give the largest loss of a user; windows that share epsilon have no budget besides it."""
    together = settings.user_windows is not None
    budget = settings.epsilon if together else settings.user_budget

    return PromiseFact(
        name="user budget",
        value="none" if budget is None else budget,
        loss=math.inf if budget is None else budget,
        meaning="largest total epsilon of a user over all windows",
    )


def _window_of_rounds(settings: RoundsSettings) -> PromiseFact:
    """Compare how often a window begins; sessions publish times of samples."""
    windows = settings.windows
    meaning = "each window with a user's data costs that user epsilon again"
    if settings.user_windows is not None:
        meaning = f"{settings.user_windows} windows of a user share epsilon"

    if windows.kind == "session":
        value = "sessions, whose first and last times are public"
        return PromiseFact(name="window", value=value, loss=math.inf, meaning=meaning)

    every = f"one begins every {windows.period / HOUR:g} h"
    return PromiseFact(name="window", value=every, loss=-windows.period, meaning=meaning)


def _budget(epsilon: float, delta: float, guess: float, over: str) -> list[PromiseFact]:
    guesses = "an adversary who knows all else chooses between two equally likely contents"
    return [
        PromiseFact(name="epsilon", value=epsilon, loss=epsilon, meaning=f"privacy loss, {over}"),
        PromiseFact(
            name="delta",
            value=delta,
            loss=delta,
            meaning="probability that the promise of epsilon fails",
        ),
        PromiseFact(
            name="right guesses",
            value=f"{100 * guess:.1f} %",
            loss=round(guess, 4),
            meaning=guesses,
        ),
    ]


def _shown(name: str, shown: bool, meaning: str) -> PromiseFact:
    return PromiseFact(
        name=name, value="released" if shown else "not released", loss=int(shown), meaning=meaning
    )


class Bearing(StrEnum):
    """What another value of an option means for whoever is protected."""

    PROMISE = "promise"
    """It is part of the promise, whose facts are compared: budget, unit, trust, releases."""
    UNIT = "unit"
    """A column that says who or what is protected: without it, or with another, the promise is for
    somebody else."""
    DEPLOYMENT = "deployment"
    """It names the deployment: another one spends a budget of its own on the same data."""
    PUBLIC = "public"
    """A place of public output: a new one shows more."""
    PRIVATE = "private"
    """A place of private output: a new one, or another one, may have other readers."""
    ACCESS = "access"
    """A switch that lets other machines in."""
    NOTED = "noted"
    """It changes what is answered or how; no side has more or less of the privacy that was
    promised."""
    NONE = "none"
    """It has no bearing on privacy: how samples are read, waited for and logged."""


_STREAM = {
    **dict.fromkeys(("name",), Bearing.DEPLOYMENT),
    **dict.fromkeys(("id",), Bearing.UNIT),
    **dict.fromkeys(("epsilon", "mode"), Bearing.PROMISE),
    **dict.fromkeys(("notices", "metrics", "page"), Bearing.PUBLIC),
    **dict.fromkeys(("private_metrics", "private_figures"), Bearing.PRIVATE),
    **dict.fromkeys(("page_remote",), Bearing.ACCESS),
    **dict.fromkeys(
        ("source", "value", "time", "lower", "upper", "secret_file", "store", "runner"),
        Bearing.NOTED,
    ),
    **dict.fromkeys(
        ("config", "layout", "numbers_in_text", "sort", "follow", "until_end", "offsets"),
        Bearing.NONE,
    ),
    **dict.fromkeys(
        ("batch_size", "max_future", "max_dead_letters", "json", "level", "runner_arg"),
        Bearing.NONE,
    ),
    **dict.fromkeys(("dry_run", "wait_for", "log_format", "quiet"), Bearing.NONE),
}
AGENTS_BEARING = _STREAM | {
    **dict.fromkeys(("agent", "person"), Bearing.UNIT),
    **dict.fromkeys(
        ("delta", "odds", "per_person", "counter", "noise", "calibration", "levels"),
        Bearing.PROMISE,
    ),
    **dict.fromkeys(("horizon", "memory", "spread_share", "histogram_share"), Bearing.PROMISE),
    **dict.fromkeys(("dead_letters", "releases", "population"), Bearing.PUBLIC),
    **dict.fromkeys(("sink", "answers"), Bearing.PRIVATE),
    **dict.fromkeys(("answers_remote",), Bearing.ACCESS),
    **dict.fromkeys(
        ("schedule", "final_release", "exceeds", "quantiles", "covariates"), Bearing.NOTED
    ),
    **dict.fromkeys(("partners", "members", "variance"), Bearing.NOTED),
    **dict.fromkeys(("answer_tokens",), Bearing.NOTED),
    **dict.fromkeys(("shards", "lateness", "quorum", "idle_after", "max_agents"), Bearing.NONE),
    **dict.fromkeys(("collaboration", "stddev", "refresh", "weights", "coverage"), Bearing.NONE),
}
"""Of `run agents`."""
ROUNDS_BEARING = _STREAM | {
    **dict.fromkeys(("user",), Bearing.UNIT),
    **dict.fromkeys(
        ("window", "estimator", "option", "user_budget", "user_windows", "delta"),
        Bearing.PROMISE,
    ),
    **dict.fromkeys(("sink", "reports", "stages", "reports_only"), Bearing.PUBLIC),
    **dict.fromkeys(("dead_letters",), Bearing.PRIVATE),
    **dict.fromkeys(
        ("values", "sizes", "users", "between_users", "tails", "from_reports"), Bearing.NOTED
    ),
    **dict.fromkeys(("categories", "quantiles", "prediction", "user_epsilons"), Bearing.NOTED),
    **dict.fromkeys(("allowed_lateness", "max_users"), Bearing.NONE),
}
"""Of `run rounds`."""


WEAKER = "weaker"
STRONGER = "stronger"
CHANGED = "changed"
VERDICTS = (WEAKER, STRONGER, CHANGED)
NO_STORE = Path(os.devnull) / "no-store"
"""A path that no store can have: two files are compared, not what a store on this machine began
with."""
_COMPARED = "the lines on the promise, if any, show its effect"
MEANINGS = {
    Bearing.UNIT: (
        "the column is new, and protects more than none",
        "no column has this part of the promise any more",
        "another column has this part of the promise",
    ),
    Bearing.PUBLIC: (
        "one more public output",
        "one public output less",
        "the same public output, elsewhere",
    ),
    Bearing.PRIVATE: (
        "one more private output",
        "one private output less",
        "private output goes elsewhere",
    ),
    Bearing.ACCESS: ("other machines may connect", "no other machine may connect", ""),
    Bearing.DEPLOYMENT: ("", "", "another deployment: the same data pays a second budget"),
    Bearing.PROMISE: (_COMPARED,) * 3,
    Bearing.NOTED: ("the budget and the unit stay",) * 3,
}
"""Of an option that is added, left out, or set to another value."""
VERDICT_OF = {
    Bearing.UNIT: (STRONGER, WEAKER, WEAKER),
    Bearing.PUBLIC: (WEAKER, STRONGER, CHANGED),
    Bearing.PRIVATE: (WEAKER, STRONGER, WEAKER),
    Bearing.ACCESS: (WEAKER, STRONGER, CHANGED),
    Bearing.DEPLOYMENT: (CHANGED, WEAKER, WEAKER),
    Bearing.PROMISE: (CHANGED,) * 3,
    Bearing.NOTED: (CHANGED,) * 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between two configurations, and which way it goes."""

    verdict: str
    what: str
    old: Any
    new: Any
    meaning: str


def explain_diff(old: Path, new: Path, *, as_json: bool) -> bool:
    """Print the differences; say whether anything is weaker."""
    kinds, options = zip(*(_read(path) for path in (old, new)), strict=True)
    if kinds[0] != kinds[1]:
        raise BadOption(
            f"diff must be two files of agents or two of rounds, got {kinds[0]} and {kinds[1]}"
        )

    differences = sorted(
        differences_of(*options), key=lambda difference: VERDICTS.index(difference.verdict)
    )
    if as_json:
        rows = {
            verdict: [
                _row(difference) for difference in differences if difference.verdict == verdict
            ]
            for verdict in VERDICTS
        }
        print_options_json({"kind": kinds[0], "old": str(old), "new": str(new), **rows})
    else:
        sys.stdout.writelines(_lines(old, new, differences))

    return any(difference.verdict == WEAKER for difference in differences)


def differences_of(
    old: AgentsOptions | RoundsOptions, new: AgentsOptions | RoundsOptions
) -> Iterator[Difference]:
    """Compare two configurations of one kind.

    The promise by its facts, then each option by its bearing.
    """
    said = set()
    for before_fact, after_fact in zip(_promise(old), _promise(new), strict=True):
        if before_fact.loss != after_fact.loss or before_fact.value != after_fact.value:
            verdict = (
                CHANGED
                if before_fact.loss == after_fact.loss
                else WEAKER
                if after_fact.loss > before_fact.loss
                else STRONGER
            )
            said.add(before_fact.name.replace(" ", "_"))
            yield Difference(
                verdict=verdict,
                what=before_fact.name,
                old=before_fact.value,
                new=after_fact.value,
                meaning=after_fact.meaning,
            )

    for name, bearing in (AGENTS_BEARING if _is_of_agents(old) else ROUNDS_BEARING).items():
        before = _printable(getattr(old, name))
        after = _printable(getattr(new, name))
        if before == after or bearing is Bearing.NONE or name in said:
            continue

        way = 0 if before is None else 1 if after is None else 2
        verdict = VERDICT_OF[bearing][way]
        meaning = MEANINGS[bearing][way] or MEANINGS[bearing][2]
        yield Difference(verdict=verdict, what=name, old=before, new=after, meaning=meaning)


def _is_of_agents(options: Any) -> bool:
    from meanstream.pipelines.options.agents_options import AgentsOptions

    return isinstance(options, AgentsOptions)


def _read(path: Path) -> tuple[str, AgentsOptions | RoundsOptions]:
    with refusing_options():
        options = read_run_file(path)
        return ("agents" if _is_of_agents(options) else "rounds"), options


def _promise(options: Any) -> list[PromiseFact]:
    with refusing_options():
        settings = replace(options, store=NO_STORE).settings()

        if _is_of_agents(options):
            return promise_of_agents(settings)
        return promise_of_rounds(settings)


def _printable(value: Any) -> Any:
    """Give a value as it may be printed: nothing for what is off, and no password."""
    if value is None or value is False or value == []:
        return None

    if isinstance(value, bool | int | float):
        return value
    return without_passwords(str(value))


def _row(one: Difference) -> dict[str, Any]:
    return {name: value for name, value in asdict(one).items() if name != "verdict"}


def _text(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _lines(old: Path, new: Path, differences: list[Difference]) -> Iterator[str]:
    yield f"{old} -> {new}\n"
    for difference in differences:
        pair = " -> ".join(_text(value) for value in (difference.old, difference.new))
        yield f"{difference.verdict:<9} {difference.what}: {pair} ({difference.meaning})\n"

    counts = (
        sum(difference.verdict == verdict for difference in differences) for verdict in VERDICTS
    )
    yield (
        ", ".join(f"{count} {verdict}" for count, verdict in zip(counts, VERDICTS, strict=True))
        + "\n"
    )


_READERS = typer.Typer(help="Options of a configuration; not a command.")


@_READERS.command("agents")
@takes_options("agents_options:AgentsOptions")
def _agents(_: AgentsOptions) -> None:
    """Have the options of agents."""


@_READERS.command("rounds")
@takes_options("rounds_options:RoundsOptions")
def _rounds(_: RoundsOptions) -> None:
    """Have the options of rounds."""


def read_run_file(path: Path) -> AgentsOptions | RoundsOptions:
    """Read the options of a configuration file.

    Raises
    ------
    BadOption
        If it is no configuration of agents or rounds.
    """
    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions

    prepare_commands(_READERS)
    commands: Any = typer.main.get_command(_READERS)
    kind = "rounds" if _is_of_rounds(path) else "agents"
    with commands.commands[kind].make_context(kind, ["--config", str(path)]) as context:
        values = {
            name: value
            for name, value in context.params.items()
            if name not in ("print_config", "help_all")
        }

    if kind == "rounds":
        return RoundsOptions(**values)
    return AgentsOptions(**values)


def _is_of_rounds(path: Path) -> bool:
    """Tell by an option that only rounds have.

    What is no configuration is refused where it is read.
    """
    import yaml

    from meanstream.streaming.strict_yaml import read_strict_yaml_file

    try:
        entries = read_strict_yaml_file(path)
    except (OSError, ValueError, yaml.YAMLError):
        return False

    return isinstance(entries, dict) and not {"user", "window", "estimator"}.isdisjoint(
        map(str, entries)
    )
