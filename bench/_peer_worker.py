"""One framework's agent episode in a process of its own: `python _peer_worker.py FRAMEWORK EPISODES`, prints one JSON line.

The episode is the same everywhere: a viewer asks, a scripted in-process model calls a tool, the tool answers, the model
replies. An agent is built once; `EPISODES` of them follow 20 that are not counted. Prints CPU milliseconds an episode and
the memory held at the end. Not here: who is compared with whom (harness_peers).
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

QUESTION, ANSWER, FOUND = "how much is the red mug", "the red mug is 39 yuan bye", "red mug : price 39 , stock 7"
SYSTEM = "You host a shop. " * 30
Episode = Callable[[int], Awaitable[str]]


def langchain(kept: bool = False) -> Episode:
    """`create_agent` (LangGraph), async; `kept`: every state stays readable in its `InMemorySaver`, a thread an episode."""
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
            if isinstance(messages[-1], ToolMessage):
                message = AIMessage(content=ANSWER)
            else:
                call = {"name": "get_item", "args": {"item": "red mug"}, "id": "a"}
                message = AIMessage(content="", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=message)])

        async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
            return self._generate(messages)

    @tool
    async def get_item(item: str) -> str:
        """Look up one product."""
        return FOUND

    saver = None
    if kept:
        from langgraph.checkpoint.memory import InMemorySaver

        saver = InMemorySaver()
    agent = create_agent(model=Scripted(), tools=[get_item], system_prompt=SYSTEM, checkpointer=saver)

    async def run(number: int) -> str:
        config: Any = {"configurable": {"thread_id": str(number)}}
        state = await agent.ainvoke({"messages": [{"role": "user", "content": QUESTION}]}, config)
        return str(state["messages"][-1].content)

    return run


def openai_agents(kept: bool = False) -> Episode:
    """OpenAI Agents SDK with a model of one's own; tracing off, or `kept` by a processor that lists its spans."""
    from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
    from agents.tracing import TracingProcessor, set_trace_processors
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Keep(TracingProcessor):
        """The spans of the last episode."""

        def __init__(self) -> None:
            self.spans: list[Any] = []

        def on_trace_start(self, trace: Any) -> None:
            self.spans = []

        def on_trace_end(self, trace: Any) -> None: ...

        def on_span_start(self, span: Any) -> None: ...

        def on_span_end(self, span: Any) -> None:
            self.spans.append(span.export())

        def shutdown(self) -> None: ...

        def force_flush(self) -> None: ...

    keep = Keep()
    set_tracing_disabled(not kept)
    set_trace_processors([keep])

    class Scripted(Model):
        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
            last = input[-1] if isinstance(input, list) else {}
            if isinstance(last, dict) and last.get("type") == "function_call_output":
                text = ResponseOutputText(annotations=[], text=ANSWER, type="output_text")
                output: Any = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            else:
                output = ResponseFunctionToolCall(
                    arguments='{"item": "red mug"}', call_id="a", name="get_item", type="function_call"
                )
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    @function_tool
    async def get_item(item: str) -> str:
        """Look up one product."""
        return FOUND

    agent = Agent(name="host", instructions=SYSTEM, model=Scripted(), tools=[get_item])

    async def run(_: int) -> str:
        said = str((await Runner.run(agent, QUESTION)).final_output)
        assert bool(keep.spans) is kept
        return said

    return run


def pydantic_ai() -> Episode:
    """pydantic-ai with `FunctionModel` and an async tool."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    async def scripted(messages: Any, _: Any) -> ModelResponse:
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return ModelResponse(parts=[TextPart(ANSWER)])
        return ModelResponse(parts=[ToolCallPart("get_item", {"item": "red mug"})])

    agent = Agent(FunctionModel(scripted), system_prompt=SYSTEM)

    @agent.tool_plain
    async def get_item(item: str) -> str:
        """Look up one product."""
        return FOUND

    async def run(_: int) -> str:
        return str((await agent.run(QUESTION)).output)

    return run


def floor() -> Episode:
    """The least that a loop must do."""
    from harness_episode import floor_episode

    async def run(number: int) -> str:
        floor_episode(SYSTEM, number)
        return ANSWER

    return run


def hatstack(hooks: bool = False) -> Episode:
    """A session through the async driver, with its trace; `hooks`: eight of them."""
    from harness_episode import ROOM, harness

    from hat_harness.drive import run_async
    from hat_harness.events import ModelOutput, ToolCall, ToolResult, ViewerMessage
    from hat_harness.hooks import compile_hooks
    from hat_harness.session import Session

    given = harness(hooks)
    compiled = compile_hooks(given)

    class Scripted:
        async def generate(self, session_id: str, call: Any) -> ModelOutput:
            if call.messages[-1].role == "tool":
                return ModelOutput(call.call_id, ANSWER)
            asked = ToolCall("", "tool_3", {"item": "red mug", "count": 2})
            return ModelOutput(call.call_id, "", "look up", (asked,), "tool_calls")

    class Shop:
        async def call(self, session_id: str, request: Any) -> ToolResult:
            return ToolResult(request.call_id, FOUND)

    async def run(number: int) -> str:
        session = Session(given, session_id=f"s{number}", room=ROOM, hooks=compiled)
        await run_async(session, [ViewerMessage((QUESTION,))], Scripted(), Shop())
        return str(session.trace.segments[-1].messages[-1].content)

    return run


FRAMEWORKS: dict[str, Callable[[], Episode]] = {
    "floor": floor,
    "hatstack": hatstack,
    "hatstack-8-hooks": lambda: hatstack(True),
    "langchain": langchain,
    "langchain-kept": lambda: langchain(True),
    "openai-agents": openai_agents,
    "openai-agents-kept": lambda: openai_agents(True),
    "pydantic-ai": pydantic_ai,
}


async def measure(name: str, episodes: int) -> dict[str, float]:
    """CPU milliseconds an episode and MB at the end."""
    began = time.process_time()
    run = FRAMEWORKS[name]()
    started = time.process_time() - began
    for number in range(20):
        assert await run(number) == ANSWER
    began = time.process_time()
    for number in range(episodes):
        await run(20 + number)
    spent = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu_ms": spent / episodes * 1e3, "start_cpu_s": started, "peak_mb": memory}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2])))))
