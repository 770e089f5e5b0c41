"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import CONTROL


@dsl.component(base_image=CONTROL, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def canary(config: str, proposal: dsl.Input[dsl.Artifact], outcome: dsl.Output[dsl.Artifact]) -> None:
    """The canary step. `config` is its Config as JSON."""
    from hat_components.pod import perform

    perform("canary", config, {"proposal": proposal}, {"canary": outcome.path})
