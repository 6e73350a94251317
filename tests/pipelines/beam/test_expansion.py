"""The expansion service gives other languages our transforms by name, with schemas, and nothing
else by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.external import ExternalTransform, ImplicitSchemaPayloadBuilder
from apache_beam.transforms.fully_qualified_named_transform import (
    PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN,
    FullyQualifiedNamedTransform,
)
from apache_beam.typehints.row_type import RowTypeConstraint

from meanstream.beam.expansion import ALLOWED, make_server
from meanstream.pipelines.beam.agents.snapshot_releases import Collaborated

AGENTS = {"name": "delays", "lower": -30, "upper": 120, "epsilon": 1.0, "delta": 1e-6}


@pytest.fixture
def address() -> Iterator[str]:
    with FullyQualifiedNamedTransform.with_filter(ALLOWED):
        server, address = make_server(0)
        server.start()
        yield address
        server.stop(None)


def expanded(address: str, constructor: str, **arguments: Any) -> Any:
    """Ask for a transform as PythonExternalTransform of Java does."""
    payload = ImplicitSchemaPayloadBuilder(
        {"constructor": constructor, "kwargs": beam.Row(**arguments)}
    )
    samples = beam.Pipeline(FnApiRunner()) | beam.Create([beam.Row(agent="a", value=1.0, time=0.0)])
    return samples | ExternalTransform(PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN, payload, address)


def test_outputs_have_names_and_schemas(address: str) -> None:
    assert address.startswith("127.0.0.1:")
    outputs = expanded(address, "meanstream.beam.rows.CollaborateAgents", **AGENTS)
    assert set(outputs) == set(Collaborated._fields)
    for output in outputs.values():
        assert RowTypeConstraint.from_user_type(output.element_type) is not None
    names = [
        name
        for name, _ in RowTypeConstraint.from_user_type(outputs["estimates"].element_type)._fields
    ]
    assert names[:6] == ["agent", "time", "n", "value", "lower", "upper"]


@pytest.mark.parametrize("name", ["os.system", "__callable__", "meanstream.beam.CollaborateAgents"])
def test_another_name_is_refused(address: str, name: str) -> None:
    with pytest.raises(RuntimeError, match="not allowed by filter"):
        expanded(address, name, source="1")


def test_a_bad_parameter_is_named(address: str) -> None:
    with pytest.raises(RuntimeError, match="epsilon must be positive and finite"):
        expanded(address, "meanstream.beam.rows.CollaborateAgents", **{**AGENTS, "epsilon": -1.0})
