"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import CONTROL


@dsl.component(base_image=CONTROL, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def register(
    config: str,
    model: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    registration: dsl.Output[dsl.Artifact],
    curves: dsl.Input[dsl.Artifact] = None,
) -> None:
    """Register a model with its evidence. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    perform(
        "register",
        config,
        {"model": model, "evaluation": evaluation, "curves": curves},
        {"registration": registration.path},
    )
