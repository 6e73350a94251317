"""The tables of a store, each checked as it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from meanstream.streaming.store.database import Database
from meanstream.streaming.store.state_snapshot import (
    CHECKSUM_BYTES,
    Columns,
    CorruptedSnapshotError,
    pack_columns,
    unpack_columns,
)
from meanstream.streaming.store.state_snapshot import seal_snapshot as sealed
from meanstream.streaming.store.state_snapshot import unseal_snapshot as unsealed

_MODULUS = 2**128


def content_mark(key: str, content: bytes) -> int:
    """Reduce a row, by its key and its content, to a number of 128 bits."""
    return int.from_bytes(
        hashlib.blake2b(key.encode() + b"\0" + content, digest_size=16).digest(), "big"
    )


class Contents:
    """Number of rows and sum of marks per group of rows.

    Sealed in each commit, it finds changed, lost and added rows.

    A sum follows rows that come and go without a look at the others. It finds faults, not a forger:
    anyone who can write the file can also compute the sum. For the ledger there is a chain.

    Examples
    --------
    >>> contents = Contents()
    >>> rows = [content_mark("ann", b"1"), content_mark("bob", b"2")]
    >>> contents.change("names", rows)
    >>> contents.agrees("names", rows), contents.agrees("names", rows[:1])
    (True, False)
    >>> contents.change("names", rows[1:], -1)
    >>> contents.agrees("names", rows[:1])
    True
    """

    def __init__(self, plain: dict[str, Any] | None = None) -> None:
        self._groups = {
            name: (rows, int(total, 16)) for name, (rows, total) in (plain or {}).items()
        }

    def agrees(self, group: str, marks: Iterable[int]) -> bool:
        """Say whether these are the marks of all rows of a group."""
        mark_list = list(marks)
        return self._groups.get(group, (0, 0)) == (len(mark_list), sum(mark_list) % _MODULUS)

    def groups(self) -> list[str]:
        """List the groups that have rows."""
        return list(self._groups)

    def plain(self) -> dict[str, Any]:
        """Give the groups that have rows, as plain values."""
        return {name: (rows, f"{total:032x}") for name, (rows, total) in self._groups.items()}

    def change(self, group: str, marks: Sequence[int], sign: int = 1) -> None:
        """Count rows in, or out with a sign of -1."""
        rows, total = self._groups.pop(group, (0, 0))
        rows += sign * len(marks)
        total = (total + sign * sum(marks)) % _MODULUS

        if rows or total:
            self._groups[group] = (rows, total)


CONTENTS = "contents"
"""Name of the state that says what everything else must be; each commit writes it again."""

NAMES = 1024
"""Names of agents in one row, at most."""

_NAMES = msgspec.json.Decoder(list[str])
_CHUNKS = "chunks "

T = TypeVar("T")


class StoreTables:
    """State, agents, columns and outgoing events.

    Changed, lost and added rows are found when they are read.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._contents: Contents | None = None
        self._encoded_names: list[bytes] | None = None
        self._marks: dict[
            tuple[str, int], int
        ] = {}  # of chunks that were written here: none is read back for its mark
        self._posted = self._commits = 0
        self._seal = b""  # the contents as they were read or written last

    # -- reading ---------------------------------------------------------------------------------------------

    def state(self, name: str) -> Any:
        """Read the plain value saved under a name; None if there is none."""
        rows = self._states()

        if name in rows:
            return self._unsealed(rows[name], name)
        return None

    def agents(self) -> list[str]:
        """List the names of all agents, by number."""
        names: list[str] = []
        rows = self._database.rows("SELECT number, names FROM agents ORDER BY number")
        self._check("agents", lambda: [_name_mark(*row) for row in rows], "agents")

        # Numbers of names follow from their place, so that a gap is damage.
        for number, encoded in rows:
            if number != len(names):
                raise self._database.damage("agents")
            names += self._read(_NAMES.decode, encoded, "agents")

        if len(set(names)) != len(names):
            raise self._database.damage("agents")
        return names

    def encoded_names(self) -> list[bytes]:
        """List the names of all agents in UTF-8, by number; quick after the first time."""
        if self._encoded_names is None:
            self._encoded_names = [name.encode() for name in self.agents()]

        return self._encoded_names

    def chunks(self, kind: str) -> Iterator[tuple[int, Columns]]:
        """Read saved columns of one kind, by number."""
        self._check_chunks(kind)
        query = "SELECT number, data FROM chunks WHERE kind = ? ORDER BY number"
        for ((number, packed),) in self._database.blocks(query, (kind,)):
            yield number, self._read(_unpacked, packed, f"{kind} {number}")

    def outbox(self) -> list[tuple[int, str, bytes]]:
        """List events that were committed and not yet marked as delivered.

        Sequence number, topic, line.

        Events that were put in together have one sequence number.
        """
        rows = self._database.rows("SELECT seq, topic, lines FROM outbox ORDER BY seq")
        self._check("outbox", lambda: [_event_mark(*row) for row in rows], "outbox")
        return [(seq, topic, line) for seq, topic, lines in rows for line in lines.split(b"\n")]

    def posted(self) -> int:
        """Tell the newest sequence number that was ever in the outbox."""
        self._known()
        return self._posted

    def commits(self) -> int:
        """Tell how many transactions were committed."""
        self._known()
        return self._commits

    def check(self) -> None:
        """Compare everything but the ledger's rows with the contents."""
        self._states()
        self.agents()
        self.outbox()

        # Kinds of which nothing is left are found by their entries in the contents.
        kinds = {kind for (kind,) in self._database.rows("SELECT DISTINCT kind FROM chunks")}
        kinds |= {
            name.removeprefix(_CHUNKS)
            for name in self._known().groups()
            if name.startswith(_CHUNKS)
        }

        for kind in kinds:
            self._check_chunks(kind)

    # -- writing, within a transaction -----------------------------------------------------------------------

    def put_state(self, name: str, value: Any) -> None:
        """Save a plain value under a name."""
        query = "SELECT name, value FROM state WHERE name = ?"

        # What was under the name leaves the contents before the new value enters.
        self._count("state", _state_mark, self._database.rows(query, (name,)), -1)
        encoded = _encoded(value)
        self._database.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, encoded))
        self._count("state", _state_mark, [(name, encoded)])

    def add_agents(self, first: int, names: Sequence[str]) -> None:
        """Enter new agents with the numbers from `first` on, the number of those that are there."""
        starts = range(0, len(names), NAMES)
        rows = [(first + i, msgspec.json.encode(names[i : i + NAMES])) for i in starts]
        self._database.insert("INSERT INTO agents VALUES (?, ?)", rows)
        self._count("agents", _name_mark, rows)

        # A new store knows all names from here on and never reads them back.
        if not first:
            self._encoded_names = []  # there were none: what was just written is not read back

        if self._encoded_names is not None:
            self._encoded_names += [name.encode() for name in names]

    def rename_agent(self, number: int, name: str) -> None:
        """Give an agent another name.

        None that has a row in the ledger, whose chain holds the name.
        """
        # Names are stored in runs: the one that holds this number is written anew.
        query = "SELECT number, names FROM agents WHERE number <= ? ORDER BY number DESC LIMIT 1"
        rows = self._database.rows(query, (number,))
        self._count("agents", _name_mark, rows, -1)
        ((first, encoded),) = rows
        names = self._read(_NAMES.decode, encoded, "agents")
        names[number - first] = name
        renamed = (first, msgspec.json.encode(names))
        self._database.execute("INSERT OR REPLACE INTO agents VALUES (?, ?)", renamed)
        self._count("agents", _name_mark, [renamed])
        self._encoded_names = None

    def put_chunk(self, kind: str, number: int, columns: Columns) -> None:
        """Save columns."""
        self._forget_chunk(kind, number)
        packed = sealed(pack_columns(columns))
        self._database.execute(
            "INSERT OR REPLACE INTO chunks VALUES (?, ?, ?)", (kind, number, packed)
        )

        # The mark stands for the chunk in the contents: nothing is read back to compare it.
        mark = self._marks[kind, number] = _chunk_mark(kind, number, packed[-CHECKSUM_BYTES:])
        self._known().change(_group(kind), [mark])

    def drop_chunks(self, kind: str, numbers: Sequence[int]) -> None:
        """Remove columns."""
        for number in numbers:
            self._forget_chunk(kind, number)

        query = "DELETE FROM chunks WHERE kind = ? AND number = ?"
        self._database.insert(query, [(kind, number) for number in numbers])

    def post(self, topic: str, lines: Sequence[bytes]) -> None:
        """Put events into the outbox."""
        if not lines:
            return

        # Lines of one commit share a row; a line end within one would make two events of it.
        together = b"\n".join(lines)
        if together.count(b"\n") != len(lines) - 1:
            raise ValueError(
                f"lines must hold no line end, got {len(lines)} of topic {topic!r} with more"
            )

        row = (self.posted() + 1, topic, together)
        self._database.execute("INSERT INTO outbox VALUES (?, ?, ?)", row)
        self._count("outbox", _event_mark, [row])
        self._posted += 1

    def clear_outbox(self, seq: int) -> None:
        """Forget delivered events."""
        rows = self._database.rows("SELECT seq, topic, lines FROM outbox WHERE seq <= ?", (seq,))
        if rows:
            self._count("outbox", _event_mark, rows, -1)
            self._database.execute("DELETE FROM outbox WHERE seq <= ?", (seq,))

    # -- what the tables hold --------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all or nothing, durably, with the contents."""
        try:
            with self._database.transaction():
                # Another process has written: what is remembered is read again before anything is
                # added.
                if self._contents is not None and self._stored_contents() != self._seal:
                    self.forget()  # someone else has written since

                yield
                self._save_contents()

        # After a failure nothing that is remembered can be trusted.
        except BaseException:
            self.forget()
            raise

    def begin_contents(self) -> None:
        """Begin with tables that hold nothing."""
        self._contents = Contents()

    def forget(self) -> None:
        """Read again what is remembered.

        A transaction was given up, or someone else has written.
        """
        self._contents = self._encoded_names = None
        self._marks.clear()

    def _known(self) -> Contents:
        """Give the contents, as they were last committed and changed since."""
        if self._contents is None:
            # The list of contents has a seal of its own, and is what all tables are compared with.
            self._seal = self._stored_contents()
            plain = self._unsealed(self._seal, CONTENTS)
            self._contents = Contents(plain["groups"])
            self._posted = plain["posted"]
            self._commits = plain["commits"]

        return self._contents

    def _stored_contents(self) -> bytes:
        stored = self._database.one("SELECT value FROM state WHERE name = ?", (CONTENTS,))
        if not isinstance(stored, bytes):
            raise self._database.damage(CONTENTS)
        return stored

    def _save_contents(self) -> None:
        if self._contents is not None:
            self._commits += 1
            groups = self._contents.plain()
            self._seal = _encoded(
                {"groups": groups, "posted": self._posted, "commits": self._commits}
            )
            self._database.execute(
                "INSERT OR REPLACE INTO state VALUES (?, ?)", (CONTENTS, self._seal)
            )

    def _count(
        self,
        group: str,
        marking: Callable[..., int],
        rows: Iterable[Sequence[Any]],
        sign: int = 1,
    ) -> None:
        """Count rows of a group into the contents, or out of them."""
        marks = self._read(lambda counted: [marking(*row) for row in counted], rows, group)
        self._known().change(group, marks, sign)

    def _forget_chunk(self, kind: str, number: int) -> None:
        mark = self._marks.pop((kind, number), None)
        if mark is not None:
            self._known().change(_group(kind), [mark], -1)
            return

        query = "SELECT kind, number, substr(data, ?) FROM chunks WHERE kind = ? AND number = ?"
        rows = self._database.rows(query, (-CHECKSUM_BYTES, kind, number))
        self._count(_group(kind), _chunk_mark, rows, -1)

    def _states(self) -> dict[str, bytes]:
        rows: dict[str, bytes] = dict(self._database.rows("SELECT name, value FROM state"))
        rows.pop(CONTENTS, None)
        self._check("state", lambda: [_state_mark(*row) for row in rows.items()], "state")
        return rows

    def _check_chunks(self, kind: str) -> None:
        query = "SELECT kind, number, substr(data, ?) FROM chunks WHERE kind = ?"
        rows = self._database.rows(query, (-CHECKSUM_BYTES, kind))
        self._check(_group(kind), lambda: [_chunk_mark(*row) for row in rows], kind)

    def _check(self, group: str, marks: Callable[[], list[int]], what: str) -> None:
        """Compare all rows of a group with the contents."""
        if not self._known().agrees(group, self._read(lambda _: marks(), None, what)):
            raise self._database.damage(what)

    def _unsealed(self, data: bytes, what: str) -> Any:
        return json.loads(self._read(unsealed, data, what))

    def _read(self, read: Callable[[Any], T], data: Any, what: str) -> T:
        """Read what may be damaged.

        A fault, also a value of another type, is one line without the value.
        """
        try:
            return read(data)
        except (
            CorruptedSnapshotError,
            TypeError,
            AttributeError,
            UnicodeError,
            msgspec.MsgspecError,
        ):
            raise self._database.damage(what) from None


def _encoded(value: Any) -> bytes:
    return sealed(json.dumps(value, separators=(",", ":")).encode())


def _unpacked(data: bytes) -> Columns:
    return unpack_columns(unsealed(data))


def _group(kind: str) -> str:
    return f"{_CHUNKS}{kind}"


def _state_mark(name: str, data: bytes) -> int:
    return content_mark(f"state {name}", data)


def _name_mark(first: int, names: bytes) -> int:
    return content_mark(f"agents {first}", names)


def _chunk_mark(kind: str, number: int, checksum: bytes) -> int:
    return content_mark(f"chunk {number} {kind}", checksum)  # which stands for the rest


def _event_mark(seq: int, topic: str, lines: bytes) -> int:
    return content_mark(f"event {seq} {topic}", lines)
