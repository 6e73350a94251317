"""The options of `audit topic`: the promise of a run whose releases are read."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic.dataclasses import dataclass

from meanstream.pipelines.options.agent_side import AgentSideOptions
from meanstream.pipelines.options.base import DEFERRED
from meanstream.pipelines.options.shared_options import AskedStoreOption
from meanstream.pipelines.options.store_settings import OfStore


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class AuditTopicOptions(OfStore, AgentSideOptions):
    """What the makers of the releases have agreed on, and where the releases are."""

    store: AskedStoreOption = Path("meanstream.db")
    address: Annotated[
        str | None,
        typer.Argument(help="Releases: kafka://HOST:PORT/TOPIC or FILE.jsonl.", metavar="ADDRESS"),
    ] = None
