"""hat_stats has its own error tree with the platform's attributes, and loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys
import typing

import pytest

from hat_harness import errors as platform
from hat_stats import errors
from hat_stats.bootstrap import paired_bootstrap


def test_the_tree_is_pinned() -> None:
    assert errors.StatsError.__bases__ == (Exception,)
    assert [cls.__name__ for cls in errors.StatsError.__subclasses__()] == ["InputError"]
    assert errors.InputError.kind == "invalid_input"
    assert set(typing.get_args(errors.Kind)) == set(typing.get_args(platform.Kind))


def test_attributes_and_wording_equal_the_platforms() -> None:
    ours = errors.StatsError("broken", place="a", cure="mend it")
    theirs = platform.PlatformError("broken", place="a", cure="mend it")
    assert vars(ours) == vars(theirs)
    assert (ours.kind, str(ours)) == (theirs.kind, str(theirs))
    with pytest.raises(errors.InputError) as caught:
        paired_bootstrap([1.0], [1.0, 2.0], seed=1)
    assert str(caught.value) == "a, b: lengths differ: 1, 2 (align them by item id)"


def test_importing_every_module_loads_no_training_stack() -> None:
    script = (
        "import importlib, pkgutil, sys, hat_stats\n"
        "[importlib.import_module('hat_stats.' + m.name) for m in pkgutil.iter_modules(hat_stats.__path__)]\n"
        "heavy = {'torch', 'transformers', 'kfp', 'mlflow', 'kserve', 'pandas', 'hat_harness'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
