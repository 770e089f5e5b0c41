"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import CONTROL


@dsl.component(base_image=CONTROL, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def collect(
    config: str,
    trajectories: dsl.Output[dsl.Dataset],
    harness: dsl.Input[dsl.Artifact],
    items: dsl.Input[dsl.Dataset],
) -> None:
    """Let a teacher play `items` under states of `harness`. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    perform("collect", config, {"harness": harness, "items": items}, {"trajectories": trajectories.path})
