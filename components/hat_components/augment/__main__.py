"""Run the augment step as a process: `python -m hat_components.augment`."""

from hat_components.augment.config import Config
from hat_components.augment.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
