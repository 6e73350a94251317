"""Variables of the environment that look like options of a run and are none: told, since nothing else would show it."""

from __future__ import annotations

import logging
import os
from typing import Any, Protocol

from meanstream.pipelines.commands.run.run_logs import LOGGER, logging_to_stderr

_log = logging.getLogger(f"{LOGGER}.run")


class _Logged(Protocol):
    """Options that say how a run logs."""

    @property
    def log_format(self) -> str: ...


def tell_unknown_variables(context: Any, options: _Logged) -> None:
    """Warn of each `MEANSTREAM_*` variable that is no option of the command, naming the one that may be meant."""
    from meanstream.pipelines.options.shown import unknown_variables

    lines = unknown_variables(context, os.environ)
    if not lines:
        return
    with logging_to_stderr(options.log_format, quiet=True):
        for line in lines:
            _log.warning(line)
