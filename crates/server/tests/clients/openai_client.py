"""OpenAI's own package against the server: files, chats, streams, kept sandboxes, errors."""

import base64
import io

import openai

client = openai.OpenAI(max_retries=0)


def ask(content, **more):
    messages = [{"role": "user", "content": content}]
    return client.chat.completions.create(model="scripted", messages=messages, **more)


def refused(kind, status, call, **expected):
    try:
        call()
    except openai.APIStatusError as error:
        assert isinstance(error, kind), repr(error)
        assert error.status_code == status, repr(error)
        for name, value in expected.items():
            assert getattr(error, name) == value, (name, getattr(error, name), error.body)
        return error
    raise AssertionError("it was not refused")


# Models.
assert [model.id for model in client.models.list()] == ["scripted"]
assert client.models.retrieve("scripted").owned_by == "llm-in-sandbox"

# Files.
words = client.files.create(file=("words.txt", b"one two three\n"), purpose="user_data")
assert words.object == "file" and words.bytes == 14 and words.filename == "words.txt", words
assert client.files.retrieve(words.id).purpose == "user_data"
assert client.files.content(words.id).read() == b"one two three\n"
large = bytes(range(256)) * 20_000
other = client.files.create(file=io.BytesIO(large), purpose="assistants",
                            expires_after={"anchor": "created_at", "seconds": 3600})
assert other.expires_at == other.created_at + 3600, other
assert client.files.content(other.id).read() == large
assert [file.id for file in client.files.list()] == [other.id, words.id]
assert [file.id for file in client.files.list(order="asc", limit=1)] == [words.id, other.id]
assert [file.id for file in client.files.list(purpose="assistants")] == [other.id]
assert client.files.delete(other.id).deleted
refused(openai.NotFoundError, 404, lambda: client.files.retrieve(other.id), code="file_not_found")
refused(openai.BadRequestError, 400,
        lambda: client.files.create(file=b"{}", purpose="fine-tune"), param="purpose")
refused(openai.NotFoundError, 404, lambda: client.files.content("../../etc/passwd"))

# An answer from an uploaded file, and from one that is sent along.
parts = [{"type": "text", "text": "count the words"}, {"type": "file", "file": {"file_id": words.id}}]
answer = client.chat.completions.with_raw_response.create(
    model="scripted", messages=[{"role": "user", "content": parts}], temperature=0.5, seed=7,
    max_completion_tokens=1000, user="ann", metadata={"project": "x"}, store=False)
assert answer.headers["x-episode-id"], answer.headers
chat = answer.parse()
assert chat.choices[0].message.content == "3", chat
assert chat.choices[0].finish_reason == "stop"
assert chat.usage.prompt_tokens > 0 and chat.usage.total_tokens > chat.usage.prompt_tokens
assert chat.episode["outcome"] == "submitted" and chat.episode["turns"] == 2
data = base64.b64encode(b"four words are here\n").decode()
for sent in (data, "data:text/plain;base64," + data):
    parts[1]["file"] = {"file_data": sent, "filename": "words.txt"}
    assert ask(parts).choices[0].message.content == "4"

# Files that the model made are links.
made = ask("make a table")
file = made.episode["files"][0]
assert file["path"] == "tables/numbers.csv" and made.episode["answer"] == "two rows", made.episode
content = made.choices[0].message.content
assert content == f"two rows\n\n[tables/numbers.csv](/v1/files/{file['id']}/content)", content
assert client.files.content(file["id"]).read() == b"1\n2\n"
assert client.files.retrieve(file["id"]).purpose == "assistants_output"

# The model may simply talk, and may reach a limit.
assert ask("talk").choices[0].message.content == "Hello there."
assert ask("endless").choices[0].finish_reason == "length"

# The conversation before the question is part of it.
history = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "My name is Ann."},
           {"role": "assistant", "content": "Hello Ann."}, {"role": "user", "content": "history"}]
chat = client.chat.completions.create(model="scripted", messages=history)
assert chat.choices[0].message.content == "My name is Ann. | Hello Ann. | Be brief.", chat

# Streams.
reasoning, text, finish, usage = "", "", None, None
with ask("count the words", stream=True, stream_options={"include_usage": True}) as stream:
    for chunk in stream:
        if chunk.usage:
            usage = chunk.usage
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            assert not (text and getattr(choice.delta, "reasoning_content", None)), "after the answer"
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
assert "$ wc -w" in reasoning and "[submit]" in reasoning, reasoning
assert (text, finish) == ("0", "stop") and usage.total_tokens > 0

# A kept sandbox.
first = client.chat.completions.with_raw_response.create(
    model="scripted", messages=[{"role": "user", "content": "remember"}], extra_body={"sandbox": "new"})
sandbox = first.headers["x-sandbox-id"]
assert first.parse().episode["sandbox"]["id"] == sandbox
second = ask("recall", extra_body={"sandbox": sandbox})
assert second.choices[0].message.content == "kept", second
third = ask("silent", extra_headers={"x-sandbox-id": sandbox})
assert third.choices[0].message.content == "", "an earlier answer was taken for this one"
refused(openai.NotFoundError, 404, lambda: ask("recall", extra_body={"sandbox": "0" * 24}),
        code="sandbox_not_found", param="sandbox")

# What cannot be honoured is refused.
refused(openai.BadRequestError, 400, lambda: ask("talk", n=2), param="n", code="unsupported_parameter")
tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
refused(openai.BadRequestError, 400, lambda: ask("talk", tools=[tool]), param="tools")
refused(openai.BadRequestError, 400, lambda: ask("talk", logprobs=True), param="logprobs")
schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}
refused(openai.BadRequestError, 400, lambda: ask("talk", response_format=schema), param="response_format")
refused(openai.BadRequestError, 400, lambda: ask("talk", temperature=9), param="temperature")
refused(openai.BadRequestError, 400, lambda: ask("  "))
image = [{"type": "text", "text": "talk"},
         {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]
refused(openai.BadRequestError, 400, lambda: ask(image), param="messages")
missing = [{"type": "text", "text": "talk"}, {"type": "file", "file": {"file_id": "file-none"}}]
refused(openai.NotFoundError, 404, lambda: ask(missing), code="file_not_found")
refused(openai.NotFoundError, 404,
        lambda: client.chat.completions.create(model="other", messages=history), code="model_not_found")

print("done")
