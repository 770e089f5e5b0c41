"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import TRAINER


@dsl.component(base_image=TRAINER, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def base(
    config: str,
    model: dsl.Output[dsl.Model],
    init: dsl.Input[dsl.Model] = None,
    trajectories: dsl.Input[dsl.Dataset] = None,
) -> None:
    """Pre-train the small model. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    perform("base", config, {"init": init, "trajectories": trajectories}, {"model": model.path})
