"""Run the gate step as a process: `python -m hat_components.gate`."""

from hat_components.gate.config import Config
from hat_components.gate.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
