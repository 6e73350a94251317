"""How `meanstream simulate rounds` shows what it found, of one mean or of several numbers."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from meanstream.pipelines.options.base import print_options_json


class Simulated(Protocol):
    """What a simulation has measured, with its configuration under `config`."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        ...


def print_simulated(result: Simulated, text: str, rate: float, *, as_json: bool) -> None:
    """Print as JSON, or as text for people, with the speed."""
    if as_json:
        measured = result.as_dict()
        said = measured.pop("config")
        print_options_json(measured | {"runs_per_second": rate, "config": said})
    else:
        sys.stdout.write(f"{text}{rate:.3g} runs per second\n")
