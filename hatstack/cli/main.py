"""Entry point of `hat`: puts the nouns together and turns every ending into an exit code.

Always holds: nothing but typer is imported before a command is chosen, so that `hat --help` answers at once.
Not here: what commands do (one module per noun) and how errors are written (failure).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise

import typer

from hatstack.cli import failure, output


def build() -> typer.Typer:
    """The whole application."""
    from hatstack.cli import ablate, compare, doctor, evolve, run, stack

    app = typer.Typer(
        name="hat",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Train, evaluate and ship compact LLM agents that keep working while their harness changes.",
    )
    app.callback()(_globals)
    for part in (run, compare, evolve, ablate, stack, doctor):
        part.add(app)
    for name, noun in _nouns().items():
        app.add_typer(noun, name=name)
    return app


def _nouns() -> dict[str, typer.Typer]:
    """Each noun with its verbs."""
    from hatstack.cli import (
        account,
        cache,
        canary,
        canary_render,
        data,
        experiment,
        harness,
        harness_registry,
        judge,
        ledger,
        loadtest,
        model,
        pipeline,
        registry,
        release,
        scenario,
        train,
        webhook,
    )

    harness_registry.add(harness.app)
    release.add(ledger.releases)
    canary_render.add(canary.app)
    return {
        "harness": harness.app,
        "data": data.app,
        "model": model.app,
        "judge": judge.app,
        "train": train.app,
        "pipeline": pipeline.app,
        "scenario": scenario.app,
        "cache": cache.app,
        "ledger": ledger.app,
        "registry": registry.app,
        "release": ledger.releases,
        "loadtest": loadtest.app,
        "canary": canary.app,
        "experiment": experiment.app,
        "account": account.app,
        "webhook": webhook.app,
    }


def _globals(
    output: output.Output = None,
    version: bool = typer.Option(
        False, "--version", help="Show the version.", is_eager=True, callback=lambda v: _version(v)
    ),
) -> None:
    """Train, evaluate and ship compact LLM agents that keep working while their harness changes."""


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        sys.stdout.write(f"hatstack {version('hatstack')}\n")
        raise typer.Exit(0)


def main(argv: Sequence[str]) -> int:
    """Run one command; returns the exit code. Errors are reported here and nowhere else."""
    output.reset()
    as_json = _wants_json(argv)
    try:
        code = typer.main.get_command(build()).main(list(argv), prog_name="hat", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except typer.TyperException as error:
        ctx = getattr(error, "ctx", None)
        place = ctx.command_path if ctx else "hat"
        return failure.usage(_plain(error.format_message()), place, f"{place} --help", as_json)
    except (typer.Abort, KeyboardInterrupt):
        return failure.report(KeyboardInterrupt(), as_json)
    except BrokenPipeError:
        sys.stdout = None  # the reader went away; nothing more may be flushed to it
        return 0
    except Exception as error:  # the one place where whatever is left becomes a message
        return failure.report(error, as_json)


def _wants_json(argv: Sequence[str]) -> bool:
    """Whether JSON was asked for, known even where the command line cannot be parsed."""
    words = list(argv)
    return "--output=json" in words or any(a == "--output" and b == "json" for a, b in pairwise(words))


def _plain(message: str) -> str:
    return " ".join(message.split())


def run() -> None:
    """Console script `hat`."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
