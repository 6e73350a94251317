"""How a store of an older schema version becomes one of this version.

Numbered steps: all of them, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from meanstream.streaming.store import layout
from meanstream.streaming.store.database import Database, StoreError
from meanstream.streaming.store.store_tables import StoreTables

OLDEST = 5
"""Oldest schema version that is read: that of 0.3.0."""

PUBLIC = "public"
"""Name of the state that holds the store's public id and, under seal, its schema version."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step, from a schema version to the next.

    Attributes
    ----------
    tables : mapping
        Name and SQL of everything that a store of the earlier version has.
    change : callable
        Makes it one of the next version. It changes rows through the methods of the tables alone,
        which keep the sealed contents right, and never a row of the ledger.
    """

    tables: Mapping[str, str]
    change: Callable[[Database, StoreTables], None]


MIGRATIONS: dict[int, Migration] = {}
"""The step that each schema version from `OLDEST` on begins with; none for that of `layout`."""


def checked_schema_version(database: Database) -> int:
    """Give the schema version of a file, whose tables must be those of that version."""
    version = int(database.one("PRAGMA user_version"))
    if not OLDEST <= version <= layout.VERSION:
        raise StoreError(_refusal(database, version))

    tables = layout.TABLES if version == layout.VERSION else MIGRATIONS[version].tables
    layout.check_layout(database, tables)

    return version


def migrate_schema(database: Database, tables: StoreTables, version: int) -> None:
    """Take all steps from a version to this one in one transaction; without a step, do nothing."""
    if version == layout.VERSION:
        return

    with tables.transaction():
        for step in range(version, layout.VERSION):
            MIGRATIONS[step].change(database, tables)

        # The version stands in the file's header and under the seal of the contents.
        database.execute(f"PRAGMA user_version = {layout.VERSION}")
        tables.put_state(PUBLIC, {**tables.state(PUBLIC), "version": layout.VERSION})

        # A step that makes something else is a defect: it must not be committed.
        layout.check_layout(database, layout.TABLES)


def _refusal(database: Database, version: int) -> str:
    """Say which versions are read, and what reads this one."""
    readable = str(layout.VERSION) if layout.VERSION == OLDEST else f"{OLDEST} to {layout.VERSION}"
    cure = (
        "a later release of Meanstream wrote it: use that one"
        if version > layout.VERSION
        else "a release before 0.3.0 wrote it: see Upgrading in docs/deployment.md"
    )

    rule = f"store must have schema version {readable}, got {version} in {str(database.path)!r}"
    return f"{rule}; {cure}"
