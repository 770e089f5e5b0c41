"""What is broken is told in one sentence by opd, rl and mtp, too, and nothing is left under a final name."""

from __future__ import annotations

import pkgutil
import shutil

import numpy as np
import pytest
import torch

from hat_components.model.folder import load_folder, save_folder
from hat_components.model.qwen import build_model
from hat_components.model.train import TrainingError
from hat_components.mtp.config import Config as Mtp
from hat_components.mtp.head import DraftHead
from hat_components.mtp.step import run as run_mtp
from hat_components.mtp.tensors import put_head
from hat_components.opd.config import Config as Opd
from hat_components.opd.config import TeacherEndpoint
from hat_components.opd.step import run as run_opd
from hat_components.opd.teacher import TeacherError
from hat_components.rl.config import Config as Rl
from hat_components.rl.step import run as run_rl
from hat_components.runner import EXIT_CODES, execute
from hat_components.step import InputError, NullProgress
from tests.rl.conftest import TINY
from tests.rl.test_distillation_is_exact import Curves, served  # noqa: F401  # a fixture is used by its name
from tests.training.test_bad_inputs_leave_nothing_behind import change, small_files

OPD = Opd(threads=1, scenario="", steps=3, batch=2, rows_at_once=2, reply_tokens=4, checkpoint_every=1)
RL = Rl(threads=1, steps=2, groups=1, group=2, rows_at_once=2, call_tokens=6, checkpoint_every=1)
MTP = Mtp(threads=1, sessions=4, held_out=2, copying=1, steps=1, batch=2, call_tokens=8, checkpoint_every=1)
STAGES = {"opd": (run_opd, OPD), "rl": (run_rl, RL), "mtp": (run_mtp, MTP)}


@pytest.fixture
def inputs(tmp_path, model_folder, harness, tokenizer, codec):
    """Stage → its inputs; the start is a copy that a test may break."""
    start = tmp_path / "start"
    shutil.copytree(model_folder, start)
    save_folder(tmp_path / "teacher", build_model(TINY, tokenizer, seed=9), codec, {})
    return {
        "opd": {"start": start, "teacher": tmp_path / "teacher"},
        "rl": {"start": start, "harness": harness},
        "mtp": {"start": start, "harness": harness},
    }


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-50])


def pickled(folder):
    torch.save({"a": torch.zeros(1)}, folder / "pytorch_model.bin")


def missing(folder):
    change(folder, lambda weights: weights.pop("model.layers.0.mlp.up_proj.weight"))


def extra(folder):
    change(folder, lambda weights: weights.update({"model.layers.9.mlp.up_proj.weight": torch.ones(64, 32)}))


FAULTS = [
    (cut, "header says"),
    (pickled, "pickled weights are refused"),
    (missing, "do not fit the config"),
    (extra, "extra_keys.*layers.9"),
]


@pytest.mark.parametrize(("fault", "told"), FAULTS)
@pytest.mark.parametrize("stage", sorted(STAGES))
def test_broken_weights_are_refused_by_every_stage(tmp_path, inputs, stage, fault, told):
    run, config = STAGES[stage]
    fault(tmp_path / "start")
    with pytest.raises(InputError, match=told):
        run(config, inputs[stage], tmp_path / "out", NullProgress())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("fault", [cut, pickled])
def test_a_broken_teacher_or_head_is_refused(tmp_path, inputs, fault):
    fault(tmp_path / "teacher")
    with pytest.raises(InputError, match=r"header says|pickled weights"):
        run_opd(OPD, inputs["opd"], tmp_path / "a", NullProgress())
    with pytest.raises(InputError, match=r"header says|pickled weights"):
        run_mtp(MTP, {**inputs["mtp"], "head": tmp_path / "teacher"}, tmp_path / "b", NullProgress())
    assert not list(tmp_path.glob("[ab]/model"))


def test_a_head_goes_along_through_distillation_and_rl(tmp_path, inputs):
    head = DraftHead(load_folder(tmp_path / "start").model.config)
    put_head(tmp_path / "start", head.tensors())
    for stage in ("opd", "rl"):
        from hat_components.mtp.tensors import read_head

        run, config = STAGES[stage]
        run(config.model_copy(update={"trainer": "plain"}), inputs[stage], tmp_path / stage, NullProgress())
        found = read_head(tmp_path / stage / "model")
        assert found.keys() == head.tensors().keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in head.tensors().items())


def spoiled(place):
    """What stands at `place`, with a result that is no number."""

    def call(*given, **named):
        return place(*given, **named) * float("nan")

    return call


@pytest.mark.parametrize(
    ("stage", "trainer", "place"),
    [
        ("opd", "plain", "hat_components.opd.course.divergence"),
        ("opd", "trl", "trl.DistillationTrainer.compute_loss"),
        ("rl", "plain", "hat_components.rl.plain.policy_loss"),
        ("rl", "trl", "trl.GRPOTrainer.compute_loss"),
        ("mtp", "plain", "torch.nn.functional.cross_entropy"),
    ],
)
def test_a_loss_that_is_no_number_ends_a_stage_before_a_weight_moves(
    tmp_path, monkeypatch, inputs, stage, trainer, place
):
    run, config = STAGES[stage]
    owner = pkgutil.resolve_name(place.rpartition(".")[0])
    monkeypatch.setattr(owner, place.rpartition(".")[2], spoiled(getattr(owner, place.rpartition(".")[2])))
    if stage == "rl":  # without a KL term, rollouts that earn nothing have no loss
        config = config.model_copy(update={"trainer": trainer, "beta": 0.1})
    elif stage == "opd":
        config = config.model_copy(update={"trainer": trainer})
    with pytest.raises(TrainingError, match="the loss is nan at step 1"):
        run(config, inputs[stage], tmp_path / "out", NullProgress())
    assert not list((tmp_path / "out").rglob("*.safetensors"))


@pytest.mark.parametrize("trainer", ["plain", "trl"])
def test_rewards_that_are_all_equal_teach_nothing_and_are_counted(tmp_path, monkeypatch, inputs, trainer):
    """An untrained model earns nothing in any rollout."""
    told = Curves()
    config = RL.model_copy(
        update={"trainer": trainer, "groups": 2, "rows_at_once": 4, "terms": {"accuracy": RL.terms["accuracy"]}}
    )
    run_rl(config, inputs["rl"], tmp_path / "out", told)
    assert [value for _, value in told.points["rl.dead_groups"]] == [2.0, 2.0]
    assert [value for _, value in told.points["rl.loss"]] == pytest.approx([0.0, 0.0], abs=1e-9)
    before, after = load_folder(tmp_path / "start").model, load_folder(tmp_path / "out" / "model").model
    for (name, one), (_, other) in zip(before.named_parameters(), after.named_parameters(), strict=True):
        assert np.allclose(one.detach(), other.detach(), atol=1e-7), name


def test_a_teacher_that_goes_away_ends_the_step_and_the_next_try_goes_on(tmp_path, inputs, served):  # noqa: F811
    endpoint = TeacherEndpoint(url=served.url, attempts=2, timeout_s=5)
    config = OPD.model_copy(update={"trainer": "plain", "endpoint": endpoint})
    given = {"start": inputs["opd"]["start"]}

    class Gone(Curves):
        def metric(self, name, value, step):
            super().metric(name, value, step)
            if (name, step) == ("opd.loss", 2):
                served.failures = 10**6

    with pytest.raises(TeacherError, match="does not answer: HTTP 503") as caught:
        run_opd(config, given, tmp_path / "a", Gone())
    assert EXIT_CODES[caught.value.kind] == 5
    served.failures = 0
    told = Curves()
    resumed = run_opd(config, given, tmp_path / "a", told)
    assert [step for step, _ in told.points["opd.loss"]] == [3]
    assert resumed.digests == run_opd(config, given, tmp_path / "b", NullProgress()).digests


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_a_full_disk_ends_a_stage_with_its_cure_and_room_lets_it_go_on(tmp_path, inputs, stage, capsys):
    run, config = STAGES[stage]
    (tmp_path / "config.json").write_text(config.model_dump_json())
    arguments = ["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]
    for name, path in inputs[stage].items():
        arguments += ["--input", f"{name}={path}"]
    with small_files(20_000):
        assert execute(type(config), run, arguments) == EXIT_CODES["exhausted"]
    told = capsys.readouterr().err
    assert "cannot write" in told
    assert "Traceback" not in told
    assert not list((tmp_path / "out").rglob("*.safetensors"))
    assert execute(type(config), run, arguments) == 0
