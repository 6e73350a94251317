"""Private: elements of a user's pipeline to samples, each on its own.

What is no sample goes out with its reason.

What becomes of an element depends on nothing next to it: not on its neighbors, its bundle or the
number of workers.
"""

from __future__ import annotations

import logging
import math
import time as clock
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow, GlobalWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from meanstream.operators.limits import MAX_FUTURE
from meanstream.operators.records import Bools
from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.beam_samples import BATCH, NOBODY
from meanstream.pipelines.beam.element_types.elements import (
    BadElementError,
    ElementParts,
    SampleFields,
    element_fields,
    names_in_element,
)
from meanstream.pipelines.beam.input.parse_lines import PrivacyUnit, dead_letters_of_parse
from meanstream.pipelines.beam.worker.beam_metrics import DistributionOf, metric_counter
from meanstream.pipelines.beam.worker.transform_arguments import as_kind, as_seconds
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.event_columns import (
    Rejects,
    SampleColumns,
    concatenate_columns,
    no_sample_columns,
)
from meanstream.streaming.events.times import EARLIEST, LATEST
from meanstream.streaming.rounds.summarize_users import valid_values
from meanstream.streaming.sources.decode import Decoder
from meanstream.streaming.sources.mapping import CATEGORY, ColumnMapping
from meanstream.streaming.store.secret_source import key_derived_from_secret

REJECTED = "rejected"
"""The output of what was no sample."""

LOG = logging.getLogger(__name__)

SHOWN_NAMES = 20
"""Names of fields that a warning has room for."""

SOURCE = "samples"
"""What a dead letter calls the PCollection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleIntake:
    """How elements become samples; travels with the pipeline.

    Attributes
    ----------
    fields : SampleFields
        Where the parts of a sample are.
    tuples : bool
        Whether plain tuples are samples.
    coordinates : int
        Of a vector; 0 where a value is one number.
    categories : tuple of str, optional
        Declared ones: a value is a text, and in a batch the number of its category.
    secret : SecretLocation
        Where the secret is that keys the hash of ids; read only where there are any.
    max_future : float
        Seconds that a sample may lie ahead of the worker's clock.
    persons : bool
        Whether every sample must say whose it is.
    privacy_unit : str
        "sample" for agents, "user" for rounds, whose figures and dead letters are the operator's.
    """

    fields: SampleFields
    tuples: bool
    coordinates: int
    secret: SecretLocation
    max_future: float
    persons: bool = False
    categories: tuple[str, ...] | None = None
    privacy_unit: PrivacyUnit = "sample"

    @classmethod
    def of(
        cls,
        fields: SampleFields,
        default: SampleFields,
        *,
        secret: SecretLocation | None,
        max_future: float | None,
        coordinates: int = 0,
        categories: tuple[str, ...] | None = None,
        privacy_unit: PrivacyUnit = "sample",
    ) -> SampleIntake:
        """Take what a transform was given.

        Without a time of one's own, the engine's `max_future`.
        """
        # The default reads tuples and names; other fields make functions of each element.
        limit = MAX_FUTURE if max_future is None else as_seconds("max_future", max_future)
        require(limit >= 0, "max_future", "be at least 0", limit)
        return cls(
            fields=fields,
            tuples=fields == default,
            coordinates=coordinates,
            categories=categories,
            secret=SecretLocation()
            if secret is None
            else as_kind("secret", secret, SecretLocation),
            max_future=limit,
            privacy_unit=privacy_unit,
        )

    def taking(self, pcoll: beam.PCollection, *, owner: str) -> SampleIntake:
        """Hold it to the PCollection of samples: its window, and its schema, if it has one."""
        # Windows are our own: an element that is windowed already would be answered twice.
        window_fn = pcoll.windowing.windowfn
        require(
            isinstance(window_fn, GlobalWindows),
            "samples",
            "be in the global window",
            type(window_fn).__name__,
        )

        # With a schema names are checked where the pipeline is built.
        names = None if _is_batch(pcoll.element_type) else element_fields(pcoll.element_type)

        if names is None:
            return self
        require(
            not self.persons or self.fields.person is not None,
            "person",
            "be given with per_person",
            None,
        )

        return replace(self, fields=self.fields.named(names, owner=owner), tuples=False)


def _is_batch(element_type: Any) -> bool:
    """Say whether elements are batches of samples."""
    return isinstance(element_type, type) and issubclass(element_type, SampleColumns)


class SampleReader:
    """Private: collects elements of a bundle, single or in batches, and turns them to columns, many at a time.

    Parameters
    ----------
    intake : SampleIntake
    """

    def __init__(self, intake: SampleIntake) -> None:
        self._intake = intake
        self._parts = ElementParts(
            intake.fields,
            coordinates=intake.coordinates,
            categories=intake.categories is not None,
            tuples=intake.tuples,
            private_values=intake.privacy_unit == "user",
            # Ids are hashed under the key, and nowhere kept as they are.
        )

        self._id_key = (
            b""
            if intake.fields.id is None
            else key_derived_from_secret(intake.secret.load(), "sample ids")
        )
        self._private = intake.privacy_unit == "user"
        self._samples = metric_counter("samples", private=self._private)
        self._together = DistributionOf("batch_samples", private=self._private)
        self._has_begun = False
        self._looked: tuple[list[str], int, int | None] = [], 0, None
        self.start()

    def start(self) -> None:
        """Begin a bundle."""
        self._rows: list[tuple[Any, int]] = []
        self._batches: list[SampleColumns] = []
        self._waiting = 0
        self.first: Timestamp | None = None

    def add(self, element: Any, time: Timestamp) -> bool:
        """Take an element; say whether there are that many that they should be read now."""
        if self.first is None or time.micros < self.first.micros:
            self.first = time

        if isinstance(element, SampleColumns):
            self._batches.append(element)
            self._waiting += len(element)
        else:
            self._rows.append((element, time.micros))
            self._waiting += 1

        return self._waiting >= BATCH

    def read(self) -> tuple[list[SampleColumns], Rejects]:
        """Give the samples, in parts that may have directories of their own, and the rest.

        Begin again.
        """
        # A bundle is read whole, so that columns are checked and not elements.
        rows = self._rows
        batches = self._batches
        waiting = self._waiting
        self.start()
        rejects = Rejects()
        parts = []
        latest = clock.time() + self._intake.max_future

        for batch in [*self._joined(batches), *([self._columns(rows, rejects)] if rows else [])]:
            if not len(batch):
                continue
            good = self._good(batch, latest, rejects)
            if len(good):
                parts.append(good)

        if waiting:
            self._samples.inc(waiting)
            self._together.update(waiting)

        # Said once: a pipeline with wrong names would reject everything in silence.
        if waiting and not self._has_begun:
            self._has_begun = True
            if not parts and len(rows) > 1:
                LOG.warning("%s", _rejected_whole([element for element, _ in rows], rejects))

        for reason, count in Counter(rejects.reason).items():
            metric_counter("rejected_", reason, private=self._private).inc(count)

        return parts, rejects

    def _joined(self, batches: list[SampleColumns]) -> Iterator[SampleColumns]:
        """Join batches that share a directory of names.

        A check of many samples costs as much as one of few.

        One that is not whole is left alone, and so are then those beside it.
        """
        # Batches that share names are joined; what does not belong together is checked alone.
        of = self._intake.coordinates
        for _, alike in groupby(
            batches, key=lambda one: (id(one.names), one.key is None, one.person is None)
        ):
            parts = list(alike)
            whole = (
                concatenate_columns(parts)
                if all(_belongs_together(part, of) for part in parts)
                else None
            )
            yield from parts if whole is None or not _is_whole(whole, of) else [whole]

    def _columns(self, rows: list[tuple[Any, int]], rejects: Rejects) -> SampleColumns:
        """Take single elements apart, then check their parts a column at a time, as the engine does."""
        found: list[list[Any]] = []
        faults: list[str] = []
        for element, stamp in rows:  # they are of any type: there is no column of them before this
            try:
                found.append(self._parts.of(element, stamp))
                faults.append(self._parts.fault)
            except BadElementError as bad:
                rejects.add(str(bad), 0)

        n = self._intake.coordinates
        fields = self._intake.fields

        # A mapping for the decoder, which checks values as the engine does.
        mapping = ColumnMapping(
            values=tuple(map(str, range(n))) if n else None,
            categories=self._intake.categories,
            id=None if fields.id is None else "id",
            person=None if fields.person is None else "person",
            time_unit="s",
            owner="user" if self._private else "agent",
        )

        # Nothing could be read: an empty batch with the right columns.
        if not found:
            return no_sample_columns(keyed=mapping.id is not None)
        names = [*mapping.required, *mapping.optional]
        kinds = dict.fromkeys(("agent", "id", "person", CATEGORY), pa.binary())
        raw = {
            name: pa.array(
                [row[place] for row in found], kinds.get(name, pa.float64()), from_pandas=False
            )
            for place, name in enumerate(names)
        }

        samples, bad_rows = Decoder(mapping, id_key=self._id_key).decode(raw, np.arange(len(found)))
        for reason, row in zip(bad_rows.reason, bad_rows.position, strict=True):
            rejects.add(faults[row] or reason, 0)

        return replace(samples, position=np.zeros(len(samples), np.int64))

    def _good(self, batch: SampleColumns, latest: float, rejects: Rejects) -> SampleColumns:
        """Check what a batch says; and of any sample that it does not lie too far ahead."""
        # A batch is from outside, too: columns of other lengths would mix samples.
        if not _is_whole(batch, self._intake.coordinates):
            rejects.add_many("malformed", np.zeros(len(batch.agent), np.int64))
            return batch.take(slice(0))

        if self._intake.persons and batch.person is None:
            rejects.add_many("missing_person", batch.position)
            return batch.take(slice(0))

        time = batch.time
        finite = np.isfinite(batch.value)
        faults: list[tuple[str, Bools]] = []
        nobody = self._nobody(batch.names)

        # One fault a sample, in the order in which they are named.
        if nobody is not None:
            faults.append(("bad_agent", np.asarray(batch.agent == nobody)))

        if len(time) and not (
            time.min() >= EARLIEST and time.max() < min(LATEST, latest)
        ):  # false if one is NaN
            plausible = (time >= EARLIEST) & (time < LATEST)
            faults += [("bad_time", ~plausible), ("in_future", time > latest)]

        content: list[tuple[str, Bools]] = []
        if not finite.all():
            content.append(
                ("not_finite", np.asarray(~(finite.all(axis=1) if finite.ndim == 2 else finite)))
            )

        if self._intake.categories is not None:
            known = np.isin(batch.value, np.arange(len(self._intake.categories)))
            content += [] if known.all() else [("unknown_category", np.asarray(~known))]

        good = np.ones(len(batch), np.bool_)

        # In rounds a bad value counts for its user; among agents it counts for nobody.
        if not self._private:
            faults += content
            content = []

        for reason, which in faults:  # each sample for its first one
            rejects.add_many(reason, batch.position[which & good])
            good &= ~which

        if content:
            batch = self._without_values(batch, content, good, rejects)

        if good.all():
            return batch
        return batch.take(good)

    @staticmethod
    def _without_values(
        batch: SampleColumns, content: list[tuple[str, Bools]], good: Bools, rejects: Rejects
    ) -> SampleColumns:
        """Note values of rounds that are none; their samples stay, and say that a user takes part.

        A NaN stands for one that was noted by who read it.
        """
        value = batch.value.copy()
        valid = valid_values(value)
        for reason, which in content:
            rejects.add_many(reason, batch.position[which & good & valid])
            valid &= ~which

        value[~valid] = math.nan
        return replace(batch, value=value)

    def _nobody(self, names: list[str]) -> int | None:
        """Find the number of no name.

        Of a directory that batches share, only what is new is looked through.
        """
        # Looked for in new names only: directories grow.
        known, seen, found = self._looked
        if names is not known or len(names) < seen:
            seen = 0
            found = None

        if found is None and len(names) > seen:
            new = names[seen:]
            found = seen + new.index(NOBODY) if NOBODY in new else None

        self._looked = names, len(names), found
        return found


def _rejected_whole(elements: list[Any], rejects: Rejects) -> str:
    """Warning that a first bundle has no sample: its reasons, and names to choose from.

    Notes
    -----
    **Privacy.** The logs of workers may be anyone's. A name is shown if all elements have it and a
    program could be written with it: it belongs to the form of the data, and no value is shown.
    """
    # Names of fields are shown, never values.
    counts = Counter(rejects.reason)
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in counts.most_common())
    said = f"no element of the first {len(elements):,} is a sample ({reasons})"
    shared = sorted(frozenset.intersection(*map(names_in_element, elements)))[:SHOWN_NAMES]

    if not shared:
        return (
            f"{said}: fields=SampleFields(agent=..., value=..., time=...) says where its parts are"
        )

    names = ", ".join(map(repr, shared))

    return (
        f"{said}: elements have {names}; name them with fields=SampleFields(agent=..., value=...)"
    )


def _is_whole(batch: SampleColumns, coordinates: int) -> bool:
    """Say whether the columns of a batch belong together, and are samples of the kind that is requested."""
    n = len(batch.agent)
    if not _belongs_together(batch, coordinates):
        return False
    return not n or bool(batch.agent.min() >= 0 and batch.agent.max() < len(batch.names))


def _belongs_together(batch: SampleColumns, coordinates: int) -> bool:
    """Say whether the columns of a batch are of one length, and values have so many coordinates."""
    n = len(batch.agent)
    shape = (n, coordinates) if coordinates else (n,)
    if batch.value.shape != shape or len(batch.time) != n or len(batch.position) != n:
        return False

    ids_fit = batch.key is None or len(batch.key) == n
    return ids_fit and (batch.person is None or len(batch.person) == n)


def intake_rejected(
    rejects: Rejects, time: Timestamp, privacy_unit: PrivacyUnit
) -> Iterator[TaggedOutput]:
    """Redacted: what was no sample and why, at the earliest time of its bundle."""
    for letter in dead_letters_of_parse(rejects, SOURCE, privacy_unit):
        yield TaggedOutput(REJECTED, TimestampedValue(letter, time))


def intake_in_global_window(out: Any) -> Any:
    """Give what a step puts out at the end of a bundle, tagged or not, the window that it is in."""
    tagged = isinstance(out, TaggedOutput)
    stamped = out.value if tagged else out
    value = WindowedValue(stamped.value, stamped.timestamp, (GlobalWindow(),))

    if tagged:
        return TaggedOutput(out.tag, value)
    return value
