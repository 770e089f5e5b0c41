"""Run the opd step as a process: `python -m hat_components.opd`."""

from hat_components.opd.config import Config
from hat_components.opd.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
