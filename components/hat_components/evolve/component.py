"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import TRAINER


@dsl.component(base_image=TRAINER, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def evolve(
    config: str,
    evolution: dsl.Output[dsl.Artifact],
    selected: dsl.Output[dsl.Artifact],
    traces: dsl.Output[dsl.Artifact],
    harness: dsl.Input[dsl.Artifact],
    items: dsl.Input[dsl.Dataset],
    candidates: dsl.Input[dsl.Artifact] = None,
    model: dsl.Input[dsl.Model] = None,
    held_out: dsl.Input[dsl.Dataset] = None,
) -> None:
    """Measure edits of a harness with a fixed policy and keep the best. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    perform(
        "evolve",
        config,
        {"harness": harness, "items": items, "candidates": candidates, "model": model, "held_out": held_out},
        {"evolution": evolution.path, "selected": selected.path, "traces": traces.path},
    )
