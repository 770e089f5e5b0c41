"""Run the judge step as a process: `python -m hat_components.judge`."""

from hat_components.judge.config import Config
from hat_components.judge.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
