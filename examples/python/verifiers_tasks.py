"""A taskset of verifiers v1 with our sandboxes, and an evaluation of it.

    pip install llm-in-sandbox verifiers
    python verifiers_tasks.py                                  # with a script as the model
    vf-eval verifiers_tasks -m MODEL                           # with a real one, in this directory

The agent loop runs in this process: sandboxes need no network and no packages.
"""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import verifiers.v1 as vf
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.utils.loaders import load_environment

from llm_in_sandbox.verifiers import (
    SandboxEnv,
    SandboxEnvConfig,
    SandboxHarness,
    SandboxTask,
    SandboxTaskset,
)

__all__ = ["Counting", "SandboxEnv", "SandboxHarness"]


class CountingTask(SandboxTask):
    def grade(self, row, answer):
        return float(answer == row["ground_truth"])


class Counting(SandboxTaskset):
    task_class = CountingTask

    def rows(self):
        for number, text in enumerate(["one two three", "four five"]):
            yield {
                "id": str(number),
                "problem_statement": "How many words are in text.txt?",
                "files": {"text.txt": text},
                "ground_truth": "3",
            }


class Script(BaseHTTPRequestHandler):
    """Stands for a model behind OpenAI's protocol: counts the words, then submits."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if request["messages"][-1]["role"] == "user":
            command = {"command": "wc -w < input/text.txt > output/answer.txt"}
            call = {"name": "execute_bash", "arguments": json.dumps(command)}
        else:
            call = {"name": "submit", "arguments": "{}"}
        call = {"index": 0, "id": "call", "type": "function", "function": call}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": request["model"]}
        delta = {"role": "assistant", "content": "", "tool_calls": [call]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for change in (
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
            {"choices": [], "usage": usage},
        ):
            self.wfile.write(f"data: {json.dumps({**chunk, **change})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        pass


async def evaluate(base_url, environment=load_environment):
    config = SandboxEnvConfig(taskset={"id": "verifiers_tasks"}, sandbox={"memory": "256M"})
    env = environment(config)
    client = EvalClientConfig(base_url=base_url)
    context = ModelContext(model="script", client=client, sampling=vf.SamplingConfig())
    async with env.serving():
        slots = [slot for task in env.taskset for slot in env.slots(task)]
        return await asyncio.gather(*(env.run_slot(slot, context) for slot in slots))


def main(environment=load_environment):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Script)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        return asyncio.run(evaluate(f"http://127.0.0.1:{server.server_port}/v1", environment))
    finally:
        server.shutdown()


if __name__ == "__main__":
    for episode in main():
        trace = episode.traces[0]
        print(episode.ok, trace.reward, [error.type for error in trace.errors])
