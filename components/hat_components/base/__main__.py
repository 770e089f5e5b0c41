"""Run the base step as a process: `python -m hat_components.base`."""

from hat_components.base.config import Config
from hat_components.base.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
