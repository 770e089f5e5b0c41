"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import TRAINER


@dsl.component(base_image=TRAINER, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def opd(
    config: str,
    model: dsl.Output[dsl.Model],
    start: dsl.Input[dsl.Model],
    teacher: dsl.Input[dsl.Model] = None,
    harness: dsl.Input[dsl.Artifact] = None,
) -> None:
    """Distil `teacher` into `start` on what `start` writes. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    perform("opd", config, {"start": start, "teacher": teacher, "harness": harness}, {"model": model.path})
