"""The promise of a configuration as facts that have an order: which value protects less."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meanstream.operators.agents.agents_settings import AgentsSettings
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
    from meanstream.pipelines.commands.explain.explain_odds import explain_odds_of_agents

    persons = settings.per_person is not None
    most = settings.most_releases
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
            value=ENDLESS if most is None else most,
            loss=math.inf if most is None else most,
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
    windows = settings.windows
    budget = settings.user_budget
    values = "NOT its number" in facts["protects"]
    session = windows.kind == "session"
    central = facts["trust"] == "central"
    every = f"one begins every {windows.period / HOUR:g} h"

    return [
        PromiseFact(
            name="unit",
            value=facts["protects"],
            loss=2 if facts["privacy_unit"] == "sample" else int(values),
            meaning="epsilon protects this together",
        ),
        *_budget(
            facts["total"]["epsilon"],
            facts["total"]["delta"],
            facts["odds"]["guessed_right"],
            "in one window",
        ),
        PromiseFact(
            name="trust",
            value="a curator, with every sample (central)" if central else "no one (local)",
            loss=int(central),
            meaning="users must trust them",
        ),
        PromiseFact(
            name="user budget",
            value="none" if budget is None else budget,
            loss=math.inf if budget is None else budget,
            meaning="largest total epsilon of a user over all windows",
        ),
        PromiseFact(
            name="window",
            value="sessions, whose first and last times are public" if session else every,
            loss=math.inf if session else -windows.period,
            meaning="each window with a user's data costs that user epsilon again",
        ),
        PromiseFact(
            name="overlap",
            value=windows.overlap,
            loss=windows.overlap,
            meaning="windows that a sample is in",
        ),
    ]


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
