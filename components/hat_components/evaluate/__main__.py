"""Run the evaluate step as a process: `python -m hat_components.evaluate`."""

from hat_components.evaluate.config import Config
from hat_components.evaluate.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
