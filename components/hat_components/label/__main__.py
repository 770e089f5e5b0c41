"""Run the label step as a process: `python -m hat_components.label`."""

from hat_components.label.config import Config
from hat_components.label.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
