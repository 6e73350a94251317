"""What the images leave out is nothing that the package imports, in this environment, which has the
same packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, sys, sysconfig
from pathlib import Path

import pytest
sys.path.insert(0, "docker")
import trim_image
trim_image.import_all()
gone = {str(path) for path in trim_image.unneeded(Path(sysconfig.get_path("purelib")))}
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
loaded |= {module.__file__ for module in [*sys.modules.values()] if getattr(module, "__file__", None)}
read = sorted(file for file in loaded if gone & {file, *map(str, Path(file).parents)})
print(json.dumps({"gone": len(gone), "loaded": len(loaded), "read": read, "modules": [*sys.modules]}))
"""


def test_nothing_is_imported_that_images_leave_out() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["read"] == []
    assert told["gone"] > 100
    assert told["loaded"] > 1500
    assert {
        "pyarrow.parquet",
        "scipy.stats",
        "confluent_kafka",
        "river.stats",
        "cryptography",
    } <= set(told["modules"])


def test_trimming_removes_its_patterns_and_nothing_else(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "docker"))
    try:
        import trim_image
    finally:
        sys.path.pop(0)
    goes = (
        "numpy/tests/test_a.py",
        "scipy/stats/tests/data/x.npz",
        "pyarrow/libarrow_flight.so.2500",
        "pyarrow/include/a.h",
    )
    stays = (
        "numpy/core.py",
        "pyarrow/libarrow.so.2500",
        "river/stats/mean.py",
        "meanstream/testing.py",
    )
    for name in (*goes, *stays):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    trim_image.trim(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(stays)


def test_an_adapter_whose_extra_is_not_there_is_left_out_and_a_defect_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docker"))
    monkeypatch.syspath_prepend(str(tmp_path))
    import trim_image

    for name, fault in (
        ("adapters", "iceberg must be installed: pip install 'meanstream[iceberg]'"),
        ("defects", "a defect"),
    ):
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "sink.py").write_text(f"raise ValueError({fault!r})\n")

    trim_image.import_all("adapters")
    with pytest.raises(ValueError, match="a defect"):
        trim_image.import_all("defects")
