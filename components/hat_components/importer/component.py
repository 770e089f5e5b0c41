"""KFP component of the step: the same `run`, for pipelines of one's own. Not here: logic, and hatstack's pipelines."""

from kfp import dsl

from hat_components.pod import CONTROL


@dsl.component(base_image=CONTROL, install_kfp_package=False)  # type: ignore[untyped-decorator]  # kfp ships no types
def import_conversations(
    config: str,
    conversations: dsl.Input[dsl.Dataset],
    held_in: dsl.Output[dsl.Dataset],
    held_out: dsl.Output[dsl.Dataset],
) -> None:
    """Import outside conversations. `config` is the step's Config as JSON."""
    from hat_components.pod import perform

    perform(
        "importer",
        config,
        {"conversations": conversations},
        {"held_in": held_in.path, "held_out": held_out.path},
    )
