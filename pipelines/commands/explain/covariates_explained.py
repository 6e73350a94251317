"""What `explain` and `plan` say of public covariates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meanstream.operators.collaboration.covariates.covariate_design import AgentCovariates

SHARES = (0.25, 0.5, 0.75)
"""Shares of the spread that covariates might explain, of which `plan` says what they would
bring."""


def explain_covariates(declared: AgentCovariates | None) -> dict[str, Any] | None:
    """Say what is declared public, and what it costs; None where nothing is."""
    from meanstream.operators.collaboration.covariates.covariate_design import Category

    if declared is None:
        return None
    return {
        "agents": len(declared.names),
        "attributes": [
            {
                "name": one.name,
                "kind": one.kind,
                **({"levels": len(one.levels)} if isinstance(one, Category) else {}),
            }
            for one in declared.design.attributes
        ],
        "public": "declared public: nothing protects them, and estimates of others may show them",
        "cost": "none: their effects are learned from releases; another file needs no budget and no new store",
    }


def explain_covariates_lines(found: dict[str, Any] | None) -> Iterator[str]:
    """Write the same for reading."""
    if found is None:
        return
    named = ", ".join(
        f"{one['name'][:40]} ({one['levels']} levels)"
        if "levels" in one
        else f"{one['name'][:40]} (number)"
        for one in found["attributes"]
    )
    yield f"covariates      {found['agents']:,} agents have a row: {named}"
    yield f"                {found['public']}"
    yield f"                privacy cost: {found['cost']}"


def planned_with_covariates(
    declared: AgentCovariates, error: Callable[[float], float]
) -> dict[str, Any]:
    """Say what covariates would bring if they explained some shares of the spread."""
    return {
        "agents": len(declared.names),
        "attributes": [one.name for one in declared.design.attributes],
        "error_if_they_explain": {share: error((1 - share) ** 0.5) for share in SHARES},
    }


def planned_with_covariates_line(found: dict[str, Any]) -> str:
    """Write the same in a sentence."""
    errors = found["error_if_they_explain"]
    shares = (f"{s * 100:.0f} %" for s in errors)
    values = (f"{e:.3g}" for e in errors.values())
    return (
        f"Public covariates ({len(found['attributes'])} attributes of {found['agents']:,} agents): if they explain "
        f"{' / '.join(shares)} of the variance of the means, the error together at the median count is "
        f"{' / '.join(values)}."
    )
