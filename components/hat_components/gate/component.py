"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import CONTROL


@dsl.component(base_image=CONTROL, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def gate(
    config: str,
    evaluation: dsl.Input[dsl.Artifact],
    verdict: dsl.Output[dsl.Artifact],
    baseline: dsl.Input[dsl.Artifact] = None,
) -> None:
    """The gate step. `config` is its Config as JSON."""
    from hat_components.pod import perform

    perform("gate", config, {"evaluation": evaluation, "baseline": baseline}, {"gate": verdict.path})
