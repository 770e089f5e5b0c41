"""Divergences are their formulas, both loops take the same step, and a student comes back to its teacher."""

from __future__ import annotations

import http.server
import json
import math
import threading

import numpy as np
import pytest
import torch

from hat_components.model.codec import Codec
from hat_components.model.folder import load_folder, save_folder
from hat_components.model.qwen import build_model
from hat_components.model.tokenizer import train_tokenizer
from hat_components.opd.config import Config, TeacherEndpoint
from hat_components.opd.course import Course, run_plain
from hat_components.opd.divergence import divergence, others_mean, sampled_reverse
from hat_components.opd.prompts import Prompts
from hat_components.opd.step import run
from hat_components.opd.teacher import ServedTeacher, TeacherError
from hat_components.rl.loss import sampled_logps
from hat_components.rl.rows import FlatRow
from hat_components.step import InputError, NullProgress
from hat_scenarios import general
from tests.rl.conftest import TINY
from tests.rl.test_policy_steps_are_exact import Curves

CONFIG = Config(
    threads=1,
    scenario="",
    steps=3,
    batch=6,
    rows_at_once=3,
    reply_tokens=8,
    learning_rate=5e-3,
    warmup_steps=0,
    checkpoint_every=1,
    trainer="plain",
)


def reference(student, teacher, beta):
    """In NumPy and double precision."""
    p, q = (np.exp(x - np.logaddexp.reduce(x, -1, keepdims=True)) for x in (teacher, student))

    def kl(a, b):
        return (a * (np.log(a) - np.log(b))).sum(-1)

    if beta in (0.0, 1.0):
        return kl(q, p) if beta else kl(p, q)
    mixed = beta * p + (1 - beta) * q
    return beta * kl(p, mixed) + (1 - beta) * kl(q, mixed)


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_a_divergence_and_its_gradient_are_right_to_double_precision(beta):
    rng = np.random.default_rng(3)
    ours, theirs = rng.normal(size=(4, 9)) * 2, rng.normal(size=(4, 9)) * 2
    student = torch.tensor(ours, requires_grad=True)
    found = divergence(student, torch.tensor(theirs, requires_grad=True), beta)
    assert found.tolist() == pytest.approx(reference(ours, theirs, beta).tolist(), abs=1e-12)
    assert divergence(student, student, beta).abs().max() < 1e-12
    found.sum().backward()
    for place in [(0, 0), (1, 4), (3, 8)]:
        step = np.zeros_like(ours)
        step[place] = 1e-6
        slope = (reference(ours + step, theirs, beta) - reference(ours - step, theirs, beta)).sum() / 2e-6
        assert student.grad[place].item() == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_it_is_trls_divergence(beta):
    from trl.trainer.distillation_trainer import _chunked_divergence_loss

    generator = torch.Generator().manual_seed(1)
    ours, theirs = (torch.randn(2, 3, 8, generator=generator) for _ in range(2))
    head, other = (torch.randn(20, 8, generator=generator) for _ in range(2))
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    theirs_loss, _, _ = _chunked_divergence_loss(ours, theirs, head, other, mask, beta, temperature=0.8)
    picked = mask.bool()
    mine = divergence((ours @ head.T / 0.8)[picked], (theirs @ other.T / 0.8)[picked], beta).mean()
    assert mine.item() == pytest.approx(theirs_loss.item(), abs=1e-5)


def test_the_sampled_reverse_kl_has_the_gradient_of_the_whole_one_on_average():
    rng = np.random.default_rng(5)
    logits = torch.tensor(rng.normal(size=6), requires_grad=True)
    teacher = torch.log_softmax(torch.tensor(rng.normal(size=6)), -1)
    logps = torch.log_softmax(logits, -1)
    expected = (logps.detach().exp() * sampled_reverse(logps, teacher, 0.7)).sum()
    expected.backward()
    whole = torch.tensor(logits.detach().numpy(), requires_grad=True)
    loss = divergence(whole[None], teacher[None], 1.0).sum()
    loss.backward()
    assert expected.item() == pytest.approx(loss.item(), abs=1e-12)
    assert logits.grad.tolist() == pytest.approx(whole.grad.tolist(), abs=1e-12)


def test_a_rows_baseline_is_the_mean_of_all_other_rows():
    found = others_mean(torch.tensor([1.0, 2.0, 4.0, 6.0]), [2, 1, 1])
    assert found.tolist() == [5.0, 5.0, 3.0, pytest.approx(7 / 3)]
    assert others_mean(torch.tensor([3.0, 4.0]), [2]).tolist() == [0.0, 0.0]


def courses(tokenizer, config, told, teacher=None):
    codec = Codec(tokenizer)
    student = build_model(TINY.model_copy(update={"initializer_range": 0.1}), tokenizer, seed=5)
    base = build_model(TINY.model_copy(update={"initializer_range": 0.1}), tokenizer, seed=6).eval()
    words = general.Words.of(("red", "blue", "table", "lamp", "small", "green", "river", "stone", "cup", "bird"))
    prompts = Prompts(config.prompts, codec, words, config.seed)
    return Course(student, teacher or base.requires_grad_(False), codec, prompts, config, told)


@pytest.mark.parametrize("beta", [1.0, 0.4])
def test_trls_trainer_and_the_lean_loop_take_the_same_step(tokenizer, beta):
    from hat_components.opd.trl_loop import run_trl

    config = CONFIG.model_copy(update={"steps": 2, "divergence": beta})
    told = [Curves(), Curves()]
    plain, trl = courses(tokenizer, config, told[0]), courses(tokenizer, config, told[1])
    before = {name: weight.detach().clone() for name, weight in plain.model.named_parameters()}
    run_plain(plain)
    run_trl(trl)
    theirs = dict(trl.model.named_parameters())
    moved = max(float((weight - before[name]).detach().abs().max()) for name, weight in plain.model.named_parameters())
    apart = max(float((weight - theirs[name]).detach().abs().max()) for name, weight in plain.model.named_parameters())
    assert moved > 5e-3
    # Adam turns rounding of a gradient near zero into a step; sums depend on the number of threads.
    assert apart < moved / 10
    assert told[0].points["opd.loss"] == [
        (step, pytest.approx(value, abs=1e-5)) for step, value in told[1].points["opd.loss"]
    ]


def test_a_student_comes_back_to_its_teacher(tokenizer):
    told = Curves()
    config = CONFIG.model_copy(update={"steps": 25, "learning_rate": 1e-2})
    run_plain(courses(tokenizer, config, told))
    curve = [value for _, value in told.points["opd.loss"]]
    assert np.mean(curve[-3:]) < 0.6 * curve[0]


@pytest.mark.parametrize("trainer", ["plain", "trl"])
def test_a_stopped_run_ends_with_the_same_weights(tmp_path, model_folder, tokenizer, codec, trainer):
    save_folder(tmp_path / "teacher", build_model(TINY, tokenizer, seed=9), codec, {})
    inputs = {"start": model_folder, "teacher": tmp_path / "teacher"}
    config = CONFIG.model_copy(update={"trainer": trainer})

    class Stop(NullProgress):
        def metric(self, name, value, step):
            if (name, step) == ("opd.loss", 3):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, inputs, tmp_path / "a", Stop())
    assert not (tmp_path / "a" / "model").exists()
    seen = Curves()
    resumed = run(config, inputs, tmp_path / "a", seen)
    assert [step for step, _ in seen.points["opd.loss"]] == [3]
    assert resumed.digests == run(config, inputs, tmp_path / "b", NullProgress()).digests
    assert resumed.metrics["opd.steps"] == 3


def test_another_vocabulary_or_template_is_refused(tmp_path, model_folder, tokenizer, codec):
    texts = ["some other text about a lamp and a table"] * 30
    other = train_tokenizer(texts, ["lamp"], _small())
    save_folder(tmp_path / "other", build_model(TINY, other, seed=1), Codec(other), {})
    with pytest.raises(InputError, match="other vocabularies or chat templates"):
        run(CONFIG, {"start": model_folder, "teacher": tmp_path / "other"}, tmp_path / "a", NullProgress())
    save_folder(tmp_path / "styled", build_model(TINY, tokenizer, seed=1), codec, {})
    template = tmp_path / "styled" / "chat_template.jinja"
    template.write_text(template.read_text().replace("assistant", "helper"))
    with pytest.raises(InputError, match="other vocabularies or chat templates"):
        run(CONFIG, {"start": model_folder, "teacher": tmp_path / "styled"}, tmp_path / "b", NullProgress())
    assert not list(tmp_path.glob("[ab]/model"))


def _small():
    from hat_components.model.settings import TokenizerConfig

    return TokenizerConfig(vocab_size=320)


class Teacher(http.server.ThreadingHTTPServer):
    """Speaks as much of SGLang's /generate as asks for log-probabilities; answers from a real model."""

    daemon_threads = True

    def __init__(self, model, codec):
        super().__init__(("127.0.0.1", 0), Handler)
        self.model, self.codec = model, codec
        self.asked, self.failures, self.wrong, self.plain = [], 0, "", False
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, body):
        ids = body["input_ids"]
        with torch.no_grad(), self.lock:
            # a model of 1,024 positions is asked about a probe in one piece, as a served one would be
            found = sampled_logps(self.model, [FlatRow((ids[0],), tuple(ids[1:]), (1,) * (len(ids) - 1), ())], 1.0)
        texts = [self.codec.text([i]) if body["return_text_in_logprobs"] else None for i in ids]
        if self.wrong == "texts":
            texts[-1] = "?"
        if self.wrong == "ids":
            ids = [i + 1 for i in ids]
        logps = [None, *found[0].tolist()]
        if self.plain:  # the same distribution everywhere: odd tokens nineteen times as likely as even ones
            size = len(self.codec.tokenizer)
            logps = [None, *(math.log((1.9 if i % 2 else 0.1) / size) for i in ids[1:])]
        return {
            "text": "",
            "meta_info": {"input_token_logprobs": [list(e) for e in zip(logps, ids, texts, strict=True)]},
        }


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append((self.path, body))
            failing = self.server.failures > 0
            self.server.failures -= failing
        answer = (
            b"{}" if self.server.wrong == "empty" else json.dumps({} if failing else self.server.answer(body)).encode()
        )
        self.send_response(503 if failing else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def served(tokenizer, codec):
    model = build_model(TINY.model_copy(update={"initializer_range": 0.3}), tokenizer, seed=6).eval()
    server = Teacher(model, codec)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_served_teacher_gives_the_probabilities_of_the_given_tokens(served, codec):
    with ServedTeacher(TeacherEndpoint(url=served.url)) as teacher:
        teacher.check_vocabulary(codec)
        rows = [((5, 6, 7, 8, 9), 3), ((4, 11), 1)]
        found = teacher.logps(rows)
    with torch.no_grad():
        for (ids, start), logps in zip(rows, found, strict=True):
            logits = torch.log_softmax(served.model(input_ids=torch.tensor([ids])).logits[0], -1)
            wanted = [logits[place - 1, ids[place]].item() for place in range(start, len(ids))]
            assert logps == pytest.approx(wanted, abs=1e-5)
    path, body = served.asked[-1]
    assert path == "/generate"
    assert body["sampling_params"]["max_new_tokens"] == 0
    assert body["return_logprob"] is True
    assert body["logprob_start_len"] == 0


def test_distilling_from_a_served_teacher_lowers_the_divergence_and_survives_a_fault(tmp_path, served, model_folder):
    endpoint = TeacherEndpoint(url=served.url, parallel=2)
    config = CONFIG.model_copy(update={"endpoint": endpoint, "steps": 30, "batch": 48, "rows_at_once": 48})
    config = config.model_copy(
        update={"freeze_embedding": False, "learning_rate": 2e-2, "prompts": {"instruction": 1.0}}
    )
    served.failures, served.plain = 2, True
    told = Curves()
    result = run(config, {"start": model_folder}, tmp_path, told)
    curve = [value for _, value in told.points["opd.loss"]]
    assert np.mean(curve[-3:]) < 0.7 * np.mean(curve[:3])
    assert load_folder(tmp_path / result.artifacts["model"]).digest == result.digests["model"]


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ("texts", InputError, "vocabulary is another"),
        ("ids", InputError, "vocabulary is another"),
        ("empty", TeacherError, "no log-probabilities of the input"),
    ],
)
def test_a_teacher_of_another_kind_is_refused_before_the_first_step(tmp_path, served, model_folder, wrong, error, told):
    served.wrong = wrong
    config = CONFIG.model_copy(update={"endpoint": TeacherEndpoint(url=served.url)})
    with pytest.raises(error, match=told):
        run(config, {"start": model_folder}, tmp_path, NullProgress())
    assert not (tmp_path / "model").exists()


def test_a_teacher_that_is_down_ends_the_step_with_a_cure(tmp_path, served, model_folder):
    served.failures = 100
    config = CONFIG.model_copy(update={"endpoint": TeacherEndpoint(url=served.url, attempts=2)})
    with pytest.raises(TeacherError, match="HTTP 503") as caught:
        run(config, {"start": model_folder}, tmp_path, NullProgress())
    assert caught.value.kind == "unavailable"
    assert len(served.asked) == 2, "tries are bounded"
