"""Beam's embedded runner looks at every step anew for each bundle: in tests, where bundles are many and small, that is
half of the time. Here what it finds is kept; no test's outcome depends on it.

The states and timers of a step are found by the signatures of all its methods, often for each bundle. They are those of
its class. (What a value of state weighs is the product's own matter: pipelines/beam/state_weight.py.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


@contextmanager
def looked_at_once() -> Iterator[None]:
    """Keep what the embedded runner finds of steps; nothing is patched where Beam is not imported."""
    if "apache_beam" not in sys.modules:
        yield
        return
    from apache_beam.transforms import userstate
    from apache_beam.transforms.core import CallableWrapperDoFn
    from apache_beam.typehints.typecheck import AbstractDoFnWrapper

    look = userstate.get_dofn_specs

    found: dict[type, Any] = {}

    def specs(step: Any) -> Any:
        kind = type(step)
        if issubclass(kind, CallableWrapperDoFn | AbstractDoFnWrapper):  # what it wraps has the parameters
            return look(step)
        if kind not in found:
            found[kind] = look(step)
        return found[kind]

    with patch.object(userstate, "get_dofn_specs", specs):
        yield
