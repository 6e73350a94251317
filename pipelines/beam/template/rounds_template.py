"""The template of rounds: from its parameters to what builds the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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


def rounds_pipeline(given: Given) -> Callable[[beam.Pipeline], None]:
    """Check everything that was given; return what adds the transforms to a pipeline.

    A file is read by one worker as the engine reads it; of a topic each partition is read by one
    worker, and of a subscription any message by any.

    Raises
    ------
    ValueError
        Naming the parameter, the rule and the value.
    """
    options = given.options
    own = given.own
    settings = options.settings()
    settings.require_user_privacy()
    check_template_source_place(options.source, until_end=options.until_end, idle_seconds=None)
    check_template_letters_place(options.dead_letters, options.source)
    check_template_sink_places(options.sinks, options.source, until_end=options.until_end)
    mapping = options.column_mapping()
    secret = template_secret_place(own["secret"])
    shards = own["shards"]

    from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
    from meanstream.pipelines.beam.rounds.round_transforms import RunRounds
    from meanstream.pipelines.beam.rounds.rounds_from_files import (
        AnswerRoundsSource,
        write_rounds_file,
    )
    from meanstream.pipelines.beam.template.template_topic import ReadTopic

    if not is_template_file_place(options.source):
        read = ReadTopic(options, mapping, secret, None, "user")
        run = RunRounds(settings, options.engine_options(), secret=secret, shards=shards)
        return lambda pipeline: write_rounds_file(
            (pipeline | "Read" >> read | "Rounds" >> run).estimates, options.sink
        )

    place = SourceLocation(location=options.source, mapping=mapping)
    answer = AnswerRoundsSource(settings, place, options.engine_options(), secret, shards=shards)
    return lambda pipeline: write_rounds_file(pipeline | "Rounds" >> answer, options.sink)
