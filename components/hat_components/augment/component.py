"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import CONTROL


@dsl.component(base_image=CONTROL, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def augment(
    config: str,
    trajectories: dsl.Output[dsl.Dataset],
    harness: dsl.Input[dsl.Artifact] = None,
    items: dsl.Input[dsl.Dataset] = None,
    conversations: dsl.Input[dsl.Dataset] = None,
) -> None:
    """Make training conversations of both arms. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    perform(
        "augment",
        config,
        {"harness": harness, "items": items, "conversations": conversations},
        {"trajectories": trajectories.path},
    )
