"""The template of agents: from its parameters to what builds the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.validation import require
from meanstream.pipelines.beam.template.template_parameters import Given
from meanstream.pipelines.beam.template.template_places import (
    check_template_letters_place,
    check_template_sink_places,
    check_template_source_place,
    is_template_file_place,
    template_secret_place,
)

if TYPE_CHECKING:
    import apache_beam as beam


def agents_pipeline(given: Given) -> Callable[[beam.Pipeline], None]:
    """Check everything that was given; return what adds the transforms to a pipeline.

    A file is read by one worker as the engine reads it, and everyone is answered at its end; of a
    topic each partition is read by one worker, and of a subscription any message by any; agents are
    answered at each `refresh`, by default every 10 s.

    Raises
    ------
    ValueError
        Naming the parameter, the rule and the value.
    """
    options = given.options
    own = given.own
    settings = options.settings()
    engine_options = options.engine_options()
    make_collaboration(engine_options.collaboration, lower=settings.lower, upper=settings.upper)
    check_template_source_place(
        options.source, until_end=options.until_end, idle_seconds=own["idle_seconds"]
    )

    if is_template_file_place(options.source):
        require(
            options.refresh is None,
            "refresh",
            "be left out where the source is a file",
            options.refresh,
        )

    check_template_letters_place(options.dead_letters, options.source)
    check_template_sink_places(options.sinks, options.source, until_end=options.until_end)
    mapping = options.column_mapping()
    secret = template_secret_place(own["secret"])
    shards = own["shards"]
    places = {role: place for role, place in options.sinks.items() if role != "dead_letters"}

    from meanstream.pipelines.beam.agents.agent_transforms import CollaborateAgents
    from meanstream.pipelines.beam.agents.agents_from_files import (
        AnswerAgentsSource,
        write_agents_file,
    )
    from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
    from meanstream.pipelines.beam.template.template_topic import ReadTopic

    if not is_template_file_place(options.source):
        read = ReadTopic(options, mapping, secret, own["idle_seconds"], "sample")
        refresh = engine_options.refresh
        collaborate = CollaborateAgents(
            settings, engine_options, secret=secret, refresh=refresh, shards=shards
        )

        return lambda pipeline: write_agents_file(
            pipeline | "Read" >> read | "Agents" >> collaborate, settings, places
        )

    place = SourceLocation(location=options.source, mapping=mapping)
    answer = AnswerAgentsSource(settings, place, engine_options, secret, shards=shards)
    return lambda pipeline: write_agents_file(pipeline | "Agents" >> answer, settings, places)
