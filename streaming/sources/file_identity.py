"""What identifies a source to a store.

Its name, its cluster, what its columns mean, how late samples may be.
"""

from __future__ import annotations

from typing import Any

from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_protocol import Source

COLUMNS = ("agent", "value", "values", "time", "id", "person")


def source_identity(
    source: Source, mapping: ColumnMapping, *, lateness: str, seconds: float, agent: str = "agent"
) -> dict[str, Any]:
    """Give option and value of everything that identifies a source.

    A file is known by its name: it may move together with its store. A topic is known by its name
    and the id of its cluster, whatever the addresses of its brokers.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> file = SimpleNamespace(name="flights.csv")
    >>> found = source_identity(file, ColumnMapping(value="delay"), lateness="lateness", seconds=60.0)
    >>> found["value"], found["cluster"], found["lateness"]
    ('delay', None, 60.0)
    """
    columns = {name: getattr(mapping, name) for name in COLUMNS}
    if mapping.values is not None:
        columns["value"] = None
        columns["values"] = list(mapping.values)

    named = {agent if name == "agent" else name: column for name, column in columns.items()}
    cluster = getattr(source, "cluster", None)
    read = {
        "layout": mapping.layout,
        "numbers_in_text": mapping.numbers_in_text,
        "beside": []
        if cluster is None
        else sorted(mapping.extra_parts()),  # a field of a file has any name
        "registry": getattr(source, "by_registry", False),
    }

    return {"source": source.name, "cluster": cluster, **named, **read, lateness: float(seconds)}
