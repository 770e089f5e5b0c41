"""Run the simulate step as a process: `python -m hat_components.simulate`."""

from hat_components.runner import main
from hat_components.simulate.config import Config
from hat_components.simulate.step import run

if __name__ == "__main__":
    main(Config, run)
