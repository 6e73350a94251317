"""Private means in an Apache Beam pipeline, of each agent and of a population per window (extra `beam`).

=====================  =============================================================================================
`CollaborateAgents`    samples to releases, which are public, and to each agent's own estimate
`CollaboratePairwise`  the ColME paper's test of equal means between pairs, for small federations
`RunRounds`            users' samples to one private mean of the population per window
`ReleaseMeans`         one party of a federation: samples to public releases and private sums
`SnapshotReleases`     all parties' releases to the population that each party learns from
`EstimateAgents`       the party's private sums and that population to private estimates
`ReportRounds`         the users' side of rounds: samples to private reports
`AnswerReports`        the statistician's side of rounds: reports to the mean
`ParseMessages`        lines, rows and messages to samples, with dead letters for the rest
`AgentsSettings`       bounds, privacy budget and schedule of agents; `RoundsSettings` those of rounds
=====================  =============================================================================================

The other names are the parts, settings and results of these. `meanstream.pipelines.beam.agents.agent_transforms` and
`meanstream.pipelines.beam.rounds.round_transforms` say what each transform releases, and to whom.
"""

from __future__ import annotations

from meanstream.pipelines.beam.agents.agent_transforms import *  # noqa: F403
from meanstream.pipelines.beam.agents.agent_transforms import __all__ as _agents
from meanstream.pipelines.beam.rounds.round_transforms import *  # noqa: F403
from meanstream.pipelines.beam.rounds.round_transforms import __all__ as _rounds

__all__ = sorted({*_agents, *_rounds})  # noqa: PLE0605 - the two lists, not a third
