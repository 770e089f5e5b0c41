"""Stands in for SGLang's CUDA kernels where there is no CUDA: names exist, calling them says which kernel was missing.

The wheel's own `sgl_kernel` dies at import without `libcuda.so.1`. Its one pure-Python part, `scalar_type`, is used as it
is. Only the real SGLang of the tests sees this folder, through PYTHONPATH.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import ClassVar

__version__ = "0.4.10"


def _missing(name: str) -> Callable[..., object]:
    def kernel(*_: object, **__: object) -> object:
        raise NotImplementedError(f"sgl_kernel.{name} needs CUDA")

    kernel.__name__ = name
    return kernel


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    return _missing(name)


class _Hollow(ModuleType):
    """A submodule whose every attribute is a missing kernel."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _missing(name)


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "sgl_kernel.scalar_type":
            places = [Path(entry) / "sgl_kernel" / "scalar_type.py" for entry in sys.path]
            found = next(place for place in places if place.is_file())
            return importlib.util.spec_from_file_location(name, found)
        return ModuleSpec(name, self, is_package=True) if name.startswith("sgl_kernel.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Hollow(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


sys.meta_path.insert(0, _Finder())
