"""The options of commands about a run of agents.

Those of its file, or of its store, or bounds and budget.
"""

from pathlib import Path

from pydantic.dataclasses import dataclass

from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.base import DEFERRED
from meanstream.pipelines.options.shared_options import AskedStoreOption, RegistryOption
from meanstream.pipelines.options.store_settings import OfStore


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class ExplainAgentsOptions(OfStore, AgentsOptions):
    """What `run agents` takes, and for whom it is explained."""

    store: AskedStoreOption = Path("meanstream.db")
    registry: RegistryOption = False
