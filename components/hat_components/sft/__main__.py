"""Run the sft step as a process: `python -m hat_components.sft`."""

from hat_components.runner import main
from hat_components.sft.config import Config
from hat_components.sft.step import run

if __name__ == "__main__":
    main(Config, run)
