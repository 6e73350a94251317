"""The options of `audit engine` and `audit topic`: those of a run, and what is audited of it."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic.dataclasses import dataclass

from meanstream.pipelines.options.agent_side import AgentSideOptions
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.base import DEFERRED
from meanstream.pipelines.options.declaration import INPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption
from meanstream.pipelines.options.shared_options import AskedStoreOption
from meanstream.pipelines.options.store_settings import OfStore

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings

THROUGH = ("agents", "engine")


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class AuditEngineOptions(OfStore, AgentsOptions):
    """What `run agents` takes, and how large the audit is; places and columns play no part."""

    store: AskedStoreOption = Path("meanstream.db")
    through: Annotated[
        str | None,
        cli_option(
            "Part to audit: agents (the code that makes releases) | engine (all of it; default with --config or "
            "--store).",
            INPUT,
        ),
    ] = None
    canaries: Annotated[
        int | None,
        cli_option(
            "Number of canaries, which are planted agents; default: 100,000, or 2,000 through the engine.",
            INPUT,
        ),
    ] = None
    kills: Annotated[
        int,
        cli_option(
            "Number of kills of the engine at random points, each followed by a restart.", INPUT
        ),
    ] = 20
    seed: Annotated[
        int | None,
        cli_option(
            "Seed of coins, kills and the temporary secret; default: a new one each time.", INPUT
        ),
    ] = None

    @property
    def way(self) -> str:
        """What the canaries run through."""
        chosen = self.through or (
            "agents" if self.config is None and not self.of_store else "engine"
        )
        if chosen not in THROUGH:
            raise BadOption(f"through must be one of {', '.join(THROUGH)}, got {chosen!r}")

        return chosen

    def settings(self) -> "AgentsSettings":
        """Check the privacy part.

        Where nothing is said, the bounds are [0, 1], epsilon 1 and delta 1e-6.
        """
        if self.of_store:
            return super().settings()
        usual: dict[str, Any] = {"lower": 0.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-6}
        if self.odds is not None:
            del usual["epsilon"]

        missing = {name: value for name, value in usual.items() if getattr(self, name) is None}

        return AgentsOptions.settings(replace(self, **missing))


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class AuditTopicOptions(OfStore, AgentSideOptions):
    """What the makers of the releases have agreed on, and where the releases are."""

    store: AskedStoreOption = Path("meanstream.db")
    address: Annotated[
        str | None,
        typer.Argument(help="Releases: kafka://HOST:PORT/TOPIC or FILE.jsonl.", metavar="ADDRESS"),
    ] = None
