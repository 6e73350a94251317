"""The options of commands about a run: they are those of its file, or of its store, or bounds and budget."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic.dataclasses import dataclass

from meanstream.pipelines.options.agent_side import AgentSideOptions
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.base import DEFERRED
from meanstream.pipelines.options.declared import INPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption
from meanstream.pipelines.options.shared_options import BUDGET, RegistryOption
from meanstream.pipelines.options.store_settings import settings_of_agents_store

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings

THROUGH = ("agents", "engine")


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class AskedAgentSideOptions(AgentSideOptions):
    """What `run agent-side` takes, of a run that is asked about."""

    @property
    def of_store(self) -> bool:
        """Whether a store is named, and neither bounds nor a budget are given."""
        return "store" in self.said and self.said.isdisjoint(BUDGET)

    def settings(self) -> AgentsSettings:
        """Check the privacy part; or read it from the store."""
        return settings_of_agents_store(self.store) if self.of_store else super().settings()


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class AskedAgentsOptions(AgentsOptions, AskedAgentSideOptions):
    """What `run agents` takes, of a run that is asked about."""


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class ExplainAgentsOptions(AskedAgentsOptions):
    """What `run agents` takes, and for whom it is explained."""

    registry: RegistryOption = False


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class AuditTopicOptions(AskedAgentSideOptions):
    """What the makers of the releases have agreed on, and where the releases are."""

    address: Annotated[
        str | None, typer.Argument(help="Releases: kafka://HOST:PORT/TOPIC or FILE.jsonl.", metavar="ADDRESS")
    ] = None


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class AuditEngineOptions(AskedAgentsOptions):
    """What `run agents` takes, and how large the audit is; places and columns play no part."""

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
            "Number of canaries, which are planted agents; default: 100,000, or 2,000 through the engine.", INPUT
        ),
    ] = None
    kills: Annotated[
        int, cli_option("Number of kills of the engine at random points, each followed by a restart.", INPUT)
    ] = 20
    seed: Annotated[
        int | None,
        cli_option("Seed of coins, kills and the temporary secret; default: a new one each time.", INPUT),
    ] = None

    @property
    def way(self) -> str:
        """What the canaries run through."""
        chosen = self.through or ("agents" if self.config is None and not self.of_store else "engine")
        if chosen not in THROUGH:
            raise BadOption(f"through must be one of {', '.join(THROUGH)}, got {chosen!r}")
        return chosen

    def settings(self) -> AgentsSettings:
        """Check the privacy part; where nothing is said, the bounds are [0, 1], epsilon 1 and delta 1e-6."""
        if self.of_store:
            return super().settings()
        usual: dict[str, Any] = {"lower": 0.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-6}
        given = {name: value for name, value in usual.items() if getattr(self, name) is None}
        return AskedAgentsOptions.settings(replace(self, **given))


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class ReplayOptions(AskedAgentsOptions):
    """The options of the run whose records were not used, and which of them to replay."""

    from_: Annotated[
        str | None, cli_option("Dead letters to replay; default: those of --dead-letters.", INPUT, "--from")
    ] = None
    reason: Annotated[list[str] | None, cli_option("Reason to select; may be repeated.", INPUT)] = None
