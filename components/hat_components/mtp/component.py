"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import TRAINER


@dsl.component(base_image=TRAINER, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def mtp(
    config: str,
    model: dsl.Output[dsl.Model],
    start: dsl.Input[dsl.Model],
    harness: dsl.Input[dsl.Artifact],
    head: dsl.Input[dsl.Model] = None,
) -> None:
    """Fit the draft head of `head` (or a fresh one) to `start`. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    perform("mtp", config, {"start": start, "harness": harness, "head": head}, {"model": model.path})
