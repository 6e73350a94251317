"""The options of commands about a run of rounds.

They are those of its file, or of its store, or bounds and epsilon.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic.dataclasses import dataclass

from meanstream.pipelines.options.base import DEFERRED
from meanstream.pipelines.options.rounds_options import RoundsOptions
from meanstream.pipelines.options.shared_options import AskedStoreOption, RegistryOption
from meanstream.pipelines.options.store_settings import settings_of_rounds_store

if TYPE_CHECKING:
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings

AGREED = ("lower", "upper", "epsilon", "window")


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class ExplainRoundsOptions(RoundsOptions):
    """What `run rounds` takes, and for whom it is explained."""

    store: AskedStoreOption = Path("meanstream-rounds.db")
    registry: RegistryOption = False

    def settings(self) -> "RoundsSettings":
        """Check what the parties agree on.

        Or read it from the store, and explain it for the users that are given.
        """
        if "store" not in self.said or not self.said.isdisjoint(AGREED):
            return super().settings()
        kept = settings_of_rounds_store(self.store)

        if self.users is None:
            return kept
        return replace(kept, users=self.users)
