"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import TRAINER


@dsl.component(base_image=TRAINER, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def sft(
    config: str,
    model: dsl.Output[dsl.Model],
    base: dsl.Input[dsl.Model],
    trajectories: dsl.Input[dsl.Dataset],
) -> None:
    """Train on the trajectories of one arm. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    perform("sft", config, {"base": base, "trajectories": trajectories}, {"model": model.path})
