"""The ledger: one row per release, written before the release leaves, never changed afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanstream.operators.records import Bools, Ints
from meanstream.operators.validation import require
from meanstream.streaming.store.database import Database
from meanstream.streaming.store.ledger_chain import LedgerChain, LedgerColumns, pack_ledger_rows
from meanstream.streaming.store.ledger_reader import HEAD, LedgerReader, next_ledger_indexes
from meanstream.streaming.store.store_tables import StoreTables

CHUNK = 4096
"""Agents whose numbers of charges are saved together."""

_SPENT = "spent"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRows:
    """Releases that ask to be charged, one entry each.

    Attributes
    ----------
    agent, release_index : list of int
        Number of the agent in the store, and which release of it this is, from 1.
    input_version : list of int
        Keyed digest of the exact input, as a signed 64-bit integer.
    time : list of float
        Event time, seconds.
    output : sequence of bytes
        What will leave the process, exactly.
    """

    agent: list[int]
    release_index: list[int]
    input_version: list[int]
    time: list[float]
    output: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.agent)


class Ledger(LedgerReader):
    """Charges releases within the transaction of a store.

    A charge is one release of an agent's horizon: the horizon is the budget, within which every
    sample is protected by the (epsilon, delta) of the settings. An agent's releases are charged in
    their order, so that the number of its charges is the index of its last one; these numbers are
    saved too, and say at once whether a release is new.

    Rows are only ever added, in blocks. Each block carries the value of a hash chain over its rows,
    which stands for them and for all rows before them, and where the ledger ends is sealed in the
    same commit: a row that is changed, lost or added later is found.

    **Privacy.** The same release id with the same input version is the stored release again and costs nothing. With
    another version it would be a second look at the agent's data under the same noise index, and is refused.
    """

    def __init__(self, database: Database, tables: StoreTables) -> None:
        super().__init__(database, tables)
        self._spent: Ints | None = None
        self._recent: tuple[int, Sequence[bytes]] = (
            0,
            [],
        )  # outputs of the last charge, and the row before them
        self._charged = _Charged()
        self._chain: LedgerChain | None = None

    def charge(self, rows: LedgerRows) -> list[int]:
        """Write new rows; return which entries were refused."""
        if not len(rows):
            return []
        agent = np.array(rows.agent, np.int64)
        index = np.array(rows.release_index, np.int64)
        new = self._new(agent, index)

        # New charges are appended; those of before are only compared.
        if new.any():
            self._append(rows, agent, index, np.flatnonzero(new))
            self._count(agent[new])

        again = np.flatnonzero(~new)
        refused = self._refused(rows, agent, index, again) if len(again) else []

        # The head changes only where something was added or refused.
        head = replace(self.head(), refused=self.head().refused + len(refused))
        if new.any() or refused:
            self._tables.put_state(HEAD, head.plain())
            self._head = head

        return refused

    def after(self, seq: int) -> Sequence[bytes]:
        """Give the outputs with a sequence number greater than `seq`, in order.

        The last one's is `last()`.

        Those of the last charge are still at hand the first time that they are requested; others
        are read.
        """
        # What was charged last is at hand; older rows are read and verified.
        if seq == self.rows():
            return []
        (first, recent), self._recent = self._recent, (0, [])
        if recent and seq >= first:
            if seq > first:
                return recent[seq - first :]
            return recent

        return [output for block in self.verified(seq) for output in block.rows.output]

    def rows(self) -> int:
        """Tell the number of rows; quick."""
        return self.head().rows

    def last(self) -> int:
        """Tell the sequence number of the newest row, 0 if there is none."""
        return self.rows()

    def spent(self) -> Ints:
        """Count the charges of each agent, by number, at least up to the last agent with a release; quick."""
        return self._counts(0).copy()

    def charges(self) -> list[tuple[int, int]]:
        """Count for every agent with a release the releases it was charged; quick."""
        return [(agent, count) for agent, count in enumerate(self._counts(0).tolist()) if count]

    def check_charges(self, counted: Ints) -> None:
        """Compare the saved numbers of charges with those that were counted in the rows, by number of the agent."""
        spent = self._counts(len(counted))
        if not np.array_equal(spent[: len(counted)], counted) or spent[len(counted) :].any():
            raise self._database.damage("the numbers of charges")

    def forget(self) -> None:
        """Read again what is remembered.

        A transaction was given up, or someone else has written.
        """
        self._head = self._spent = None
        self._recent = (0, [])
        self._charged = _Charged()
        self._chain = None

    # -- internals -------------------------------------------------------------------------------------------

    def _counts(self, n_agents: int) -> Ints:
        """Give the number of charges of that many agents or more."""
        if self._spent is None:
            # Counts are saved beside the rows, and verified against them by an audit.
            saved = dict(self._tables.chunks(_SPENT))
            self._spent = np.zeros(CHUNK * (max(saved, default=0) + 1), np.int64)

            for number, columns in saved.items():
                self._spent[number * CHUNK : (number + 1) * CHUNK] = columns["count"]

        # Room for twice as many, so that it grows seldom.
        if n_agents > len(self._spent):
            grown = np.zeros(CHUNK * -(-2 * n_agents // CHUNK), np.int64)
            grown[: len(self._spent)] = self._spent
            self._spent = grown

        return self._spent

    def _new(self, agent: Ints, index: Ints) -> Bools:
        """Tell which releases were never charged; of several of one id, the first."""
        # Agents must be known and numbers of releases must follow one another.
        n_agents = len(self._tables.encoded_names())
        require(
            int(agent.min()) >= 0 and int(agent.max()) < n_agents,
            "agent",
            f"be one of {n_agents}",
            int(agent.max()),
        )
        require(int(index.min()) >= 1, "release_index", "be at least 1", int(index.min()))
        spent = self._counts(n_agents)
        new = index > spent[agent]
        once = int(np.bincount(agent).max()) == 1

        # Of one release twice in a batch the first is charged.
        if not once:
            first = np.zeros(len(agent), np.bool_)
            first[np.unique(_keys(agent, index), return_index=True)[1]] = True
            new &= first

        following = spent[agent[new]] + 1 if once else next_ledger_indexes(agent[new], spent)
        wrong = np.flatnonzero(new)[index[new] != following]
        if len(wrong):
            raise ValueError(
                f"release_index must be the next one of agent {agent[wrong[0]]}, got {index[wrong[0]]} after "
                f"{spent[agent[wrong[0]]]} that are charged"
            )

        return new

    def _append(self, rows: LedgerRows, agent: Ints, index: Ints, which: Ints) -> None:
        # Rows are numbered from the end of the ledger.
        head = self.head()
        n = len(which)
        version = np.array(rows.input_version, np.int64)
        time = np.array(rows.time, np.float64)
        seq = np.arange(head.rows + 1, head.rows + 1 + n)

        charge = np.ones(n, np.int64)
        output = rows.output if n == len(rows) else [rows.output[i] for i in which.tolist()]
        columns: Any = (
            seq,
            agent[which],
            index[which],
            version[which],
            charge,
            time[which],
            output,
        )
        new = LedgerColumns(*columns)

        # The chain of hashes goes on over the new rows.
        chain = self._at_end()
        names = self._tables.encoded_names()
        size = head.size

        while chain.rows < head.rows + n:  # a block holds no rows of two segments
            first = chain.rows - head.rows
            block = new.part(slice(first, first + chain.room))
            chain.extend(block, names)
            values = (chain.rows, chain.value, pack_ledger_rows(block))
            self._database.execute("INSERT INTO ledger VALUES (?, ?, ?)", values)
            size += sum(map(len, block.output))

        # Outputs of this charge are kept for the delivery that follows.
        self._head = replace(head, rows=chain.rows, chain=chain.value, size=size)
        self._recent = (head.rows, output)

    def _at_end(self) -> LedgerChain:
        """Give the chain as it is at the end of the ledger."""
        if self._chain is None:
            self._chain = chain = self._chain_before(self.head().rows)
            for _ in self._blocks_after(chain.rows, chain):
                pass

        return self._chain

    def _count(self, agent: Ints) -> None:
        """Save the numbers of charges of these agents."""
        spent = self._counts(0)
        spent += np.bincount(agent, minlength=len(spent))
        for number in np.unique(agent // CHUNK).tolist():
            counts = spent[number * CHUNK : (number + 1) * CHUNK]
            self._tables.put_chunk(_SPENT, number, {"count": counts.astype(np.int32)})

    def _refused(self, rows: LedgerRows, agent: Ints, index: Ints, again: Ints) -> list[int]:
        """Compare releases that were charged before with what was charged."""
        # Versions of all charged releases, read once.
        for block in self.verified(self._charged.rows) if self._charged.rows < self.rows() else ():
            self._charged.add(block.rows)

        versions = self._charged.versions(_keys(agent[again], index[again]))
        if versions is None:
            raise self._database.damage("the ledger")

        # The same release with another version would be another noise for it: refused.
        other = versions != np.array(rows.input_version, np.int64)[again]

        return [int(i) for i in again[other]]


class _Charged:
    """Input versions of the charged releases; only needed when releases are made again."""

    def __init__(self) -> None:
        self.rows = 0
        self._keys: list[Ints] = []
        self._versions: list[Ints] = []

    def add(self, block: LedgerColumns) -> None:
        """Take in rows."""
        self.rows += len(block)
        agent = np.array(block.agent, np.int64)
        index = np.array(block.release_index, np.int64)
        self._keys.append(_keys(agent, index))
        self._versions.append(np.array(block.input_version, np.int64))

    def versions(self, keys: Ints) -> Ints | None:
        """Give the input versions of releases; None if one of them was not charged."""
        keys_so_far = np.concatenate(self._keys)
        versions = np.concatenate(self._versions)
        order = np.argsort(keys_so_far)
        self._keys = [keys_so_far[order]]
        self._versions = [versions[order]]
        index = np.minimum(np.searchsorted(self._keys[0], keys), len(keys_so_far) - 1)

        if np.array_equal(self._keys[0][index], keys):
            return self._versions[0][index]
        return None


def _keys(agent: Ints, index: Ints) -> Ints:
    return agent << 32 | index
