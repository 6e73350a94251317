"""Signed heads: who has the public key knows that a ledger began like this; a forged, forked or
other one is named."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.command_line import files, meanstream, run_agents, write_samples


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """A folder with a store, a key and a head that it has signed."""
    write_samples(tmp_path / "flights.csv")
    assert run_agents(tmp_path).code == 0
    assert meanstream("secret", "new", "--signing", str(tmp_path / "signing.key")).code == 0
    ran = sign(tmp_path)
    assert (ran.code, ran.err) == (0, b"")
    return tmp_path


def sign(folder: Path, to: str = "head.json", **changes: Any) -> Any:
    store, key = (
        changes.get("store", folder / "state.db"),
        changes.get("key", folder / "signing.key"),
    )
    words = ("--store", str(store), "--signing-key", str(key), "--to", str(folder / to))
    return meanstream("ledger", "sign", *words, "--json")


def verify(
    folder: Path, *command: str, signature: str = "head.json", signer: str = "signing.key.pub"
) -> Any:
    words = command or ("ledger", "verify", "--store", str(folder / "state.db"))
    return meanstream(
        *words, "--signature", str(folder / signature), "--signer", str(folder / signer)
    )


def test_a_signed_head_is_what_the_ledger_begins_with(signed: Path) -> None:
    head = json.loads((signed / "head.json").read_text())
    found = meanstream("ledger", "verify", "--store", str(signed / "state.db"), "--json").json
    assert (head["rows"], head["head"], head["deployment"]) == (
        found["rows"],
        found["head"],
        "test",
    )
    assert verify(signed).code == 0
    audited = verify(signed, "audit", "store", str(signed / "state.db"))
    assert (
        audited.code,
        f"the first {head['rows']} match the signature" in audited.out.decode(),
    ) == (0, True)


def test_the_private_key_is_its_owners_and_in_no_output(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = tmp_path / "signing.key"
    ran = meanstream("secret", "new", str(key), "--signing", "--json")
    assert ran.json == {"signing_key": str(key), "signer": f"{key}.pub"}
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    secret = b"".join(key.read_bytes().splitlines()[1:-1])
    write_samples(tmp_path / "flights.csv")
    assert run_agents(tmp_path).code == 0
    signing = sign(tmp_path)
    key.chmod(0o644)
    again = sign(tmp_path, "2.json")
    assert "signing key can be read by others than its owner" in caplog.text
    written = b"".join(data for name, data in files(tmp_path).items() if name != key.name)
    assert (
        secret
        not in caplog.text.encode()
        + ran.out
        + ran.err
        + signing.out
        + signing.err
        + again.out
        + again.err
        + written
    )


def test_openssl_reads_both_halves(tmp_path: Path) -> None:
    """A reviewer needs no software of ours."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    key = tmp_path / "signing.key"
    meanstream("secret", "new", "--signing", str(key))
    public = subprocess.run(
        ["openssl", "pkey", "-in", key, "-pubout"], check=True, capture_output=True
    ).stdout
    assert public == Path(f"{key}.pub").read_bytes()


def test_a_head_stays_true_as_the_stream_goes_on_and_not_of_a_fork(
    signed: Path, tmp_path: Path
) -> None:
    """The fork has the same name, and other samples from the beginning."""
    for name, change in (("a", "120"), ("b", "119")):
        other = tmp_path / name
        other.mkdir()
        write_samples(other / "flights.csv")
        if name == "b":
            text = (other / "flights.csv").read_text().splitlines()
            text[1] = text[1].replace(text[1].split(",")[1], change, 1)
            (other / "flights.csv").write_text("\n".join(text) + "\n")
        assert run_agents(other).code == 0
        ran = verify(signed, "ledger", "verify", "--store", str(other / "state.db"))
        assert ran.code == (0 if name == "a" else 1), ran.err
    assert b"must have the noted head at row" in ran.err


def changing(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda head: head | values


FORGED: dict[str, tuple[Callable[[dict[str, Any]], Any], int, str]] = {
    "rows": (changing(rows=1), 1, "signature must be of the key in"),
    "head": (changing(head="00" * 32), 1, "signature must be of the key in"),
    "time": (changing(signed_at="2020-01-01T00:00:00Z"), 1, "signature must be of the key in"),
    "deployment": (changing(deployment="other"), 1, "signature must be of the key in"),
    "signature": (changing(signature="00" * 64), 1, "signature must be of the key in"),
    "short": (changing(signature="00"), 2, "got another signature in"),
    "version": (changing(version=2), 2, "got another version or rows in"),
    "true": (changing(version=True), 2, "got another version in"),
    "negative": (changing(rows=-1), 2, "got another version or rows in"),
    "text": (changing(rows="3"), 2, "got another rows in"),
    "more": (changing(note="x"), 2, "got something else in"),
    "list": (lambda _: [], 2, "got something else in"),
    "nested": (lambda _: json.loads("[" * 900 + "]" * 900), 2, "got something else in"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_head_is_one_line(what: str, signed: Path) -> None:
    change, code, said = FORGED[what]
    head = json.loads((signed / "head.json").read_text())
    (signed / "forged.json").write_text(json.dumps(change(head)))
    ran = verify(signed, signature="forged.json")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (code, b"", 1)
    assert said in ran.err.decode()


def test_a_head_of_another_deployment_or_another_signer_is_refused(
    signed: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write_samples(other / "flights.csv")
    assert run_agents(other, name="other").code == 0
    ran = verify(signed, "ledger", "verify", "--store", str(other / "state.db"))
    assert (ran.code, b"must be about deployment 'other', got one about 'test'" in ran.err) == (
        1,
        True,
    )
    meanstream("secret", "new", "--signing", str(other / "key"))
    ran = verify(signed, signer="other/key.pub")
    assert (ran.code, b"signature must be of the key in" in ran.err) == (1, True)


@pytest.mark.parametrize("file", ["signing.key", "head.json", "state.db", "none", "."])
def test_what_is_no_public_key_is_refused_and_not_shown(file: str, signed: Path) -> None:
    said = verify(signed, signer=file).message
    assert said.startswith("signer must be ")
    assert "PRIVATE" not in said


@pytest.mark.parametrize("file", ["signing.key.pub", "head.json", "state.db", "none"])
def test_what_is_no_private_key_signs_nothing(file: str, signed: Path) -> None:
    ran = sign(signed, "new.json", key=signed / file)
    assert ran.message.startswith("signing_key must be ")
    assert not (signed / "new.json").exists()


def test_nothing_that_is_there_is_written_over(signed: Path) -> None:
    before = files(signed)
    for to in ("head.json", "state.db", "signing.key", "state.db-wal", "signing.key.pub"):
        assert " must be " in sign(signed, to).message
    assert (
        " must be a new file"
        in meanstream("secret", "new", "--signing", str(signed / "signing.key")).message
    )
    (signed / "half.pub").write_text("mine")
    assert (
        "public key must be a new file"
        in meanstream("secret", "new", "--signing", str(signed / "half")).message
    )
    assert not (signed / "half").exists()
    assert {name: data for name, data in files(signed).items() if name != "half.pub"} == before


def test_half_of_the_options_is_refused(signed: Path) -> None:
    asked = ("ledger", "verify", "--store", str(signed / "state.db"))
    pair = ("--signature", str(signed / "head.json"))
    assert "signer must be given" in meanstream(*asked, *pair).message
    assert (
        "signature must be given"
        in meanstream(*asked, "--signer", str(signed / "signing.key.pub")).message
    )
    both = (*pair, "--signer", str(signed / "signing.key.pub"), "--rows", "1")
    assert "without rows and head" in meanstream(*asked, *both).message


def test_a_head_may_be_as_long_as_it_is_read_and_no_longer(signed: Path) -> None:
    text = (signed / "head.json").read_text().rstrip()
    for longer, code in ((0, 0), (1, 2)):
        (signed / "padded.json").write_text(text.ljust((1 << 16) + longer))
        ran = verify(signed, signature="padded.json")
        assert ran.code == code, ran.err
    assert "signature must be a signed head of version 1, got something else" in ran.message
