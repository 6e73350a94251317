"""The process of a shard, which `shards` starts: the same program, and it ends when that does."""

from __future__ import annotations

import sys


def main() -> None:
    """Run a command line that follows the parent's process id, run, number of shards and pipe."""
    from meanstream.pipelines.commands import program
    from meanstream.pipelines.commands.run import signals

    parent, run, shards, channel = sys.argv[1:5]
    signals.follow_parent(signals.Parent(int(parent), run, int(shards), int(channel)))
    sys.argv[1:] = sys.argv[5:]
    program.main()


if __name__ == "__main__":
    main()
