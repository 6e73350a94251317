"""`meanstream store move`: a partition with its agents, their sums and budgets, from one store to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from meanstream.pipelines.options.base import JsonOption
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, PRIVACY, cli_option


def move(
    *,
    from_: Annotated[Path, cli_option("Store that reads the partition now.", INPUT, "--from")],
    to: Annotated[
        Path, cli_option("Store of the same deployment; created if it is missing.", OUTPUT)
    ],
    partition: Annotated[int, cli_option("Partition of the topic.", INPUT, min=0)],
    secret_file: Annotated[
        Path | None, cli_option("Key of both stores; default: the file next to them.", PRIVACY)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Move a partition with its agents to another store; stop both engines first.

    Moves the agents whose newest sample came from the partition, with their sums, waiting samples, ledger rows and
    indexes of noise. Start the engines with other `partitions=` afterwards. If the command is killed, run it or an
    engine again.

    \b
    Example:
      meanstream store move --from a.db --to b.db --partition 1
      # then: --store a.db --source '...?partitions=0' and --store b.db --source '...?partitions=1'
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.state.partition_moves import move_agents_of_partition

    move_agents_of_partition(
        from_=from_, to=to, partition=partition, secret_file=secret_file, as_json=as_json
    )
