"""Digests of images come from a registry that has just given them, or not at all."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "pin_images.py"
MANIFEST = b'{"schemaVersion": 2}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("pin_images", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Registry(BaseHTTPRequestHandler):
    """Has the tag 1.0, lies about the tag 2.0, and has no other."""

    def do_GET(self) -> None:
        tag = self.path.rpartition("/")[2]
        self.send_response(200 if tag in ("1.0", "2.0") else 404)
        self.send_header("Docker-Content-Digest", DIGEST if tag == "1.0" else f"sha256:{64 * '0'}")
        self.end_headers()
        self.wfile.write(MANIFEST)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["pin_images.py", *arguments])
    return int(load().main())


def test_what_a_registry_gives_is_written_and_nothing_else(
    tmp_path: Path,
    registry: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    compose = tmp_path / "compose.yaml"
    old = f"{registry}/team/engine:1.0@sha256:{64 * 'f'}"
    compose.write_text(f"a:\n  image: {old}  # ours\nb:\n  image: meanstream-engine:0.3.0\n")
    assert run(monkeypatch, str(compose)) == 0
    assert old in compose.read_text()
    assert run(monkeypatch, str(compose), "--write") == 0
    assert compose.read_text() == (
        f"a:\n  image: {registry}/team/engine:1.0@{DIGEST}  # ours\nb:\n  image: meanstream-engine:0.3.0\n"
    )
    assert capsys.readouterr().out.splitlines() == [f"{registry}/team/engine:1.0@{DIGEST}"] * 2


@pytest.mark.parametrize("case", [("2.0", "says sha256:000"), ("3.0", "answers 404")])
def test_a_registry_that_lies_or_has_none_changes_nothing(
    tmp_path: Path,
    registry: str,
    case: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tag, said), compose = case, tmp_path / "compose.yaml"
    text = f"  image: {registry}/team/engine:1.0\n  image: {registry}/team/engine:{tag}\n"
    compose.write_text(text)
    assert run(monkeypatch, str(compose), "--write") == 1
    assert (compose.read_text(), said in capsys.readouterr().err) == (text, True)


def test_no_file_of_ours_has_a_digest_or_a_tag_that_moves() -> None:
    module = load()
    for path in (ROOT / "docker" / "compose.yaml", *sorted((ROOT / "docker").glob("*.Dockerfile"))):
        text = path.read_text()
        assert module.images_in(text), path
        assert (
            "@sha256:" not in text
        )  # none was read: no registry can be reached where this is built
        assert all(
            module.image_parts(image)[2] not in ("", "latest") for image in module.images_in(text)
        )
