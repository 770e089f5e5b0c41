"""Run the evolve step as a process: `python -m hat_components.evolve`."""

from hat_components.evolve.config import Config
from hat_components.evolve.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
