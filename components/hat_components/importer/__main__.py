"""Run the import step as a process: `python -m hat_components.importer`."""

from hat_components.importer.config import Config
from hat_components.importer.step import run
from hat_components.runner import main

if __name__ == "__main__":
    main(Config, run)
