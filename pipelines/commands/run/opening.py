"""The source and the sinks of a run, opened as its options say.

Another source than a store's is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from meanstream.pipelines.commands.run.checks import ending_run
from meanstream.pipelines.commands.run.signals import resume_collection, stopping_on_signals
from meanstream.pipelines.options.base import OPTION_OF, option_location
from meanstream.pipelines.options.option_errors import BadOption
from meanstream.streaming.crash import CrashHook, no_crash
from meanstream.streaming.kafka.connection.kafka_location import is_kafka_location
from meanstream.streaming.open_sink import open_sink
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.sources.file_identity import source_identity
from meanstream.streaming.store.source_identity import (
    OLDER_COPY,
    keep_source_identity,
    require_source_identity,
)
from meanstream.streaming.store.state_store import Store

if TYPE_CHECKING:
    from meanstream.pipelines.options.stream_options import StreamOptions
    from meanstream.streaming.kafka.writing.kafka_sink import KafkaSinks
    from meanstream.streaming.sources.mapping import ColumnMapping
    from meanstream.streaming.sources.source_protocol import AgentsOfStore, Source


@contextmanager
def opening_stack() -> Iterator[tuple[ExitStack, Callable[[], bool]]]:
    """Close what was opened, stop on a signal, and end in one line where a run cannot go on."""
    resume_collection()
    with ExitStack() as opened, ending_run(), stopping_on_signals() as stop:
        yield opened, stop


@contextmanager
def closing_opened_store(store: Store) -> Iterator[None]:
    """Close a store in the end; take away one that was made for a run that is refused."""
    try:
        yield
    except BadOption:
        store.undo()
        raise
    except BaseException:
        store.close()
        raise

    store.close()


def open_samples(
    options: StreamOptions,
    store: Store,
    *,
    id_key: bytes,
    name: str | None,
    cut: float | None = None,
) -> Source:
    """Read the source from where the store is.

    Refuse another than it is filled from, and note that of a new store.
    """
    mapping = options.column_mapping()
    source = open_source(
        option_location(options.source),
        mapping,
        sort=options.sort,
        cut=cut,
        id_key=id_key,
        owner=store.public_id(),
        name=name,
        until_end=options.until_end,
        agents=_directory_of_store(options, store),
    )

    try:
        identity = _identity(options, source, mapping)
        require_source_identity(store, identity, address=options.source)
        keep_source_identity(store, identity)
    except BaseException:
        source.close()
        raise

    return source


def check_opened_source(options: StreamOptions) -> str | None:
    """Refuse another source than a store is filled from, without noting or reading anything.

    Give the store's name.
    """
    mapping = options.column_mapping()
    with (
        closing(Store.read(options.store)) as store,
        closing(open_source(option_location(options.source), mapping, sort=False)) as source,
    ):
        require_source_identity(store, _identity(options, source, mapping), address=options.source)
        return (store.settings() or {}).get("name")


def _directory_of_store(options: StreamOptions, store: Store) -> AgentsOfStore:
    """Give the names of the agents or users that a store has; the other engine is not imported."""
    most = options.engine_options().max_agents
    if options.WHO == "agent":
        from meanstream.streaming.agents.move_agents import agents_of_store

        return agents_of_store(store, most)

    from meanstream.streaming.rounds.user_places import users_of_store

    return users_of_store(store, most)


def _identity(options: StreamOptions, source: Source, mapping: ColumnMapping) -> dict[str, object]:
    seconds = options.engine_options().allowed_lateness
    return source_identity(
        source, mapping, lateness=options.LATENESS, seconds=seconds, agent=options.WHO
    )


def open_sinks(
    places: Mapping[str, str],
    kafka: KafkaSinks | None = None,
    *,
    private: Collection[str] = ("estimates",),
) -> Sinks:
    """Open one sink per role.

    Those of some roles stay in the trust domain, everything else is public.
    """
    return Sinks(
        **{
            role: open_sink(
                location,
                trust=Trust.PRIVATE if role in private else Trust.PUBLIC,
                role=OPTION_OF.get(role, role),
                kafka=kafka,
            )
            for role, location in places.items()
        }
    )


def open_kafka_sinks(
    places: Mapping[str, str],
    store: Store,
    stop: Callable[[], bool],
    *,
    crash: CrashHook | None = None,
    name: str | None = None,
    private_apart: bool = False,
) -> KafkaSinks | None:
    """Make what opens topics, if there are any."""
    if not any(map(is_kafka_location, places.values())):
        return None
    from meanstream.streaming.kafka.writing.kafka_sink import KafkaSinks

    return KafkaSinks(
        store.public_id(),
        stop=stop,
        crash=crash or no_crash,
        name=name,
        private_apart=private_apart,
        older_copy=bool(store.state(OLDER_COPY)),
    )
