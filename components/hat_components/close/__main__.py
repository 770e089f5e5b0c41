"""Run the close step as a process: `python -m hat_components.close`."""

from hat_components.close.config import Config
from hat_components.close.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
