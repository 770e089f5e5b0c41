"""Run the canary step as a process: `python -m hat_components.canary`."""

from hat_components.canary.config import Config
from hat_components.canary.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
