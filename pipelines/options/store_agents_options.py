"""The options of questions about the agents of a store; a run of them does not import these."""

from pathlib import Path
from typing import Annotated

from pydantic.dataclasses import dataclass

from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.base import DEFERRED
from meanstream.pipelines.options.declaration import INPUT, cli_option
from meanstream.pipelines.options.shared_options import AskedStoreOption, RegistryOption
from meanstream.pipelines.options.store_settings import OfStore


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class ExplainAgentsOptions(OfStore, AgentsOptions):
    """What `run agents` takes, and for whom it is explained."""

    store: AskedStoreOption = Path("meanstream.db")
    registry: RegistryOption = False

    def __post_init__(self) -> None:
        """Take one store of a folder of shards: all have the same settings."""
        super().__post_init__()
        from meanstream.streaming.own_paths import shard_stores

        stores = shard_stores(self.store)
        if stores:
            object.__setattr__(self, "store", stores[0])


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class ReplayOptions(OfStore, AgentsOptions):
    """The options of the run whose records were not used, and which of them to replay."""

    store: AskedStoreOption = Path("meanstream.db")
    from_: Annotated[
        str | None,
        cli_option("Dead letters to replay; default: those of --dead-letters.", INPUT, "--from"),
    ] = None
    reason: Annotated[list[str] | None, cli_option("Reason to select; may be repeated.", INPUT)] = (
        None
    )
