"""A ledger as JSON lines: names, outputs and values of the chain.

Anyone can verify them without the store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from meanstream.operators.validation import require
from meanstream.streaming.store.database import CopyFailedError
from meanstream.streaming.store.ledger_chain import (
    START,
    LedgerColumns,
    chain_value,
    chained_bytes,
)
from meanstream.streaming.store.state_store import Store, StoreError
from meanstream.streaming.store.store_audit import LedgerReport, audited_rows

FORMAT = "meanstream ledger"
"""First word of an export, by which readers recognize it."""
VERSION = 1
"""Of the format of exports."""


def export_ledger(store: Path, target: Path, *, rows: int | None = None) -> LedgerReport:
    """Write the rows of a ledger, or its first ones, into a new file; all rows are verified before.

    **Privacy.** An export holds what left the process, and of the rest one digest per segment.
    Input versions are private, and they are in that digest alone, as they are in the chain's
    values. Of agents and rounds it is public; of agents that query each other a row is private to
    its reader.

    Returns
    -------
    LedgerReport
        Rows, agents and head of what was exported.
    """
    with closing(Store.read(store)) as opened:
        count = opened.ledger.rows() if rows is None else rows
        require(
            0 <= count <= opened.ledger.rows(),
            "rows",
            f"be at most {opened.ledger.rows()}, the rows of the ledger",
            count,
        )

        export = _Export(opened, count)
        _create(target)
        try:
            with target.open("wb") as file:
                file.writelines(export.lines())
                file.flush()
                os.fsync(file.fileno())
        except BaseException as error:
            target.unlink()
            if isinstance(error, OSError):
                raise CopyFailedError(
                    f"export must be writable, got {str(target)!r} ({error.strerror})"
                ) from None

            raise

    return export.report()


class _Export:
    """The lines of an export, and what they come to."""

    def __init__(self, store: Store, rows: int) -> None:
        self._store = store
        self._rows = rows
        self._names = store.agents()
        self._seen = set[int]()
        self._chain = START

    def lines(self) -> Iterator[bytes]:
        """Give the lines: a header, rows, and a value of the chain after each segment."""
        name = (self._store.settings() or {}).get("name")
        yield _line({"format": FORMAT, "version": VERSION, "deployment": name, "rows": self._rows})

        # Blocks begin and end with segments; those after the last exported row are verified, too.
        for block in audited_rows(self._store):
            first = block.rows.seq[0]
            if first <= self._rows:
                yield from self._segment(block.rows.part(slice(0, self._rows - first + 1)))

    def report(self) -> LedgerReport:
        """Tell what was exported."""
        return LedgerReport(self._rows, len(self._seen), self._chain)

    def _segment(self, rows: LedgerColumns) -> Iterator[bytes]:
        encoded = self._store.encoded_names()
        for seq, agent, output in zip(rows.seq, rows.agent, rows.output, strict=True):
            yield _line({"seq": seq, "agent": self._names[agent], "output": output.decode()})

        # The numbers hold input versions, which are private: their digest stands for them.
        digests = [sha256(data).digest() for data in chained_bytes(rows, encoded)]
        self._chain = chain_value(self._chain, digests)
        self._seen.update(rows.agent)

        yield _line({"rows": rows.seq[-1], "numbers": digests[0].hex(), "chain": self._chain.hex()})


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode("ascii") + b"\n"


def _create(target: Path) -> None:
    """Make the new file, for its owner alone; the owner may hand it on."""
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise StoreError(f"export must be a new file, got {str(target)!r}, which exists") from None
    except OSError as error:
        raise StoreError(
            f"export must be in a writable folder, got {str(target)!r} ({error.strerror})"
        ) from None
