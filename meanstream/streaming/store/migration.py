"""A store of an older version, brought up to date."""

from __future__ import annotations

from meanstream.streaming.events.release_ids import release_ids
from meanstream.streaming.store.database import Database
from meanstream.streaming.store.layout import NEW_IN_2, VERSION
from meanstream.streaming.store.spend_ledger import Ledger, LedgerRows
from meanstream.streaming.store.store_tables import StoreTables

_BLOCK = 65_536


def migrate_store(database: Database, tables: StoreTables, ledger: Ledger) -> None:
    """Turn version 1 into today's, within a transaction of the tables: all or nothing.

    Since version 2 there is a chain over the ledger, the store knows its contents, and events that were posted together
    are in one row.

    Raises
    ------
    DamagedStoreError
        If the old file does not hold what was written, as far as version 1 can tell.
    """
    for name in ("ledger_keeps", "ledger_stays"):
        database.execute(f"DROP TRIGGER {name}")
    for name in ("outbox", "ledger"):
        database.execute(f"ALTER TABLE {name} RENAME TO old_{name}")
    for statement in NEW_IN_2.values():
        database.execute(statement)
    database.execute("INSERT INTO outbox SELECT seq, topic, line FROM old_outbox")
    posted = database.one("SELECT max(seq) FROM sqlite_sequence")
    tables.adopt(posted or 0)
    _check(database, tables)
    database.execute(f"PRAGMA user_version = {VERSION}")  # by which the chain is made
    _charge(database, tables.agents(), ledger)
    for name in ("outbox", "ledger"):
        database.execute(f"DROP TABLE old_{name}")


def _check(database: Database, tables: StoreTables) -> None:
    """Unseal everything."""
    for (name,) in database.rows("SELECT name FROM state"):
        tables.state(name)
    for (kind,) in database.rows("SELECT DISTINCT kind FROM chunks"):
        for _ in tables.chunks(kind):
            pass
    delivered = tables.state("delivered")
    if delivered is not None and delivered["outbox"] > tables.posted():
        raise database.damage("the outbox")


def _charge(database: Database, names: list[str], ledger: Ledger) -> None:
    """Enter the old rows in the new ledger."""
    query = "SELECT seq, release_id, agent, release_index, input_version, time, output FROM old_ledger ORDER BY seq"
    for block in database.blocks(query, size=_BLOCK):
        seq, ids, *columns = map(list, zip(*block, strict=True))
        agent, index, version, time, output = columns
        try:
            sound = seq[-1] == ledger.rows() + len(seq) and ids == release_ids(names, agent, index)
            refused = ledger.charge(
                LedgerRows(
                    agent=agent,
                    release_index=index,
                    input_version=version,
                    time=time,
                    output=output,
                )
            )
        except (TypeError, ValueError, IndexError, OverflowError):
            raise database.damage("the ledger") from None
        if not sound or refused:
            raise database.damage("the ledger")
