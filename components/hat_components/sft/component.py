"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import TRAINER


@dsl.component(base_image=TRAINER, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def sft(
    config: str,
    model: dsl.Output[dsl.Model],
    base: dsl.Input[dsl.Model],
    trajectories: dsl.Input[dsl.Dataset] = None,
    stream: dsl.Input[dsl.Artifact] = None,
    harness: dsl.Input[dsl.Artifact] = None,
) -> None:
    """Train on the trajectories of one arm, or on a stream of fresh ones. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    inputs = {"base": base, "trajectories": trajectories, "stream": stream, "harness": harness}
    perform("sft", config, inputs, {"model": model.path})
