"""Transforms for Apache Beam: agents' private means, and a population's mean per window (extra `beam`).

``from meanstream.beam import CollaborateAgents, RunRounds``. What each releases, and to whom, is said where it is
defined: `meanstream.pipelines.agents`, `meanstream.pipelines.rounds`.
"""

from __future__ import annotations

from meanstream.pipelines.agents import *  # noqa: F403
from meanstream.pipelines.agents import __all__ as _agents
from meanstream.pipelines.rounds import *  # noqa: F403
from meanstream.pipelines.rounds import __all__ as _rounds

__all__ = sorted({*_agents, *_rounds})  # noqa: PLE0605 - the two lists, not a third
