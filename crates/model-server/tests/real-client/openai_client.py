"""OpenAI's own client against our endpoint: `openai_client.py BASE_URL KEY`.

Prints one JSON object with what it saw; the test that started it judges.
"""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0, timeout=30)
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


def ask(text, **more):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model="scripted", messages=messages, **more)


def failure(do):
    try:
        do()
    except openai.APIError as error:
        status = getattr(error, "status_code", None)
        return [type(error).__name__, status, error.code, error.param]


seen = {"models": [model.id for model in client.models.list()]}
seen["one"] = client.models.retrieve("scripted").object

reply = ask("think", temperature=0.5, max_completion_tokens=50, stop=["x"], seed=1)
choice = reply.choices[0]
seen["text"] = choice.message.content
seen["reasoning"] = choice.message.reasoning_content
seen["finish"] = choice.finish_reason
seen["usage"] = [
    reply.usage.prompt_tokens,
    reply.usage.completion_tokens,
    reply.usage.total_tokens,
    reply.usage.prompt_tokens_details.cached_tokens,
]

stream = ask("think", stream=True, stream_options={"include_usage": True})
pieces, thoughts, total, finish = [], [], None, None
for chunk in stream:
    if chunk.usage:
        total = chunk.usage.total_tokens
    for choice in chunk.choices:
        pieces.append(choice.delta.content or "")
        thoughts.append(getattr(choice.delta, "reasoning_content", None) or "")
        finish = choice.finish_reason or finish
seen["streamed"] = ["".join(pieces), "".join(thoughts), finish, total]
seen["pieces"] = sum(1 for piece in pieces if piece)

messages = [{"role": "user", "content": "add"}]
reply = client.chat.completions.create(model="scripted", messages=messages, tools=[TOOL])
message = reply.choices[0].message
call = message.tool_calls[0]
seen["call"] = [call.function.name, json.loads(call.function.arguments), reply.choices[0].finish_reason]
messages.append(message)
messages.append({"role": "tool", "tool_call_id": call.id, "content": "5"})
reply = client.chat.completions.create(model="scripted", messages=messages, tools=[TOOL])
seen["after"] = reply.choices[0].message.content

with client.chat.completions.stream(
    model="scripted", messages=[{"role": "user", "content": "add"}], tools=[TOOL]
) as events:
    for _ in events:
        pass
    final = events.get_final_completion()
call = final.choices[0].message.tool_calls[0]
seen["streamed_call"] = [call.function.name, json.loads(call.function.arguments), final.choices[0].message.content]

picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
parts = [{"type": "text", "text": "picture"}, picture]
reply = client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": parts}])
seen["picture"] = reply.choices[0].message.content

seen["failures"] = [
    failure(lambda: client.chat.completions.create(model="other", messages=[{"role": "user", "content": "x"}])),
    failure(lambda: ask("long")),
    failure(lambda: ask("x", n=2)),
    failure(lambda: ask("x", temperature="hot")),
    failure(lambda: client.with_options(api_key="wrong").models.list()),
    failure(lambda: list(ask("breaks", stream=True))),
]
print(json.dumps(seen))
