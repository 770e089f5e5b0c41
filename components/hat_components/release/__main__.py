"""Run the release step as a process: `python -m hat_components.release`."""

from hat_components.release.config import Config
from hat_components.release.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
