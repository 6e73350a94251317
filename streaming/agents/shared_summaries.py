"""Summaries of releases that engines of one deployment exchange in the folder of their stores."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.own_histogram import HistogramColumns
from meanstream.operators.collaboration.covariates.covariate_releases import CovariateReleases
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import ReleaseSummary
from meanstream.operators.records import Ints
from meanstream.operators.validation import require
from meanstream.streaming.agents.engine_summary import (
    OTHERS,
    EngineSummary,
    OtherReleases,
    deployment_digest,
    empty_like,
    others_of_store,
    read_summary,
)
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.keepers import Keeper
from meanstream.streaming.own_paths import SUMMARY_SUFFIX
from meanstream.streaming.repeated_lines import OncePerSecond
from meanstream.streaming.store.state_snapshot import (
    decode_snapshot_columns,
    encode_snapshot_columns,
)
from meanstream.streaming.store.state_store import Store

MOST_BYTES = 1 << 28
"""Largest file that is read: one with covariates has 50 bytes for each agent."""
_BAD = (msgspec.MsgspecError, ValueError, TypeError, KeyError, IndexError, OverflowError)

_log = logging.getLogger("meanstream.summaries")
_log.addFilter(OncePerSecond())


def summary_path(store: Path) -> Path:
    """Name the file next to a store in which its engine publishes its summary."""
    return store.with_name(store.name + SUMMARY_SUFFIX)


@dataclass(frozen=True, slots=True)
class ShardRun:
    """All shards of one run.

    Attributes
    ----------
    run : str
        Its name, another one at each start.
    shards : int
        How many there are.
    """

    run: str
    shards: int


class SharedSummaries(Keeper[Any]):
    """Publishes an engine's summary next to its store, and keeps those of the other engines there.

    Each commit takes the newest files in. What it took is in the store, so an answer that is
    written again after a crash is the same.

    **Privacy.** A file follows from releases that were charged, and so do its size and its times.
    """

    def __init__(
        self,
        store: Store,
        settings: AgentsSettings,
        options: EngineOptions,
        together: ShardRun | None = None,
    ) -> None:
        self.others = OtherReleases()
        self._store = store
        self._settings = settings
        self._file = summary_path(store.path)
        self._engine = store.public_id()
        self._deployment = deployment_digest(settings, options)
        self.together = together
        self._files: dict[Path, tuple[tuple[int, ...], EngineSummary | None]] = {}
        self._settled = False  # the last commit took in the ends of all shards

    def restore(self, store: Store, state: Mapping[str, Any]) -> None:
        """Go on with what the last commit took."""
        self.others = others_of_store(store, self._deployment)
        self._settled = bool(state.get("settled"))

    def note(self, store: Store, commit: Any) -> dict[str, Any]:  # noqa: ARG002
        """Say that more has been read than the shards had at their ends."""
        self._settled = False
        return {"settled": False}

    def save(self, store: Store) -> None:
        """Take in what other engines have published since the last commit."""
        self._take(store, OtherReleases(self._published()))

    def publish(
        self, summary: ReleaseSummary, followed: FollowedReleases, shares: HistogramColumns,
        hashes: Ints, *, ended: bool = False,
    ) -> None:  # fmt: skip
        """Write the summary of the own agents, whole or not at all.

        `hashes` are those of the agents' names, by number.
        """
        if isinstance(summary, CovariateReleases):  # which names agents
            summary = replace(summary, agent=hashes[summary.agent])

        own = EngineSummary(
            engine=self._engine,
            deployment=self._deployment,
            agents=summary.n,
            summary=summary,
            pool=followed.pool(),
            histograms=shares,
            run=self.together.run if ended and self.together is not None else None,
        )
        self._write(encode_snapshot_columns(own.columns()))

    def settled(self) -> bool:
        """Say whether the ends of all shards are taken in, or there are none to wait for."""
        return self.together is None or self._settled

    def settle(self) -> bool:
        """Take in the ends of all other shards, if all are there.

        In a transaction of its own.
        """
        together = self.together
        if together is None:
            return True

        found = OtherReleases(self._published())
        ended = [part for part in found.parts if part.run == together.run]
        if len(ended) < together.shards - 1:
            return False

        with self._store.transaction():
            self._take(self._store, OtherReleases(ended))
            state = self._store.state("engine")
            self._store.put_state("engine", {**state, "settled": True})

        self._settled = True
        return True

    def _take(self, store: Store, found: OtherReleases) -> None:
        if list(map(id, found.parts)) == list(map(id, self.others.parts)):
            return

        known = len(self.others.parts)
        for number, part in enumerate(found.parts):
            store.put_chunk(OTHERS, number, part.columns())

        store.drop_chunks(OTHERS, range(len(found.parts), known))
        self.others = found

    def _published(self) -> Iterator[EngineSummary]:
        """Read the files of other engines, each once."""
        files = sorted(self._file.parent.glob(f"*{SUMMARY_SUFFIX}"))
        self._files = {path: read for path, read in self._files.items() if path in files}
        engines = {self._engine}

        for path in files:
            part = None if path == self._file else self._read(path)
            if part is not None and part.engine not in engines:
                engines.add(part.engine)
                yield part

    def _read(self, path: Path) -> EngineSummary | None:
        """Read a file if it is a new one; None if it is of another deployment, or none of ours."""
        try:
            status = path.stat()
            mark = status.st_mtime_ns, status.st_size, status.st_ino
            if path in self._files and self._files[path][0] == mark:
                return self._files[path][1]

            part = self._own_kind(path, status)
        except OSError:  # its engine has just replaced it, or is gone
            return None
        except _BAD as error:
            part = None
            _log.warning(
                "the summary of another engine is left out",
                extra={"file": str(path), "error": type(error).__name__},
            )

        self._files[path] = mark, part
        return part

    def _own_kind(self, path: Path, status: os.stat_result) -> EngineSummary | None:
        """Read a summary; None if it is of another deployment."""
        regular = stat.S_ISREG(status.st_mode) and status.st_size <= MOST_BYTES
        require(regular, "summary", f"be a file of at most {MOST_BYTES} bytes", "another")
        part = read_summary(decode_snapshot_columns(path.read_bytes()))
        if part.deployment != self._deployment:
            return None

        # What cannot be added up would stop a refresh.
        OtherReleases([part]).joined(empty_like(part.summary))
        return part

    def _write(self, data: bytes) -> None:
        """Replace the file; one that a machine loses is written again at the next refresh."""
        new = self._file.with_name(f"{self._file.name}.new")
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)

            os.replace(new, self._file)
        except OSError as error:
            with suppress(OSError):
                new.unlink()

            _log.warning(
                "the summary of releases cannot be written, so other engines learn without it",
                extra={"file": str(self._file), "error": error.strerror},
            )
