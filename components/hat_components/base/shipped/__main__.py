"""`python -m hat_components.base.shipped FOLDER NAME`: ship a trained base."""

from __future__ import annotations

import sys
from pathlib import Path

from hat_components.base.shipped import make

if __name__ == "__main__":
    sys.stdout.write(make(Path(sys.argv[1]), sys.argv[2]) + "\n")
