"""The secret of a deployment from Secret Manager: a numbered version, read once, never shown."""

from __future__ import annotations

import pytest

from meanstream.pipelines.beam.worker.worker_secret import SecretLocation, _from_secret_manager
from tests.pipelines.beam.support.secret_manager import secret_manager

RESOURCE = "projects/a-project/secrets/noise/versions/3"
SECRET = b"7c1e94b05fa3d2681be60c9d37f25a84"


@pytest.fixture(autouse=True)
def _forget() -> None:
    _from_secret_manager.cache_clear()


def test_a_version_is_read_once_as_a_file_is() -> None:
    with secret_manager({RESOURCE: SECRET + b"\n"}) as asked:
        assert SecretLocation(resource=RESOURCE).load() == SECRET
        assert SecretLocation(resource=RESOURCE).load() == SECRET
    assert asked == [RESOURCE]


def test_a_version_that_cannot_be_read_is_one_line_and_asked_for_again() -> None:
    with secret_manager({RESOURCE: b"short"}) as asked:
        for version, message in (
            (4, f"in Secret Manager, got '{RESOURCE[:-1]}4' .NotFound."),
            (3, "got 5 bytes in"),
        ):
            for _ in range(2):
                with pytest.raises(ValueError, match=message) as raised:
                    SecretLocation(resource=f"{RESOURCE[:-1]}{version}").load()
                assert "\n" not in str(raised.value)
                assert "short" not in str(raised.value)
    assert len(asked) == 4


@pytest.mark.parametrize("version", ["latest", "0", "03", "prod", "", "1/x"])
def test_a_version_that_may_change_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="secret must be a numbered version"):
        SecretLocation(resource=f"projects/a-project/secrets/noise/versions/{version}")
