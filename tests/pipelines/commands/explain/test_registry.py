"""`explain --registry`: the record has the fields, the lists and the types of the registry's
published schema.

Fields and lists as of github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml,
commit 3e9c812.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.pipelines.command_line import asks

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT, "minItems": 1}


def one_of(*names: str) -> dict[str, Any]:
    return {"type": "string", "enum": [*names]}


def record(fields: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": fields,
        "required": [*required],
    }


BASIC = (
    "name",
    "data_curators",
    "description",
    "intended_use",
    "data_product_type",
    "data_product_region",
)
SCHEMA = record(
    {
        "url_slug": TEXT,
        "status": one_of("Draft", "Pending", "Changes Required", "Approved"),
        "tier": {"type": "integer", "enum": [1, 2, 3]},
        "deployment": record(
            {
                "basic": record(
                    {
                        **dict.fromkeys((*BASIC, "publication_date"), TEXT),
                        "data_curators": TEXTS,
                        "data_product_type": one_of(
                            "Summary statistics", "Dataset", "Interactive API", "SQL queries"
                        ),
                        "publication_date": {"type": "string", "format": "date"},
                        "data_product_sector": one_of(
                            "Technology", "Healthcare", "Education", "Government", "Energy"
                        ),
                    },
                    *BASIC,
                    "publication_date",
                ),
                "dp_variant": record(
                    {
                        "variant_name": one_of(
                            "Pure DP",
                            "Approximate DP",
                            "Zero-concentrated DP",
                            "Renyi DP",
                            "Custom",
                        ),
                        "data_domain": TEXT,
                        "unprotected_quantities": TEXT,
                    }
                ),
                "privacy_loss": record(
                    {
                        "privacy_unit": TEXT,
                        "privacy_unit_details": TEXT,
                        "privacy_parameters": record(
                            {
                                "epsilon": {"type": "number"},
                                "delta": {"type": "number"},
                                "rho": {"type": "number"},
                            }
                        ),
                        "privacy_parameters_details": TEXT,
                    }
                ),
                "deployment_model": record(
                    {
                        "model_name": one_of("Local", "Central", "Shuffle", "Federated", "Varies"),
                        "release_type": one_of("One release", "Many releases"),
                        "data_source_type": one_of("Static", "Dynamic"),
                        "access_type": one_of("Interactive", "Non-interactive"),
                        "actors": TEXT,
                        "model_name_details": TEXT,
                        "release_type_details": TEXT,
                        "data_source_type_details": TEXT,
                        "access_type_details": TEXT,
                    }
                ),
                "accounting": record({"post_processing": TEXT, "composition": TEXT}),
                "implementation": record(
                    dict.fromkeys(
                        ("preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"),
                        TEXT,
                    )
                ),
                "administrative": record(
                    {"sources": TEXT, "notes": TEXT, "registry_authors": TEXTS}, "registry_authors"
                ),
            },
            "basic",
        ),
    },
    *("url_slug", "status", "tier", "deployment"),
)
AGENTS = (
    "agents",
    "--lower",
    "-30",
    "--upper",
    "120",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--name",
    "flights",
)
ROUNDS = (
    "rounds",
    "--lower",
    "0",
    "--upper",
    "1",
    "--epsilon",
    "0.5",
    "--window",
    "7d",
    "--name",
    "weekly",
)
ROUNDS = (*ROUNDS, "--users", "500")  # so many are simulated, for what the record does not say
PURE = ("--noise", "laplace", "--counter", "pm1", "--spread-share", "0")
CASES = {
    "agents": (AGENTS, "Pure DP", "Central", {"epsilon": 1.0}),
    "laplace": ((*AGENTS, *PURE), "Pure DP", "Central", {"epsilon": 1.0}),
    "person": ((*AGENTS, "--person", "p", "--per-person", "3"), "Pure DP", "Central", None),
    "local": (ROUNDS, "Pure DP", "Local", {"epsilon": 0.5}),
    "budget": ((*ROUNDS, "--user-budget", "2"), "Pure DP", "Local", {"epsilon": 0.5}),
    "central": ((*ROUNDS, "--estimator", "cummings.ratio"), "Pure DP", "Central", {"epsilon": 0.5}),
    "sample": ((*ROUNDS, "--estimator", "item"), "Pure DP", "Local", {"epsilon": 0.5}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_record_is_as_the_schema_says(name: str) -> None:
    words, variant, model, parameters = CASES[name]
    ran = asks("explain", *words, "--registry")
    assert ran.code == 0, ran.err
    found = yaml.safe_load(ran.out)
    Draft7Validator.check_schema(SCHEMA)
    checker = Draft7Validator(SCHEMA, format_checker=Draft7Validator.FORMAT_CHECKER)
    assert [error.message for error in checker.iter_errors(found)] == []
    deployment = found["deployment"]
    assert deployment["dp_variant"]["variant_name"] == variant
    assert deployment["deployment_model"]["model_name"] == model
    assert parameters in (None, deployment["privacy_loss"]["privacy_parameters"])
    facts = asks("explain", *words, "--json").json
    assert deployment["privacy_loss"]["privacy_unit_details"] == facts["neighboring"]
    assert deployment["dp_variant"]["unprotected_quantities"] == facts["public"]
    assert asks("explain", *words, "--registry", "--json").json == found


def test_what_only_the_owner_knows_is_marked_and_nothing_is_folded() -> None:
    """The registry's own check refuses folded texts (`>`)."""
    text = asks("explain", *AGENTS, "--registry").out.decode()
    for field in ("data_curators", "intended_use", "data_product_region", "registry_authors"):
        assert "TO BE FILLED IN" in str(_found(yaml.safe_load(text), field))
    styles = {token.style for token in yaml.scan(text) if hasattr(token, "style")}
    assert styles <= {None, "|", "'", '"'}
    assert yaml.safe_load(text)["url_slug"] == "flights-meanstream"


def _found(record: Any, field: str) -> Any:
    if not isinstance(record, dict):
        return None
    return record.get(field) or next(
        (v for v in (_found(one, field) for one in record.values()) if v), None
    )


@pytest.mark.parametrize("slug", ["Ünïcode / weekly!", "a: b # c", "-", "x\ny"])
def test_no_name_breaks_the_record(slug: str, tmp_path: Path) -> None:
    ran = asks("explain", *AGENTS[:-1], slug, "--registry")
    if ran.code:
        assert ran.message.startswith("name must ")
        return
    assert yaml.safe_load(ran.out)["deployment"]["basic"]["name"] == slug


def test_agents_that_forget_have_no_last_release() -> None:
    plain, endless = (
        asks("explain", *AGENTS, *more, "--registry").out.decode()
        for more in ((), ("--memory", "half-life:500"))
    )
    assert "at most 40 times" in plain
    assert "without end" in endless
    assert "None times" not in endless
