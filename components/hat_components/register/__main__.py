"""Run the register step as a process: `python -m hat_components.register`."""

from hat_components.register.config import Config
from hat_components.register.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
