"""A teacher behind HTTP plays through the session; right answers are kept, and a killed step repeats no item."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading

import pytest

from hat_components.collect.config import Config
from hat_components.collect.journal import JournalError
from hat_components.collect.step import EndpointDownError, run
from hat_components.data import DatasetWriter, Trajectory, load_manifest, read_records
from hat_components.model.rows import trajectory_rows
from hat_components.runner import EXIT_CODES, execute
from hat_components.scenarios import load
from hat_components.sessions import States, read_harness
from hat_components.step import InputError, NullProgress
from hat_harness.events import CallModel, Message, ToolCall
from tests.training.test_bad_inputs_leave_nothing_behind import small_files

ITEMS = 5
SETTINGS = {"mix": "balanced"}


class Server(http.server.ThreadingHTTPServer):
    """The scripted expert behind the OpenAI chat API. `wrong` samples answer nonsense; `down` fails every request."""

    daemon_threads = True

    def __init__(self, harness, items, config):
        super().__init__(("127.0.0.1", 0), Handler)
        scenario = load("live_commerce", SETTINGS)
        states = States(scenario, read_harness(harness), config.plan, config.seed)
        self.cases = {item.id: (states.of(item).harness, item) for item in items}
        self.expert = scenario.expert()
        self.wrong, self.down, self.hiccup = {1}, False, False
        self.asked: list[dict] = []
        self.lock = threading.Lock()

    def answer(self, body):
        sample, _, rest = body["user"].removeprefix("collect/").partition("/")
        harness, item = self.cases[rest.partition("-")[2]]
        messages = tuple(map(message, body["messages"]))
        users = [m.content for m in messages if m.role == "user"]
        turn = max(i for i, t in enumerate(item.turns) if any(said(t, text) for text in users))
        call = CallModel("c", 0, messages, 0, tuple(body.get("tools", ())), body["max_tokens"])
        output = self.expert.respond(harness, item, turn, call)
        if int(sample) in self.wrong:
            return {"role": "assistant", "content": "who knows"}
        return {
            "role": "assistant",
            "content": output.content,
            "reasoning_content": output.reasoning,
            "tool_calls": [
                {
                    "id": f"c{len(messages)}-{n}",
                    "type": "function",
                    "function": {"name": made.name, "arguments": json.dumps(dict(made.arguments))},
                }
                for n, made in enumerate(output.tool_calls)
            ],
        }


def said(turn, text):
    return all(needle in text for needle in (turn.texts or [str(value) for value in turn.data.values()]))


def message(raw):
    calls = tuple(
        ToolCall(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))
        for c in raw.get("tool_calls") or ()
    )
    reasoning = raw.get("reasoning_content", "")
    return Message(raw["role"], raw.get("content") or "", reasoning, calls, raw.get("tool_call_id", ""))


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.asked.append(body)
            down = server.down or server.hiccup
            server.hiccup = False  # one request only
        said = None if down else server.answer(body)
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        answer = json.dumps({"choices": [{"message": said, "finish_reason": "stop"}], "usage": usage}).encode()
        self.send_response(503 if down else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, harness):
    folder = tmp_path_factory.mktemp("items") / "items"
    drawn = list(load("live_commerce", SETTINGS).items(5, "train", ITEMS, 2))
    with DatasetWriter(folder, kind="items", splits=["train"]) as writer:
        for item in drawn:
            writer.write("train", item)
        writer.finish(name="items", purpose="training", seed=5)
    return {"items": folder, "harness": harness}, drawn


@pytest.fixture
def served(inputs):
    config = Config(
        endpoint="http://nowhere",
        teacher="expert-1",
        licence="made by this repository",
        settings=SETTINGS,
        samples=2,
        batch=2,
        prompt_price=2.0,
        completion_price=8.0,
    )
    server = Server(inputs[0]["harness"], inputs[1], config)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server, config.model_copy(update={"endpoint": f"http://127.0.0.1:{server.server_address[1]}/v1"})
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_the_teacher_got_right_becomes_training_data_with_its_origin(tmp_path, served, inputs, codec):
    server, config = served
    result = run(config, inputs[0], tmp_path, NullProgress())
    facts = load_manifest(tmp_path / "trajectories").facts
    assert facts["teacher"] == "expert-1"
    assert facts["licence"] == "made by this repository"
    assert facts["accepted_share"] == 0.5, "one sample of two is nonsense"
    assert facts["items_kept"] == ITEMS
    assert facts["causes"]
    assert facts["prompt_tokens"] == 100 * len(server.asked)
    assert facts["cost"] == pytest.approx(len(server.asked) * (100 * 2.0 + 10 * 8.0) / 1e6)
    rows = list(read_records(tmp_path / "trajectories", Trajectory))
    assert {row.item for row in rows} == {item.id for item in inputs[1]}
    assert {(row.source, row.arm, row.score) for row in rows} == {("expert-1", "teacher", 1.0)}
    assert len({row.harness for row in rows}) > 1, "several harness states"
    assert "who knows" not in (tmp_path / "trajectories" / "teacher.jsonl").read_text()
    assert result.metrics["kept"] == len(rows)
    learned = trajectory_rows({"t": tmp_path / "trajectories"}, "t", codec, "teacher")
    assert len(learned.rows) == len(rows)
    assert not (tmp_path / "collected.jsonl").exists()
    assert len({body["seed"] for body in server.asked}) == 2, "each sample has a seed of its own"


def test_a_killed_step_goes_on_and_repeats_no_finished_item(tmp_path, served, inputs):
    server, config = served
    straight = run(config, inputs[0], tmp_path / "straight", NullProgress())
    server.asked.clear()
    child = """
import os, signal, sys
from pathlib import Path
from hat_components.collect.config import Config
from hat_components.collect.step import run
from hat_components.step import NullProgress
class Killed(NullProgress):
    def progress(self, done, total, note=""):
        if done >= 2:
            os.kill(os.getpid(), signal.SIGKILL)
run(Config.model_validate_json(sys.argv[1]), {"items": Path(sys.argv[2]), "harness": Path(sys.argv[3])},
    Path(sys.argv[4]), Killed())
"""
    out = tmp_path / "killed"
    paths = [inputs[0]["items"], inputs[0]["harness"], out]
    done = subprocess.run([sys.executable, "-c", child, config.model_dump_json(), *paths], env=os.environ, timeout=120)
    assert done.returncode == -9
    assert not (out / "trajectories").exists()
    first = {body["user"].partition("-")[2] for body in server.asked}
    assert len(first) == 2
    with (out / "collected.jsonl").open("ab") as stream:
        stream.write(b'{"item": "cut o')
    server.asked.clear()
    result = run(config, inputs[0], out, NullProgress())
    assert not first & {body["user"].partition("-")[2] for body in server.asked}
    assert result.digests == straight.digests


def test_a_journal_of_another_run_is_refused_and_a_broken_one_told(tmp_path, served, inputs):
    server, config = served
    server.down = True
    with pytest.raises(EndpointDownError):
        run(config.model_copy(update={"failing": 1}), inputs[0], tmp_path, NullProgress())
    with pytest.raises(JournalError) as caught:
        run(config.model_copy(update={"samples": 3}), inputs[0], tmp_path, NullProgress())
    assert EXIT_CODES[caught.value.kind] == 4
    path = tmp_path / "collected.jsonl"
    path.write_bytes(path.read_bytes() + b"{}\n")
    with pytest.raises(InputError, match="journal is broken"):
        run(config, inputs[0], tmp_path, NullProgress())


def test_an_endpoint_that_fails_is_no_word_on_the_teacher(tmp_path, served, inputs):
    server, config = served
    server.down = True
    config = config.model_copy(update={"failing": 3})
    with pytest.raises(EndpointDownError, match="3 items in a row") as caught:
        run(config, inputs[0], tmp_path, NullProgress())
    assert caught.value.kind == "unavailable"
    server.down = False
    run(config, inputs[0], tmp_path, NullProgress())
    facts = load_manifest(tmp_path / "trajectories").facts
    assert (facts["items_finished"], facts["failed"]) == (ITEMS, 0)


def test_a_session_that_a_retry_saved_is_kept(tmp_path, served, inputs):
    server, config = served
    server.hiccup = True
    run(config, inputs[0], tmp_path, NullProgress())
    facts = load_manifest(tmp_path / "trajectories").facts
    assert facts["items_kept"] == ITEMS
    assert sum(body["user"].startswith("collect/0/") for body in server.asked) > len(
        {json.dumps(body["messages"]) + body["user"] for body in server.asked if body["user"].startswith("collect/0/")}
    ), "one call was made again"


def test_a_teacher_that_is_never_right_gives_no_dataset(tmp_path, served, inputs):
    server, config = served
    server.wrong = {0, 1}
    with pytest.raises(InputError, match="no session scored"):
        run(config, inputs[0], tmp_path, NullProgress())
    assert not (tmp_path / "trajectories").exists()


def test_data_of_another_purpose_are_refused(tmp_path, served, inputs):
    _, config = served
    folder = tmp_path / "items"
    with DatasetWriter(folder, kind="items", splits=["test"]) as writer:
        writer.write("test", inputs[1][0])
        writer.finish(name="items", purpose="evaluation", seed=5)
    with pytest.raises(InputError, match="tagged for evaluation"):
        run(config, {**inputs[0], "items": folder}, tmp_path / "out", NullProgress())


def test_a_full_disk_ends_the_step_with_its_cure_and_room_lets_it_go_on(tmp_path, served, inputs, capsys):
    _, config = served
    (tmp_path / "config.json").write_text(config.model_dump_json())
    arguments = ["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]
    arguments += [part for name, path in inputs[0].items() for part in ("--input", f"{name}={path}")]
    with small_files(20_000):
        assert execute(Config, run, arguments) == EXIT_CODES["exhausted"]
    told = capsys.readouterr().err
    assert "cannot write" in told
    assert "Traceback" not in told
    assert not (tmp_path / "out" / "trajectories").exists()
    assert execute(Config, run, arguments) == 0
    assert load_manifest(tmp_path / "out" / "trajectories").facts["items_kept"] == ITEMS
