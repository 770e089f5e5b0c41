"""Items for evolution and for its check, and one finished evolution of the scripted policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hat_components.evolve.config import Config, ExpertPolicy
from hat_components.evolve.faults import read_faults
from hat_components.evolve.result import Evolution, load_evolution
from hat_components.evolve.step import run
from hat_components.simulate.config import Config as SimulateConfig
from hat_components.simulate.step import run as simulate
from hat_components.step import NullProgress

HARNESSES = Path(__file__).resolve().parents[2] / "harness-registry" / "harnesses"
SHIPPED = ("evolution-1", "evolution-2", "evolution-3", "evolution-4")
HEEDING = ExpertPolicy(name="heeding", faults=read_faults("heeding"))
IGNORING = ExpertPolicy(name="ignoring", faults=read_faults("ignoring"))


MIX = {
    "product_qa": 30, "chat": 20, "clarification": 14, "aftersale": 8, "discount": 8, "order": 6, "faq": 5, "refusal": 6,
    "batch": 2, "greet": 1,
}  # fmt: skip
"""The traffic's mix with more of what is rare in it, so that few items show everything."""


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """items_evolve, items_test, items_dev and items_calibration."""
    out = tmp_path_factory.mktemp("data")
    config = SimulateConfig(train=1, dev=4, test=24, evolve=40, calibration=4, settings={"mix": MIX})
    simulate(config, {}, out, NullProgress())
    return out


@pytest.fixture(scope="session")
def inputs(data: Path) -> dict[str, Path]:
    """Base, the shipped candidates, development and held-out items."""
    return {
        "harness": HARNESSES / "live-commerce",
        "items": data / "items_evolve",
        "held_out": data / "items_test",
        **{f"candidate-{name}": HARNESSES / name for name in SHIPPED},
    }


@pytest.fixture(scope="session")
def evolved(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished evolution with both scripted policies, every candidate tried."""
    out = tmp_path_factory.mktemp("evolved") / "run"
    run(Config(policies=(HEEDING, IGNORING), patience=0, draws=500), inputs, out, NullProgress())
    return out


@pytest.fixture(scope="session")
def evolution(evolved: Path) -> Evolution:
    return load_evolution(evolved)


@pytest.fixture
def evolve(tmp_path: Path) -> Callable[..., Evolution]:
    """Run an evolution and read it."""
    made: list[Path] = []

    def go(inputs: dict[str, Path], progress: Any = None, **config: Any) -> Evolution:
        out = tmp_path / f"out{len(made)}"
        made.append(out)
        fields = {"policies": (HEEDING,), "draws": 200, "traces": False, **config}
        run(Config.model_validate(fields), inputs, out, progress or NullProgress())
        return load_evolution(out)

    return go
