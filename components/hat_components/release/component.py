"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import CONTROL


@dsl.component(base_image=CONTROL, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def release(
    config: str,
    model: dsl.Input[dsl.Model],
    harness: dsl.Input[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    proposal: dsl.Output[dsl.Artifact],
) -> None:
    """The release step. `config` is its Config as JSON."""
    from hat_components.pod import perform

    perform(
        "release", config, {"model": model, "harness": harness, "evaluation": evaluation}, {"proposal": proposal.path}
    )
