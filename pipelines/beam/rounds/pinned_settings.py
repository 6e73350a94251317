"""Which result of a stage users were queried upon.

The first one that was accepted, for good, in every pipeline.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from meanstream.operators.rounds.round_records import Public
from meanstream.streaming.events.round_events import StageResult
from meanstream.streaming.rounds.stage_results import first_accepted_result
from meanstream.streaming.rounds.window_round import WindowRound


class PinnedResults:
    """Results of stages in a folder of the users' side, one small file each.

    A file is made once and never replaced.

    Parameters
    ----------
    folder : str
        It is there, on a file system that all workers share (hard links must work); kept as long as
        users may be asked.

    Notes
    -----
    **Privacy.** A user who answered a stage upon one result and then upon another would have reported twice. A pipeline
    that begins again has no state, so what was accepted stands outside of it, as it does in the engine's store. Anyone
    who loses the folder must not run rounds again that were queried before.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def accepted(
        self,
        this: WindowRound,
        stage: int,
        public: Public,
        came: Sequence[StageResult],
        *,
        shape: tuple[int, ...] = (),
    ) -> tuple[Public | None, int]:
        """Public: what users are queried upon after a stage, and how many of these results are others."""
        pinned = self._read(self._path_of(this.id, stage))
        if pinned is None:
            found, refused = first_accepted_result(this, public, came, shape=shape)
            if found is None:
                return None, len(came)
            pinned = self._keep(self._path_of(this.id, stage), came[len(refused)])

        others = sum(one.public != pinned.public for one in came)
        return first_accepted_result(this, public, [pinned], shape=shape)[0], others

    def _path_of(self, round_id: str, stage: int) -> Path:
        name = hashlib.blake2b(round_id.encode(), digest_size=16).hexdigest()
        return self._folder / f"{name}-{stage}.json"

    def _keep(self, place: Path, result: StageResult) -> StageResult:
        """Make the file, whole or not at all.

        If another worker was first, its result is the one that counts.
        """
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".pin-") as file:
            file.write(result.model_dump_json().encode())
            file.flush()
            os.fsync(file.fileno())

            try:
                os.link(file.name, place)
            except FileExistsError:
                kept = self._read(place)
                assert kept is not None  # noqa: S101 - files are never removed
                return kept

        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)  # before anyone is queried
        finally:
            os.close(folder)

        return result

    @staticmethod
    def _read(place: Path) -> StageResult | None:
        try:
            return StageResult.model_validate_json(place.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise ValueError(
                f"pins must hold results of stages, got another file: {place.name}"
            ) from None
