"""The process of a shard, which `shards` starts: the same program, and it ends when that does."""

from __future__ import annotations

import sys


def main() -> None:
    """Run a command line behind the parent's process id, its run, and the number of shards."""
    from meanstream.pipelines.commands import program
    from meanstream.pipelines.commands.run import signals

    parent, run, shards = sys.argv[1:4]
    signals.follow_parent(int(parent), run, int(shards))
    sys.argv[1:] = sys.argv[4:]
    program.main()


if __name__ == "__main__":
    main()
