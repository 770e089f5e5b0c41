"""Run the report step as a process: `python -m hat_components.report`."""

from hat_components.report.config import Config
from hat_components.report.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
