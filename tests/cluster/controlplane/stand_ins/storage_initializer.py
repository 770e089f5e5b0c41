"""Stand-in for KServe's storage initializer: `storage_initializer.py URI FOLDER [URI FOLDER ...]`.

Copies `file://` folders; of any other URI it only notes which one was asked for, in `source.json`, so that a test can
see which model a pod was given.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Exit code 2 for a `file://` folder that does not exist."""
    for uri, folder in zip(arguments[::2], arguments[1::2], strict=True):
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        if uri.startswith("file://"):
            source = Path(uri.removeprefix("file://"))
            if not source.is_dir():
                print(f"{uri} is not a folder", file=sys.stderr)
                return 2
            shutil.copytree(source, target, dirs_exist_ok=True)
        (target / "source.json").write_text(json.dumps({"uri": uri}))
        print(f"{uri} is at {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
