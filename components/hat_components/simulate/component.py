"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import CONTROL


@dsl.component(base_image=CONTROL, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def simulate(
    config: str,
    items_train: dsl.Output[dsl.Dataset],
    items_dev: dsl.Output[dsl.Dataset],
    items_test: dsl.Output[dsl.Dataset],
) -> None:
    """Draw the items of a scenario. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    perform(
        "simulate",
        config,
        {},
        {"items_train": items_train.path, "items_dev": items_dev.path, "items_test": items_test.path},
    )
