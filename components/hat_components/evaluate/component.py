"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import TRAINER


@dsl.component(base_image=TRAINER, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def evaluate(
    config: str,
    evaluation: dsl.Output[dsl.Artifact],
    traces: dsl.Output[dsl.Artifact],
    model: dsl.Input[dsl.Model] = None,
    items: dsl.Input[dsl.Dataset] = None,
    harness: dsl.Input[dsl.Artifact] = None,
    held_out: dsl.Input[dsl.Dataset] = None,
) -> None:
    """Evaluate a policy by suites. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    perform(
        "evaluate",
        config,
        {"model": model, "items": items, "harness": harness, "held_out": held_out},
        {"evaluation": evaluation.path, "traces": traces.path},
    )
