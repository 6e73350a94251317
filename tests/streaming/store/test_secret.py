"""Keys of the noise: 128 random bits by construction, or one line; what others may read is a
warning."""

from __future__ import annotations

import base64
import logging
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.noise.key_strength import _repeats, key_weakness
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.streaming.store.secret_source import (
    is_named_secret,
    load_secret,
    make_secret,
    noise_from_secret,
    read_secret,
)

WEAK = {
    "nothing": b"",
    "blanks": b" " * 32,
    "zeros": b"0" * 32,
    "NULs": bytes(32),
    "short": b"9b1f6c04d2a85e7",
    "hexadecimal digits of 64 bits": b"9b1f6c04d2a85e73",
    "the same twice": b"9b1f6c04d2a85e739b1f6c04d2a85e73",
    "digits in a row": b"00112233445566778899aabbccddeeff",
    "bytes in a row": bytes(range(1, 33)),
    "a phrase": b"correct horse battery staple, and more of it",
    "a phrase without blanks": b"CorrectHorseBatteryStaple",
    "a phrase of another language": "schöne grüße überall, dem Herzen nah".encode(),
    "a phrase with a tab": b"correct\thorse battery staple",
    "a phrase on two lines": b"correct horse\nbattery staple",
    "a phrase behind a mark of UTF-8": b"\xef\xbb\xbfcorrect horse battery staple",
    "a phrase in UTF-16": "correct horse battery staple".encode("utf-16"),
    "a phrase in Latin-1": "schöne grüße überall, dem Herzen nah".encode("latin-1"),
    "a file of data": b"agent,value,time\nann,1.5,100\nbob,2.5,101\n",
    "of a README": b"keep this secret, always, and not in a program",
}
STRONG = {
    "made here": np.random.default_rng(8).bytes(32).hex().encode(),
    "128 bits": b"9b1f6c04d2a85e73bb40c9f1e6a7250d",
    "base 64": base64.b64encode(
        bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d1f0c3389ae5542cd70b6e41c88d7f29a")
    ),
    "bytes": bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a72577"),
}


@pytest.mark.parametrize("key", WEAK.values(), ids=WEAK)
def test_a_weak_key_is_one_line_from_everywhere(key: bytes, tmp_path: Path) -> None:
    place = tmp_path / "weak"
    place.write_bytes(key)
    store = tmp_path / "s.db"
    environments = [{"MEANSTREAM_SECRET_FILE": str(place)}]
    if b"\x00" not in key:  # which no variable can hold
        environments.append({"MEANSTREAM_SECRET": os.fsdecode(key)})
    for environment in environments:
        with pytest.raises(
            ValueError, match=r"^secret must be 128 random bits or more .*, got .* in \S+$"
        ) as refused:
            load_secret(store, environment=environment)
        assert "\n" not in str(refused.value)
        assert not key.strip() or key.decode("latin-1").strip() not in str(refused.value)
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("key", STRONG.values(), ids=STRONG)
def test_a_strong_key_of_before_goes_on(key: bytes, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(key + b"\n")
    assert (
        load_secret(
            tmp_path / "s.db", environment={"MEANSTREAM_SECRET_FILE": str(tmp_path / "key")}
        )
        == key
    )


def test_an_empty_variable_names_a_secret_and_makes_none(tmp_path: Path) -> None:
    for name in ("MEANSTREAM_SECRET", "MEANSTREAM_SECRET_FILE"):
        assert is_named_secret({name: ""})
        with pytest.raises(ValueError, match=f"got an empty (one in )?{name}"):
            load_secret(tmp_path / "s.db", environment={name: ""})
    assert not list(tmp_path.iterdir())


def test_random_keys_are_hardly_ever_refused() -> None:
    # 2,000 keys of each form, the same ones each time. Of 16 bytes 2e-4 look like text, .4 of these
    # keys.
    drawn = np.random.default_rng(1)
    assert all(key_weakness(drawn.bytes(16).hex().encode()) is None for _ in range(2000))
    assert all(key_weakness(drawn.bytes(32)) is None for _ in range(2000))
    assert sum(key_weakness(drawn.bytes(16)) is not None for _ in range(2000)) <= 7


def test_a_key_that_others_may_read_is_a_warning_with_the_mode(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_secret(tmp_path / "key")
    with caplog.at_level(logging.WARNING, "meanstream"):
        read_secret(tmp_path / "key")
        assert not caplog.records
        (tmp_path / "key").chmod(0o644)
        read_secret(tmp_path / "key")
    (record,) = caplog.records
    assert (record.getMessage(), vars(record)["mode"]) == (
        "secret can be read by others than its owner",
        "0644",
    )


def test_a_new_key_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("key", "link", "none/key"):
        with pytest.raises(ValueError, match="secret must be"):
            make_secret(tmp_path / name)
    assert (tmp_path / "key").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "key", [*WEAK.values(), b"correct horse b."], ids=[*WEAK, "a phrase of 16 bytes"]
)
def test_the_library_refuses_what_cannot_be_random(key: bytes) -> None:
    with pytest.raises(
        ValueError, match=r"^secret must be 128 random bits or more .*, got [^\n]*$"
    ) as refused:
        KeyedNoise(key, deployment="test", purpose="test")
    assert not key.strip() or key.decode("latin-1") not in str(refused.value)


def test_the_library_takes_bytes_only() -> None:
    text: Any = "9b1f6c04d2a85e73bb40c9f1e6a7250d"
    with pytest.raises(ValueError, match="got str, not bytes"):
        KeyedNoise(text, deployment="test", purpose="test")


@pytest.mark.parametrize("key", STRONG.values(), ids=STRONG)
def test_the_library_takes_what_a_file_may_hold(key: bytes) -> None:
    assert KeyedNoise(key, deployment="test", purpose="test").purpose == "test"


def test_a_derived_key_is_not_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 32 random bytes one in ten million looks like text: a settings' own key must not be
    refused for that."""
    noise = KeyedNoise(STRONG["128 bits"], deployment="test", purpose="agents")
    monkeypatch.setattr("meanstream.operators.noise.keyed.require_strong_key", _nobody)
    assert noise.derived("agents", {"epsilon": 1.0}).deployment == "test"
    assert noise_from_secret(STRONG["128 bits"], "test").deployment == "test"


def _nobody(*_: object) -> None:
    raise AssertionError


def test_a_file_may_be_as_long_as_is_said_and_no_longer(tmp_path: Path) -> None:
    most, path = 1 << 20, tmp_path / "key"
    drawn = np.random.default_rng(9)
    path.write_bytes(
        b"x" + drawn.bytes(most - 2) + b"x"
    )  # blanks and a line's end would be no part of it
    path.chmod(0o600)
    assert len(read_secret(path)) == most
    path.write_bytes(drawn.bytes(most + 1))
    with pytest.raises(ValueError, match=f"secret must be at most {most} bytes, got more"):
        read_secret(path)


def test_a_repetition_is_found_whatever_its_length_and_at_once() -> None:
    """By the definition, over short words of two letters; and of a mebibyte, in no time."""

    def repeats(key: bytes) -> bool:
        return any(key[period:] == key[:-period] for period in range(1, len(key) // 2 + 1))

    rng = random.Random(1)  # noqa: S311 - words of a test
    words = [bytes(rng.choices(b"ab", k=rng.randint(2, 14))) for _ in range(3000)]
    words += [(word * 5)[: rng.randint(len(word) + 1, 4 * len(word))] for word in words]
    assert [_repeats(word) for word in words] == [repeats(word) for word in words]
    assert 500 < sum(map(repeats, words)) < 5500
    assert not _repeats(b"a" * (1 << 20) + b"b")
