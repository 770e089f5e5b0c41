"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import CONTROL


@dsl.component(base_image=CONTROL, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def label(
    config: str,
    tasks: dsl.Output[dsl.Dataset],
    labels_made: dsl.Output[dsl.Dataset],
    preference: dsl.Output[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    traces: dsl.Input[dsl.Artifact],
    other: dsl.Input[dsl.Artifact] = None,
    other_traces: dsl.Input[dsl.Artifact] = None,
    labels: dsl.Input[dsl.Dataset] = None,
) -> None:
    """Make labelling tasks from sessions, and count what was said of them. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    inputs = {"evaluation": evaluation, "traces": traces, "other": other, "other_traces": other_traces}
    outputs = {"tasks": tasks.path, "labels": labels_made.path, "preference": preference.path}
    perform("label", config, inputs | {"labels": labels}, outputs)
