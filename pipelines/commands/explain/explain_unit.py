"""The unit of privacy in plain words, and the privacy of a person with many samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meanstream.operators.agents.agents_settings import AgentsSettings

NO_AMPLIFICATION = (
    "Nothing is claimed for sampling or shuffling: the adversary may know who took part."
)
ADDS_UP = "The losses of one person in several agents, stores or jobs add up: `meanstream explain together`."


def explain_unit_name(name: str | None) -> str:
    """Say which deployment it is: its name is in the key of the noise."""
    return f"name            {name or 'the store makes one and keeps it (`meanstream store show`)'}"


def _many_samples(settings: AgentsSettings) -> list[str]:
    """Give the price of K samples of one person.

    In privacy, or in noise where they are protected together.
    """
    k = settings.per_person
    if k is not None:
        return [
            f"the variance of the noise is {k}^2 = {k * k:,} times that of protecting one sample"
        ]

    strength = "epsilon" if settings.mu is None else "mu"
    return [
        f"K samples of one person multiply {strength} by K and rho by K^2;",
        "--per-person K protects them together, at about K^2 times the variance of the noise",
    ]


def explain_unit_facts(settings: AgentsSettings) -> dict[str, Any]:
    """Give epsilon for a person with several samples, or in several agents; as plain data."""
    from meanstream.operators.noise.group_privacy import GROUPS

    k = settings.per_person
    groups: list[dict[str, Any]] = []
    for number in GROUPS:
        if k is None:
            groups.append({"samples": number, "epsilon": settings.epsilon_for(number)})
        else:
            groups.append({"agents": number, "epsilon": settings.epsilon_over(number)})

    return {
        "protects": settings.protected,
        "per_person": k,
        "many_samples": _many_samples(settings),
        "noise_variance_factor": 1 if k is None else k * k,
        "mu": settings.mu,
        "rho": settings.rho,
        "groups": groups,
        "adds_up": ADDS_UP,
        "amplification": NO_AMPLIFICATION,
    }


def explain_unit_lines(unit: dict[str, Any], delta: float) -> list[str]:
    """Write the same facts for reading."""
    k = unit["per_person"]
    mu = unit["mu"]
    lines = [
        f"unit            {unit['protects']}",
        *(f"                {line}" for line in unit["many_samples"]),
    ]
    of = "Gaussian DP" if mu is not None else "pure DP"
    same = f", at delta {delta:g}" if mu is not None else ""
    what = "samples of one person" if k is None else "agents that hold samples of one person"
    lines.append(f"                epsilon by number of {what} ({of}{same}):")

    lines.append(
        "                "
        + ", ".join(
            f"{g.get('samples', g.get('agents'))}: {g['epsilon']:.3g}" for g in unit["groups"]
        )
    )
    strength = f"mu {mu:.4g} (Gaussian DP), " if mu is not None else ""
    lines.append(
        f"                the guarantee in other units: {strength}rho {unit['rho']:.4g} (zero-concentrated DP)"
    )
    lines += [f"                {unit['adds_up']}", f"                {unit['amplification']}"]

    return lines
