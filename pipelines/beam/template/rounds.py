"""The template of rounds: from its parameters to what builds the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pipelines.beam.template.parameters import Given
from pipelines.beam.template.places import check_dead_letters, check_sinks, check_source, is_file, secret_place
from pipelines.commands.run_rounds import column_mapping

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
    options, own = given.options, given.own
    settings = options.settings()
    settings.require_user_privacy()
    check_source(options.source, until_end=options.until_end, idle_seconds=own["idle_seconds"])
    check_dead_letters(options.dead_letters, options.source)
    check_sinks(options.sinks, options.source, until_end=options.until_end)
    mapping, secret, shards = column_mapping(options), secret_place(own["secret"]), own["shards"]

    from pipelines.beam.rounds.file import AnswerSource, write_means
    from pipelines.beam.source import SourcePlace
    from pipelines.beam.template.topic import ReadTopic
    from pipelines.rounds import RunRounds

    if not is_file(options.source):
        read = ReadTopic(options, mapping, secret, own["idle_seconds"])
        run = RunRounds(settings, secret=secret, shards=shards)
        return lambda pipeline: write_means(pipeline | "Read" >> read | "Rounds" >> run, options.sink)
    place = SourcePlace(location=options.source, mapping=mapping)
    answer = AnswerSource(settings, place, options.engine_options(), secret, shards=shards)
    return lambda pipeline: write_means(pipeline | "Rounds" >> answer, options.sink)
