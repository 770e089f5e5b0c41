"""Run the collect step as a process: `python -m hat_components.collect`."""

from hat_components.collect.config import Config
from hat_components.collect.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
