"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import CONTROL


@dsl.component(base_image=CONTROL, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def report(
    config: str,
    page: dsl.Output[dsl.HTML],
    evaluation: dsl.Input[dsl.Artifact] = None,
    traces: dsl.Input[dsl.Artifact] = None,
    curves: dsl.Input[dsl.Artifact] = None,
    registration: dsl.Input[dsl.Artifact] = None,
) -> None:
    """Render the report of a run. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    perform(
        "report",
        config,
        {"evaluation": evaluation, "traces": traces, "curves": curves, "registration": registration},
        {"report": page.path},
    )
