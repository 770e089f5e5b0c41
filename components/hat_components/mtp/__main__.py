"""Run the mtp step as a process: `python -m hat_components.mtp`."""

from hat_components.mtp.config import Config
from hat_components.mtp.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
