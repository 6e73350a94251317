"""What a result of `private_means` promises, as text and as one page, for anyone who has to approve it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import mechanism_facts, percent_of_guesses
from meanstream.operators.noise.group_privacy import GROUPS, odds_of_a_guess
from meanstream.operators.validation import require
from meanstream.pipelines.commands.report.report_parts import (
    REPORT_MARK,
    ReportPage,
    ReportPart,
    report_parts_as_html,
)
from meanstream.pipelines.frames.frame_releases import LedgerCharge, bounds_note

if TYPE_CHECKING:
    from meanstream.pipelines.frames.private_windows import PrivateWindows

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


def means_explained(
    settings: AgentsSettings,
    said: Sequence[str],
    facts: Sequence[tuple[str, str]],
    charge: LedgerCharge | None,
    *,
    meaning: str,
) -> list[ReportPart]:
    """Say what is protected, what that means as odds, what was spent and what is not covered."""
    several = [(f"{k} {_several(settings)}", _strength(settings, k)) for k in GROUPS]
    spent = [f"{one}." for one in said[1:] if one != bounds_note(settings)]
    if charge is not None:
        spent.append(
            f"The ledger has {charge.rows:,} rows and ends with {charge.head}. `meanstream ledger verify --store "
            f"{charge.store}` recomputes it."
        )

    return [
        ReportPart(title="What is protected?", text=f"{said[0]}. {ADVERSARY}"),
        ReportPart(title="What does that mean?", text=_odds(settings)),
        ReportPart(title="What is estimated?", text=f"{meaning}."),
        ReportPart(
            title="A person with several rows"
            if settings.per_person is None
            else "A person in several groups",
            text="All of them together have a larger epsilon, at the same delta:",
            table=several,
        ),
        ReportPart(title="What was spent?", text=" ".join(spent)),
        ReportPart(title="Limits", text=" ".join([f"{bounds_note(settings)}.", *LIMITS])),
        ReportPart(title="Settings", table=[*facts, *_numbers(settings)]),
    ]


def windows_explained(result: PrivateWindows) -> list[ReportPart]:
    """Say what the answers of windows are, what is protected, what was spent and how."""
    settings = result.settings
    table = [
        ("value", result.value),
        ("windows", f"{len({*result.table['window'].to_pylist()}):,}, of {settings.window}"),
        ("bounds", f"{settings.lower:g} to {settings.upper:g}"),
        ("epsilon", f"{settings.epsilon:g} for each window"),
        ("unit", settings.unit),
        ("estimator", settings.estimator),
        ("deployment", str(settings.name)),
    ]

    return [
        ReportPart(title="What is protected?", text=f"{result.notes[0]} {ADVERSARY}"),
        ReportPart(title="What is estimated?", text=f"{result.meaning}."),
        ReportPart(title="What was spent?", text=". ".join(result.notes[1:]) + "."),
        ReportPart(title="Limits", text=" ".join(LIMITS)),
        ReportPart(title="Settings", table=table),
    ]


def write_explained(path: str | Path, title: str, parts: Sequence[ReportPart]) -> Path:
    """Write the sections as a page to a new file, or over a page that was written so."""
    path = Path(path)
    ours = (
        not path.exists()
        or REPORT_MARK in path.read_text(encoding="utf-8", errors="replace")[:1000]
    )
    require(ours, "path", "be new, or a page that report() wrote", str(path))
    path.write_text(explained_as_page(title, parts), encoding="utf-8")

    return path


def explained_as_text(parts: Sequence[ReportPart]) -> str:
    """Write the sections as text of at most 90 characters a line."""
    found = []
    for part in parts:
        width = max((len(name) for name, _ in part.table), default=0)
        lines = [f"  {name:<{width}}  {value}" for name, value in part.table]
        text = textwrap.wrap(part.text, WIDTH, initial_indent="  ", subsequent_indent="  ")
        found.append("\n".join([part.title, *text, *lines]))

    return "\n\n".join(found)


def explained_as_page(title: str, parts: Sequence[ReportPart]) -> str:
    """Write the sections as one page of HTML that refers to nothing outside of it."""
    about = f"meanstream {version('meanstream')}. Everything on this page is public."
    return report_parts_as_html(ReportPage(title=title, about=about, parts=parts))


def _several(settings: AgentsSettings) -> str:
    if settings.per_person is None:
        return "rows of one person"
    return "groups with rows of one person"


def _odds(settings: AgentsSettings) -> str:
    what = "one row's value" if settings.per_person is None else "one person's rows in a group"
    share = settings.guessed_right
    return (
        f"Suppose someone knows everything except {what}, and that there are two equally likely possibilities. From "
        f"all releases they guess right at most {percent_of_guesses(share)} of the time (a coin: 50 %)."
    )


def _strength(settings: AgentsSettings, k: int) -> str:
    """Give epsilon of several rows, or of several groups, and how often a guess is right."""
    rows = settings.per_person is None
    epsilon = settings.epsilon_for(k) if rows else settings.epsilon_over(k)
    alike = None if settings.mu is None else k * settings.mu
    mu = alike if rows else settings.mu_over(k)
    share = odds_of_a_guess(epsilon, 0.0 if mu is None else settings.delta, mu)

    return f"epsilon {epsilon:.3g}, guessed right at most {percent_of_guesses(share)} of the time"


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
    own = f"{facts.stddev:.4g} by {facts.mechanism}, guessed right at most "
    rows = [("noise of a sum", own + percent_of_guesses(facts.guessed_right))]
    if facts.other_differs:
        other = f"{facts.other_stddev:.4g} by {facts.other}, guessed right at most "
        rows.append(("next best", other + percent_of_guesses(facts.other_guessed_right)))

    return rows
