"""A name has one spelling, that of Unicode's NFC, wherever one enters: two spellings would be two
owners, each with a whole budget."""

from __future__ import annotations

from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pytest

import meanstream
from meanstream.federated import SiteSettings
from meanstream.operators.validation import require_name
from meanstream.pipelines.beam.agents.agent_transforms import agent_batch
from meanstream.river import CollaborativeMean
from meanstream.streaming.sources.decode import Decoder
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.pipelines.command_line import SECRET

COMPOSED = "Ren\u00e9"
APART = normalize("NFD", COMPOSED)


def test_an_agent_and_a_person_in_another_spelling_are_counted_with_a_reason() -> None:
    raw = {
        "agent": pa.array([COMPOSED, APART, "a", "b", "c"]),
        "value": pa.array([1.0] * 5),
        "time": pa.array([1e9] * 5),
        "person": pa.array([COMPOSED, COMPOSED, COMPOSED, APART, "plain"]),
    }
    samples, rejects = Decoder(ColumnMapping(person="person")).decode(raw, np.arange(5))
    assert [samples.names[code] for code in samples.agent] == [COMPOSED, "a", "c"]
    assert list(zip(rejects.reason, rejects.position, strict=True)) == [
        ("bad_agent", 1),
        ("bad_person", 3),
    ]


def test_case_matters() -> None:
    raw = {
        "agent": pa.array(["A", "a"]),
        "value": pa.array([1.0] * 2),
        "time": pa.array([1e9] * 2),
    }
    samples, _ = Decoder(ColumnMapping()).decode(raw, np.arange(2))
    assert [samples.names[code] for code in samples.agent] == ["A", "a"]


def test_so_are_those_of_a_batch_on_beam() -> None:
    batch = agent_batch([COMPOSED, APART], [1.0, 2.0], [0.0, 0.0])
    assert [batch.names[code] for code in batch.agent] == [COMPOSED, ""]  # "": no name
    with pytest.raises(ValueError, match="persons must be in Unicode's NFC"):
        agent_batch(["a"], [1.0], [0.0], persons=[APART])


@pytest.mark.parametrize("option", ["by", "person"])
def test_a_frame_with_another_spelling_is_refused(option: str) -> None:
    names = {"by": ["a", "b"], "person": ["p", "q"]}
    names[option] = [COMPOSED, APART]
    frame = pa.table({**names, "v": [1.0, 2.0]})
    with pytest.raises(ValueError, match=f"{option} must be names in Unicode's NFC.*got 1 others"):
        meanstream.private_means(
            frame, by="by", value="v", person="person", per_person=2, lower=0, upper=9, epsilon=1,
            delta=1e-6, secret=SECRET, name="n",
        )  # fmt: skip


def test_so_is_the_name_of_a_deployment_or_of_a_site() -> None:
    require_name(COMPOSED)
    with pytest.raises(ValueError, match="in Unicode's NFC"):
        require_name(APART)
    with pytest.raises(ValueError, match="in Unicode's NFC"):
        SiteSettings(epsilon=1, delta=1e-6, releases=2, name=APART)


def test_river_takes_both_spellings_for_one_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    model = CollaborativeMean(
        lower=0, upper=10, epsilon=5, delta=1e-6, name="n", schedule="preferred:1"
    )
    for name in (COMPOSED, APART) * 20:
        model.learn_one({"agent": name}, 4.0)
    assert model.predict_one({"agent": COMPOSED}) == model.predict_one({"agent": APART})
