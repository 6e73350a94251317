"""What a result of `private_means` promises, as text and as one page, for anyone who has to approve it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import mechanism_facts, percent_of_guesses
from meanstream.operators.noise.group_privacy import GROUPS, odds_of_a_guess
from meanstream.operators.validation import require
from meanstream.pipelines.commands.explain.promise_facts import COLLABORATION_METHODS
from meanstream.pipelines.commands.report.report_parts import (
    REPORT_MARK,
    ReportPage,
    ReportPart,
    report_parts_as_html,
)
from meanstream.pipelines.frames.frame_releases import bounds_note

if TYPE_CHECKING:
    from meanstream.pipelines.frames.frame_result import LearnedPopulation, PrivateMeans
    from meanstream.pipelines.frames.private_windows import PrivateWindows
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings

WIDTH = 90
LIMITS = (
    "Other results about the same people add up with this one, whatever makes them.",
    "Nothing is claimed for sampling or shuffling: the adversary may know who is in the data.",
    "Noise comes from a secret key. Holders of the key, the store or the rows are trusted.",
    "The guarantee holds against attackers who cannot break AES-256.",
)

ADVERSARY = (
    "This holds against everyone who sees the result, also together and whatever else they know."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePromise:
    """Public: the facts of a result that its text and its page show; what it lacks is empty.

    Attributes
    ----------
    guarantee, odds, names, spent, limits : str
        Sentences: what is protected, what that means, which names of groups come out, what was
        spent, what is not covered.
    meaning : str
        What is estimated; `learned` says how groups learn of each other, `levels` of higher levels.
    several : ReportPart, optional
        What several rows, or groups, of one person cost.
    settings : sequence of (str, str)
        Names and values.
    """

    guarantee: str
    meaning: str
    spent: str
    limits: str
    settings: Sequence[tuple[str, str]]
    odds: str = ""
    names: str = ""
    learned: LearnedPopulation | None = None
    levels: ReportPart | None = None
    several: ReportPart | None = None

    def parts(self) -> list[ReportPart]:
        """Sections in the order of the questions that somebody who approves asks."""
        learned = () if self.learned is None else learned_facts(self.learned)
        parts = [
            ReportPart(title="What is protected?", text=f"{self.guarantee} {ADVERSARY}"),
            ReportPart(title="What does that mean?", text=self.odds),
            ReportPart(title="Which names come out?", text=self.names),
            ReportPart(title="What is estimated?", text=f"{self.meaning}.", table=learned),
            self.levels,
            self.several,
            ReportPart(title="What was spent?", text=self.spent),
            ReportPart(title="Limits", text=" ".join([self.limits, *LIMITS]).strip()),
            ReportPart(title="Settings", table=self.settings),
        ]
        return [part for part in parts if part is not None and (part.text or part.table)]


def promise_of_means(result: PrivateMeans) -> FramePromise:
    """Facts of a result of `private_means` whose groups are public."""
    settings = result.settings
    guarantee, *notes = result.notes
    learned = () if result.levels is None else tuple(result.levels.sentences())
    limits = bounds_note(settings)
    spent = [f"{note}." for note in notes if note != limits and note not in learned]
    if result.charge is not None:
        spent.append(
            f"The ledger has {result.charge.rows:,} rows and ends with {result.charge.head}. "
            f"`meanstream ledger verify --store {result.charge.store}` recomputes it."
        )

    facts = [("value", result.value), ("groups", f"{len(result):,} by {', '.join(result.keys)}")]
    if result.person is not None:
        facts.append(("person", result.person))

    unit = "one row's value" if settings.per_person is None else "one person's rows in a group"
    return FramePromise(
        guarantee=f"{guarantee}.",
        odds=odds_in_words(unit, "all releases", settings.guessed_right),
        meaning=result.meaning,
        learned=result.learned,
        levels=None if result.levels is None else result.levels.explained(),
        several=_several(settings),
        spent=" ".join(spent),
        limits=f"{limits}.",
        settings=[*facts, *_numbers(settings)],
    )


def promise_of_windows(result: PrivateWindows) -> FramePromise:
    """Facts of a result of `private_windows`."""
    settings = result.settings
    guarantee, *notes = result.notes

    # Windows have neither votes nor a prior of groups.
    return FramePromise(
        guarantee=guarantee,
        meaning=result.meaning,
        spent=". ".join(notes) + ".",
        limits="",
        # Which windows, of which values, by which estimator.
        settings=[
            ("value", result.value),
            ("windows", f"{len({*result.table['window'].to_pylist()}):,}, of {settings.window}"),
            ("bounds", f"{settings.lower:g} to {settings.upper:g}"),
            ("epsilon", f"{settings.epsilon:g} {_windows_of_epsilon(settings)}"),
            ("unit", settings.unit),
            ("estimator", settings.estimator),
            ("deployment", str(settings.name)),
        ],
    )


def _windows_of_epsilon(settings: RoundsSettings) -> str:
    if settings.user_windows is None:
        return "for each window"
    delta = f"and delta {settings.user_delta:g} " if settings.user_delta else ""
    return f"{delta}for {settings.user_windows:,} windows of a user together"


def odds_in_words(
    unknown: str,
    seen: str,
    share: float,
    *,
    cases: str = "there are two equally likely possibilities",
) -> str:
    """Sentence on how often someone who knows all else guesses right.

    Examples
    --------
    >>> odds_in_words("one row's value", "all releases", 0.6).partition(". ")[2]
    'From all releases they guess right at most 60.0 % of the time (a coin: 50 %).'
    """
    return (
        f"Suppose someone knows everything except {unknown}, and that {cases}. From {seen} they "
        f"guess right at most {percent_of_guesses(share)} of the time (a coin: 50 %)."
    )


def strength_in_words(epsilon: float, share: float) -> str:
    """Epsilon of several rows, or of several groups, and how often a guess is right."""
    return f"epsilon {epsilon:.3g}, guessed right at most {percent_of_guesses(share)} of the time"


def learned_facts(learned: LearnedPopulation) -> list[tuple[str, str]]:
    """How groups learn of each other, and what they have learned."""
    method = learned.method
    estimate = COLLABORATION_METHODS.get(method, "a collaboration of your own")
    facts = [("collaboration", f"{method}: {estimate.replace('every agent', 'every group')}")]
    if learned.spread is not None:
        facts.append(("learned from all releases", learned.sentence()))

    return facts


def write_promise(path: str | Path, title: str, promise: FramePromise) -> Path:
    """Write a page of HTML that refers to nothing outside of it: a new file, or one written so."""
    path = Path(path)
    ours = (
        not path.exists()
        or REPORT_MARK in path.read_text(encoding="utf-8", errors="replace")[:1000]
    )
    require(ours, "path", "be new, or a page that report() wrote", str(path))

    about = f"meanstream {version('meanstream')}. Everything on this page is public."
    page = ReportPage(title=title, about=about, parts=promise.parts())
    path.write_text(report_parts_as_html(page), encoding="utf-8")

    return path


def promise_as_text(promise: FramePromise) -> str:
    """Write the sections as text of at most 90 characters a line."""
    sections = []
    for part in promise.parts():
        width = max((len(name) for name, _ in part.table), default=0)
        indent = " " * (width + 4)
        lines = [
            textwrap.fill(
                value, WIDTH, initial_indent=f"  {name:<{width}}  ", subsequent_indent=indent
            )
            for name, value in part.table
        ]
        text = textwrap.wrap(part.text, WIDTH, initial_indent="  ", subsequent_indent="  ")
        sections.append("\n".join([part.title, *text, *lines]))

    return "\n\n".join(sections)


def several_part(title: str, rows: Sequence[tuple[str, str]]) -> ReportPart:
    """Section on what several rows, or groups, of one person cost together."""
    text = "All of them together have a larger epsilon, at the same delta:"
    return ReportPart(title=title, text=text, table=rows)


def _several(settings: AgentsSettings) -> ReportPart:
    """Several rows of one person, or several groups where a person's rows count together."""
    mu = settings.mu
    if settings.per_person is None:
        title = "A person with several rows"
        counted = "rows of one person"
        epsilons = [settings.epsilon_for(k) for k in GROUPS]
        mus = [None if mu is None else k * mu for k in GROUPS]
    else:
        title = "A person in several groups"
        counted = "groups with rows of one person"
        epsilons = [settings.epsilon_over(k) for k in GROUPS]
        mus = [settings.mu_over(k) for k in GROUPS]

    rows = []
    for k, epsilon, together in zip(GROUPS, epsilons, mus, strict=True):
        delta = 0.0 if together is None else settings.delta
        share = odds_of_a_guess(epsilon, delta, together)
        rows.append((f"{k} {counted}", strength_in_words(epsilon, share)))

    return several_part(title, rows)


def _numbers(settings: AgentsSettings) -> list[tuple[str, str]]:
    mu = "none (noise of integers, pure DP)" if settings.mu is None else f"{settings.mu:.4g}"
    return [
        ("deployment", str(settings.name)),
        ("bounds", f"{settings.lower:g} to {settings.upper:g}"),
        ("epsilon, delta", f"{settings.epsilon:g}, {settings.delta:g}"),
        ("mu (Gaussian DP)", mu),
        ("rho (zero-concentrated DP)", f"{settings.rho:.4g}"),
        ("unit", settings.unit),
        ("noise", f"{settings.noise}, counter {settings.counter}, mode {settings.mode}"),
        *_mechanisms(settings),
    ]


def _mechanisms(settings: AgentsSettings) -> list[tuple[str, str]]:
    """Give the noise of a sum by the mechanism in use, and the next best at the same epsilon."""
    facts = mechanism_facts(settings)
    chosen = f"{facts.stddev:.4g} by {facts.mechanism}, guessed right at most "
    rows = [("noise of a sum", chosen + percent_of_guesses(facts.guessed_right))]
    if facts.other_differs:
        other = f"{facts.other_stddev:.4g} by {facts.other}, guessed right at most "
        rows.append(("next best", other + percent_of_guesses(facts.other_guessed_right)))

    return rows
