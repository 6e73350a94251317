"""Several outputs of one step, each of its own type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import TypeOptions
from apache_beam.pvalue import DoOutputsTuple
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type

from meanstream.pipelines.beam.worker.beam_steps import Step


class _AsItIs(Step):
    """Hands an element on; without a hint of what it takes."""

    def process(self, element):  # type: ignore[no-untyped-def]
        """Hand it on."""
        yield element


def typed_outputs(
    outputs: DoOutputsTuple, kinds: Mapping[str, Any], *, label: str = "Of"
) -> Iterator[beam.PCollection]:
    """Give the outputs of these tags, each as a PCollection of its type.

    Beam (2.77) holds every output of a step to what the reader of any of them takes, when it checks
    types at run time: so between them stands then a step that takes anything.
    """
    for tag, kind in kinds.items():
        output = outputs[tag]
        output.element_type = convert_to_beam_type(kind)  # by which Beam finds the coder
        checks = output.pipeline.options.view_as(TypeOptions)
        if checks.runtime_type_check or checks.performance_runtime_type_check:
            output = output | f"{label} {tag}" >> beam.ParDo(_AsItIs()).with_output_types(kind)

        yield output
