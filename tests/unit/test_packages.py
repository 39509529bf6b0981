"""How a package that is missing gets here: a command that fits the installation of Python."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest

from markerjit.errors import Unsupported
from markerjit.printable.packages import how_to_get


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a Python that is no environment, and which nobody manages."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/py")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    return tmp_path


def test_the_command_fits_the_installation(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = "/py -m pip install textual, or the extra: /py -m pip install 'markerjit[watch]'"
    assert how_to_get("textual", "watch") == alone
    (prefix / "EXTERNALLY-MANAGED").touch()
    assert how_to_get("textual", "watch").endswith("ENV/bin/pip install 'markerjit[watch]'")
    assert how_to_get("numpy") == "apt-get install python3-numpy"
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert how_to_get("textual").endswith("/bin/pip install textual")
    (prefix / "pipx_metadata.json").touch()
    assert how_to_get("textual", "watch") == "pipx inject markerjit 'markerjit[watch]'"


def test_otlp_names_the_package_that_brings_all_that_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from markerjit.export.otlp import Otlp

    exporter = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
    monkeypatch.setitem(sys.modules, exporter, None)

    with pytest.raises(Unsupported, match=r"--otlp needs opentelemetry-exporter-otlp-proto-http: "):
        Otlp("http://127.0.0.1:4318")
