"""The template of agents: from its parameters to what builds the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from operators.collaboration import make_collaboration
from operators.validation import require
from pipelines.beam.template.parameters import Given
from pipelines.beam.template.places import (
    check_dead_letters,
    check_sinks,
    check_source,
    endless,
    is_file,
    secret_place,
)
from pipelines.commands.hosting import column_mapping

if TYPE_CHECKING:
    import apache_beam as beam


def agents_pipeline(given: Given) -> Callable[[beam.Pipeline], None]:
    """Check everything that was given; return what adds the transforms to a pipeline.

    A file is read by one worker as the engine reads it, and everybody is answered at its end; of a topic each partition
    is read by one worker, and of a subscription any message by any; agents are answered at each `refresh`.

    Raises
    ------
    ValueError
        Naming the parameter, the rule and the value.
    """
    options, own = given.options, given.own
    settings, engine_options = options.settings(), options.engine_options()
    make_collaboration(engine_options.collaboration, lower=settings.lower, upper=settings.upper)
    check_source(options.source, until_end=options.until_end, idle_seconds=own["idle_seconds"])
    if endless(options.source, until_end=options.until_end):
        require(options.refresh is not None, "refresh", "be given for a source without end", options.refresh)
    if is_file(options.source):
        require(options.refresh is None, "refresh", "be left out where the source is a file", options.refresh)
    check_dead_letters(options.dead_letters, options.source)
    check_sinks(options.sinks, options.source, until_end=options.until_end)
    mapping, secret, shards = column_mapping(options), secret_place(own["secret"]), own["shards"]
    places = {role: place for role, place in options.sinks.items() if role != "dead_letters"}

    from pipelines.agents import CollaborateAgents
    from pipelines.beam.agents.file import AnswerSource, write_answers
    from pipelines.beam.source import SourcePlace
    from pipelines.beam.template.topic import ReadTopic

    if not is_file(options.source):
        read = ReadTopic(options, mapping, secret, own["idle_seconds"])
        collaborate = CollaborateAgents(
            settings,
            secret=secret,
            refresh=engine_options.refresh,
            allowed_lateness=engine_options.allowed_lateness,
            shards=shards,
            collaboration=engine_options.collaboration,
            level=engine_options.level,
            stddev=engine_options.stddev,
        )
        return lambda pipeline: write_answers(pipeline | "Read" >> read | "Agents" >> collaborate, settings, places)
    place = SourcePlace(location=options.source, mapping=mapping)
    answer = AnswerSource(settings, place, engine_options, secret, shards=shards)
    return lambda pipeline: write_answers(pipeline | "Agents" >> answer, settings, places)
