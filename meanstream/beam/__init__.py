"""Private means in an Apache Beam pipeline, of each agent and of a population per window (extra `beam`).

=====================  =============================================================================================
`CollaborateAgents`    samples to releases, which are public, and to each agent's own estimate
`RunRounds`            users' samples to one private mean of the population per window
`ReleaseMeans`         one party of a federation: samples to public releases and private sums
`SnapshotReleases`     all parties' releases to the population that each party learns from
`EstimateAgents`       the party's private sums and that population to private estimates
`ReportRounds`         the users' side of rounds: samples to private reports
`AnswerReports`        the statistician's side of rounds: reports to the mean
`ParseMessages`        lines, rows and messages to samples, with dead letters for the rest
`ColumnMapping`        columns or fields in which `ParseMessages` finds agent, value and time
`SampleRows`           samples to rows with a schema, for steps of your own
`ForgetAgent`          an element among the samples: erase what the state holds of an agent
`AgentsSettings`       bounds, privacy budget and schedule of agents; `RoundsSettings` those of rounds
=====================  =============================================================================================

`meanstream.pipelines.beam.agents.agent_transforms` and
`meanstream.pipelines.beam.rounds.round_transforms` say what each transform releases, and to whom.
They also have the parts, options and results of these. `meanstream.beam.rows` has transforms for
Beam YAML, Java and Go.
"""

from __future__ import annotations

from meanstream.pipelines.beam.agents.agent_transforms import (
    AgentsSettings,
    CollaborateAgents,
    ColumnMapping,
    EstimateAgents,
    ForgetAgent,
    ParseMessages,
    ReleaseMeans,
    SampleRows,
    SnapshotReleases,
)
from meanstream.pipelines.beam.rounds.round_transforms import (
    AnswerReports,
    ReportRounds,
    RoundsSettings,
    RunRounds,
)

__all__ = [
    "AgentsSettings",
    "AnswerReports",
    "CollaborateAgents",
    "ColumnMapping",
    "EstimateAgents",
    "ForgetAgent",
    "ParseMessages",
    "ReleaseMeans",
    "ReportRounds",
    "RoundsSettings",
    "RunRounds",
    "SampleRows",
    "SnapshotReleases",
]


def __dir__() -> list[str]:
    """List the public names and nothing else."""
    return [*__all__]
