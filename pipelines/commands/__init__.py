"""The command line: the one place that wires sources, operators, stores and sinks together."""
