"""What a result of `private_means` promises, as text and as one page, for anyone who has to approve it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from importlib.metadata import version

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.noise_choice import mechanism_facts, percent_of_guesses
from meanstream.operators.noise.group_privacy import GROUPS
from meanstream.operators.noise.privacy_odds import odds_of_a_guess
from meanstream.pipelines.commands.report.report_parts import (
    ReportPage,
    ReportPart,
    report_parts_as_html,
)
from meanstream.pipelines.frames.frame_releases import LedgerCharge

WIDTH = 90
LIMITS = (
    "Values outside the bounds count as the nearest bound.",
    "Other results about the same people add up with this one, whatever makes them.",
    "Nothing is claimed for sampling or shuffling: the adversary may know who is in the data.",
    "Noise comes from a secret key. Holders of the key, the store or the rows are trusted.",
    "The guarantee holds against attackers who cannot break AES-256.",
)


def means_explained(
    settings: AgentsSettings,
    said: Sequence[str],
    facts: Sequence[tuple[str, str]],
    charge: LedgerCharge | None,
) -> list[ReportPart]:
    """Say what is protected, what that means as odds, what was spent and what is not covered."""
    several = [(f"{k} {_several(settings)}", _strength(settings, k)) for k in GROUPS]
    spent = [(f"{one}.") for one in said[1:]]
    if charge is not None:
        spent.append(
            f"The ledger has {charge.rows:,} rows and ends with {charge.head}. `meanstream ledger verify --store "
            f"{charge.store}` recomputes it."
        )

    return [
        ReportPart(title="What is protected?", text=f"{said[0]}. {_adversary()}"),
        ReportPart(title="What does that mean?", text=_odds(settings)),
        ReportPart(
            title="A person with several rows"
            if settings.per_person is None
            else "A person in several groups",
            text="All of them together have a larger epsilon, at the same delta:",
            table=several,
        ),
        ReportPart(title="What was spent?", text=" ".join(spent)),
        ReportPart(title="Limits", text=" ".join(LIMITS)),
        ReportPart(title="Settings", table=[*facts, *_numbers(settings)]),
    ]


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


def _adversary() -> str:
    return "This holds against everyone who sees the result, also together and whatever else they know."


def _several(settings: AgentsSettings) -> str:
    return "rows of one person" if settings.per_person is None else "groups with rows of one person"


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
    mu = None if settings.mu is None else settings.mu * (k if rows else math.sqrt(k))
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
    """Give the noise of a sum by the mechanism in use, and by the best other one at this label."""
    facts = mechanism_facts(settings)
    own = f"{facts.stddev:.4g} by {facts.mechanism}, guessed right at most "
    rows = [("noise of a sum", own + percent_of_guesses(facts.guessed_right))]
    if facts.other:
        other = f"{facts.other_stddev:.4g} by {facts.other}, guessed right at most "
        rows.append(("by the best other", other + percent_of_guesses(facts.other_guessed_right)))

    return rows
