"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import CONTROL


@dsl.component(base_image=CONTROL, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def judge(
    config: str,
    judged: dsl.Output[dsl.Artifact],
    calibration_made: dsl.Output[dsl.Artifact],
    judgements: dsl.Output[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    traces: dsl.Input[dsl.Artifact] = None,
    labels: dsl.Input[dsl.Dataset] = None,
    calibration: dsl.Input[dsl.Artifact] = None,
    history: dsl.Input[dsl.Artifact] = None,
) -> None:
    """Judge the sessions of an evaluation, or calibrate the judge. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    inputs = {"evaluation": evaluation, "traces": traces, "labels": labels}
    inputs |= {"calibration": calibration, "history": history}
    outputs = {"judged": judged.path, "calibration": calibration_made.path, "judgements": judgements.path}
    perform("judge", config, inputs, outputs)
