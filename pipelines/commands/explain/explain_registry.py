"""`meanstream explain ... --registry`.

A draft for the registry of deployments of differential privacy.

The fields are those of github.com/opendp/deployments-registry-data,
schemas/deployments-schema.yaml. What follows from a configuration is filled in; what only its owner
knows says so.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from typing import Any

from meanstream.pipelines.options.base import print_options_json

YOURS = "TO BE FILLED IN"
_NAMELESS = "the store of the deployment makes a name and keeps it"


def registry_record_of_agents(facts: dict[str, Any]) -> dict[str, Any]:
    """Fill in what follows from settings of agents.

    `facts` are those of `meanstream explain agents --json`.
    """
    total, mechanism, bounds, unit = (facts[k] for k in ("total", "mechanism", "bounds", "unit"))
    gaussian = mechanism["noise"] == "gaussian"
    return _record(
        facts,
        description="One private running mean per agent, with an interval, released as its stream continues.",
        variant="Approximate DP" if gaussian else "Pure DP",
        domain=f"Streams of (agent, value, event time); values are clipped to [{bounds['lower']:g}, "
        f"{bounds['upper']:g}] and held in steps of {bounds['resolution']:g}.",
        unit="one sample"
        if unit["per_person"] is None
        else f"one person's {unit['per_person']} samples in an agent",
        parameters={"epsilon": total["epsilon"], **({"delta": total["delta"]} if gaussian else {})},
        details=_unit_details(unit),
        model="Central",
        model_details="One trusted operator runs the private side. With `run agent-side` each party runs it for its "
        "own agents (federated), and only releases leave it.",
        release_details=_release_details(mechanism["horizon"], facts["releases"]["schedule"]),
        composition=f"All releases of an agent together, over the life of its stream, by the {mechanism['counter']} "
        f"counter's column norm {mechanism['column_norm']:.6g}. {unit['adds_up']} {unit['amplification']}",
        post_processing=f"{facts['collaboration']['estimate']}: a function of releases, except an agent's own mean, "
        "which goes to that agent only.",
        mechanisms=f"- {mechanism['noise'].capitalize()} noise on exact integer sums, by the {mechanism['counter']} "
        f"counter; standard deviation {mechanism['stddev_of_a_fresh_draw']:.6g} of a fresh draw in the value's unit\n"
        f"- Float arithmetic: sums are integers, the noised integer is published; numerics add at most "
        f"{total['epsilon_with_numerics'] - total['epsilon']:.2g} to epsilon",
    )


def _release_details(horizon: int | None, schedule: str) -> str:
    if horizon is None:
        return (
            f"By the schedule {schedule}, without end. Older samples weigh less, so the total influence of a sample on "
            "all future releases is bounded, and the budget pays for it once."
        )

    return (
        f"Each agent at most {horizon} times, by the schedule {schedule}; then it stops for good. "
        "The budget does not come back."
    )


def registry_record_of_rounds(facts: dict[str, Any]) -> dict[str, Any]:
    """Fill in what follows from settings of rounds.

    `facts` are those of `meanstream explain rounds --json`.
    """
    total = facts["total"]
    bounds = facts["bounds"]
    estimator = facts["estimator"]
    local = facts["trust"] == "local"
    windows = ", ".join(f"{row['windows']}: {row['epsilon']:g}" for row in facts["unit"]["windows"])
    stages = "\n".join(
        f"- {step['name']}: {step['asks']} Epsilon {step['epsilon']:g}, {step['share_of_users']:.0%} of the users"
        for step in facts["mechanisms"]
    )

    return _record(
        facts,
        description=f"A mean per window: {estimator['estimand']}.",
        variant="Approximate DP" if total["delta"] else "Pure DP",
        domain=f"Events (user, value, event time); values are clipped to [{bounds['lower']}, {bounds['upper']}] and "
        f"held in steps of {bounds['resolution']:g}.",
        unit="one sample"
        if facts["privacy_unit"] == "sample"
        else f"all that one user sends within {total['user_windows'] or 'a'} "
        f"window{'s' if total['user_windows'] else ''}",
        parameters={
            "epsilon": total["epsilon"],
            **({"delta": total["delta"]} if total["delta"] else {}),
        },
        details=f"{total['over']}. Epsilon by a user's number of windows: {windows}.",
        model="Local" if local else "Central",
        model_details="Each user's report is randomized before it leaves the users' side."
        if local
        else "A curator sees every sample, and adds noise to what it publishes.",
        release_details=f"One answer per window ({facts['window']['window']}). {total['over_time']}.",
        composition=f"{total['over_time']}. {facts['unit']['adds_up']} {facts['unit']['amplification']}",
        post_processing=facts["post_processing"],
        mechanisms=stages,
    )


def _record(
    facts: dict[str, Any], *, description: str, mechanisms: str, **own: Any
) -> dict[str, Any]:
    """Lay out a record of the third tier, in the order of the registry's template."""
    name = facts["name"]
    deployment = {
        "basic": {
            "name": name or f"{YOURS} ({_NAMELESS})",
            "data_curators": [f"{YOURS}: who publishes it"],
            "intended_use": f"{YOURS}: what the means are for",
            "data_product_type": "Summary statistics",
            "data_product_region": f"{YOURS}: whose data, under which law",
            "description": description,
            "publication_date": "1900-01-01",
        },
        **_guarantee(facts, **own),
        "implementation": _implementation(mechanisms),
        "administrative": {
            "sources": "- docs/privacy.md of meanstream: the guarantee, proofs, limitations, evidence",
            "notes": "Written by `meanstream explain --registry`.",
            "registry_authors": [f"{YOURS}: who made this record"],
        },
    }
    slug = re.sub(r"[^a-z0-9]+", "-", (name or "unnamed").lower()).strip("-") or "unnamed"

    return {
        "url_slug": f"{slug}-meanstream",
        "status": "Draft",
        "tier": 3,
        "deployment": deployment,
    }


def _guarantee(
    facts: dict[str, Any],
    *,
    variant: str,
    domain: str,
    unit: str,
    parameters: dict[str, float],
    details: str,
    model: str,
    model_details: str,
    release_details: str,
    composition: str,
    post_processing: str,
) -> dict[str, Any]:
    return {
        "dp_variant": {
            "variant_name": variant,
            "data_domain": domain,
            "unprotected_quantities": facts["public"],
        },
        "privacy_loss": {
            "privacy_unit": unit,
            "privacy_unit_details": facts["neighboring"],
            "privacy_parameters": parameters,
            "privacy_parameters_details": details,
        },
        "deployment_model": {
            "model_name": model,
            "model_name_details": model_details,
            "actors": "\n".join(
                f"- {who}: sees {what}" for who, what in facts["who_sees_what"].items()
            ),
            "release_type": "Many releases",
            "release_type_details": release_details,
            "data_source_type": "Dynamic",
            "data_source_type_details": "Samples arrive as the stream continues.",
            "access_type": "Non-interactive",
            "access_type_details": "The releases are decided beforehand; there are no queries.",
        },
        "accounting": {"post_processing": post_processing, "composition": composition},
    }


def _implementation(mechanisms: str) -> dict[str, str]:
    return {
        "preprocessing_and_hyperparameter_tuning": "Bounds, epsilon and schedule are declared before any value is "
        f"read, not tuned on the data by the product. {YOURS}: how you chose them",
        "mechanisms": f"{mechanisms}\n"
        f"- Implemented by meanstream {version('meanstream')}; noise is a keyed function (AES) of secret, name, "
        "release and exact input, so that a retry repeats it: computational differential privacy\n"
        "- Each release is a row of an append-only ledger before it leaves\n"
        "- Timing channels of the machine are out of scope",
        "justification": f"`meanstream audit` bounds epsilon from below on the code as it runs. {YOURS}: why these "
        "parameters",
    }


def _unit_details(unit: dict[str, Any]) -> str:
    groups = ", ".join(
        f"{g.get('samples', g.get('agents'))}: {g['epsilon']:.3g}" for g in unit["groups"]
    )
    of = (
        "samples of one person"
        if unit["per_person"] is None
        else "agents that hold samples of one person"
    )
    mu = "" if unit["mu"] is None else f"mu {unit['mu']:.6g} (Gaussian DP), "

    return f"In other units: {mu}rho {unit['rho']:.6g} (zCDP). Epsilon by number of {of}: {groups}."


def print_registry_record(record: dict[str, Any], *, as_json: bool) -> None:
    """Write a record to standard output, as YAML or as JSON."""
    if as_json:
        print_options_json(record)
    else:
        sys.stdout.write(_as_yaml(record))


def _as_yaml(record: dict[str, Any]) -> str:
    """Write texts of several lines as they are read, which is what the registry's own check asks for."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar(
            "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
        )

    Dumper.add_representer(str, text)
    return str(yaml.dump(record, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10_000))
