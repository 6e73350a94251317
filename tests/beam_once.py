"""Beam looks again and again at what does not change; in tests, where pipelines are small, that is most of the time.
Here it looks once, and leaves nothing behind. No test's outcome depends on it.

- The embedded runner finds the states and timers of a step, and the parameters of its methods, by their signatures,
  often for each bundle. They are those of its class. (What a value of state weighs is the product's
  own matter: pipelines/beam/keyed_state/beam_state.py.)
- A pipeline makes a temporary folder that only its run removes, and a test may build one that never runs.
- Each view of a pipeline's options builds a parser of the command line, some 400 for one pipeline. What it finds
  depends on the class of the view and on the flags.
"""

from __future__ import annotations

import shutil
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any
from unittest.mock import patch


@contextmanager
def looked_at_once() -> Iterator[None]:
    """Keep what Beam finds of steps and of flags; nothing is patched where Beam is not imported."""
    if "apache_beam" not in sys.modules:
        yield
        return
    from apache_beam import Pipeline
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.transforms import core, userstate

    with (
        patch.object(Pipeline, "__init__", without_a_folder_left(Pipeline.__init__)),
        patch.object(
            core, "get_function_arguments", arguments_by_class(core.get_function_arguments)
        ),
        patch.object(userstate, "get_dofn_specs", specs_by_class(userstate.get_dofn_specs)),
        patch.object(PipelineOptions, "view_as", views_by_flags(PipelineOptions.view_as)),
    ):
        yield


def without_a_folder_left(init: Any) -> Any:
    """Remove a pipeline's temporary folder with the pipeline."""

    def make(self: Any, *given: Any, **named: Any) -> None:
        init(self, *given, **named)
        weakref.finalize(self, shutil.rmtree, self.local_tempdir, ignore_errors=True)

    return make


def specs_by_class(look: Any) -> Any:
    """Look at one step of each class."""
    from apache_beam.transforms.core import CallableWrapperDoFn
    from apache_beam.typehints.typecheck import AbstractDoFnWrapper

    found: dict[type, Any] = {}

    def specs(step: Any) -> Any:
        kind = type(step)
        if issubclass(
            kind, CallableWrapperDoFn | AbstractDoFnWrapper
        ):  # what it wraps has the parameters
            return look(step)
        if kind not in found:
            found[kind] = look(step)
        return found[kind]

    return specs


def arguments_by_class(look: Any) -> Any:
    """Look at each method of one step of each class."""
    from apache_beam.typehints.typecheck import AbstractDoFnWrapper

    found: dict[tuple[type, str], tuple[list[str], list[Any]]] = {}

    def arguments(step: Any, method: str) -> tuple[list[str], list[Any]]:
        # A step of its own parameters, or a wrapper, whose timers have those of the step inside.
        own = hasattr(step, f"_inspect_{method}") or method in vars(step)
        if own or isinstance(step, AbstractDoFnWrapper):
            return look(step, method)  # type: ignore[no-any-return]
        key = type(step), method
        if key not in found:
            found[key] = look(step, method)
        names, defaults = found[key]
        return list(names), list(defaults)

    return arguments


def views_by_flags(view_as: Any) -> Any:
    """Parse the flags once for each class."""
    parsed: dict[tuple[type, tuple[str, ...]], Any] = {}

    def view(self: Any, cls: type) -> Any:
        if self._flags is None:  # those of the process
            return view_as(self, cls)
        key = cls, tuple(self._flags)
        if key not in parsed:
            parsed[key] = deepcopy(cls(self._flags)._visible_options)  # type: ignore[call-arg,attr-defined]
        made: Any = object.__new__(cls)
        made._flags, made._visible_options, made._all_options = (
            self._flags,
            deepcopy(parsed[key]),
            self._all_options,
        )
        for name in made._visible_option_list():
            self._all_options.setdefault(name, getattr(made._visible_options, name))
        return made

    return view
