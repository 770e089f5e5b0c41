"""Run the rl step as a process: `python -m hat_components.rl`."""

from hat_components.rl.config import Config
from hat_components.rl.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
