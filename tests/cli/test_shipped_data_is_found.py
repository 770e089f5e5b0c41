"""Harnesses and profiles are found in a checkout and in an installed package, by name and by path."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatstack import paths


def test_a_checkout_has_them_where_they_are_edited() -> None:
    assert paths.profile("smoke") == paths.PACKAGE.parent / "pipelines" / "profiles" / "smoke.yaml"
    assert paths.harness("live-commerce").parent == paths.PACKAGE.parent / "harness-registry" / "harnesses"


def test_an_installed_package_has_them_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "hatstack"
    (package / "_data" / "profiles").mkdir(parents=True)
    (package / "_data" / "profiles" / "smoke.yaml").write_text("name: smoke\n")
    monkeypatch.setattr(paths, "PACKAGE", package)
    assert paths.profile("smoke") == package / "_data" / "profiles" / "smoke.yaml"
    with pytest.raises(paths.NotShippedError, match="no profile called 'micro'"):
        paths.profile("micro")


def test_a_path_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smoke").mkdir()
    monkeypatch.chdir(tmp_path)
    assert paths.harness("smoke") == Path("smoke")


def test_directories_follow_option_then_environment_then_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HATSTACK_RUNS_DIR", raising=False)
    monkeypatch.delenv("HATSTACK_CACHE_DIR", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert paths.runs_dir() == Path("runs")
    assert paths.cache_dir(Path("runs")) == Path("runs/.cache")
    monkeypatch.setenv("HATSTACK_RUNS_DIR", "elsewhere")
    assert paths.runs_dir() == Path("elsewhere")
    assert paths.runs_dir(Path("given")) == Path("given")
    assert paths.mlflow_uri(Path("runs")).startswith("sqlite:////")
    assert paths.mlflow_uri(Path("runs"), "http://here") == "http://here"
