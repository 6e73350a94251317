"""What a deployment takes from strangers unless it says otherwise, and the least epsilon.

Library and command line have it from here.
"""

MAX_AGENTS = 1_000_000
"""Agents, or users of rounds, that may ever be entered: a name that is made up costs as much memory
as an agent."""

MOST_MEMBERS = 10_000
"""Agents with --members: what leaves grows with their square."""

MAX_FUTURE = 600.0
"""Seconds that a sample's time may lie ahead of the clock: a device some hours fast moves no one's
event time."""

MAX_DEAD_LETTERS = 1_000_000
"""Rejected records that a store ever tells of one by one, some 120 bytes each; the rest are
counted."""

QUORUM = 2
"""Senders who must have reached a time before samples of others are late by it: one clock alone
decides nothing."""

LEAST_EPSILON = 1e-4
"""Of a window's round: with less the noise of a curator's sums is beyond 2**40 of their units, and a
report says next to nothing."""
