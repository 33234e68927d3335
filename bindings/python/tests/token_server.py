"""A server of tokens, as vLLM is one, whose responses are scripted, and a tokenizer in which every byte is a token."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAME = "scripted"
LOGPROB = -0.25
END = 258
_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)


def save_tokenizer(directory: Path) -> Path:
    """Writes the files of the tokenizer."""
    vocabulary = {letter: byte for byte, letter in enumerate(_letters())}
    vocabulary |= {name: 256 + number for number, name in enumerate(_CONTROL)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": vocabulary[name], "content": name, **flags} for name in _CONTROL],
        "pre_tokenizer": level,
        "post_processor": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"eos_token": "<|im_end|>", "chat_template": _TEMPLATE, "add_bos_token": False}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def _letters() -> list[str]:
    """The letters that stand for bytes in byte-level vocabularies."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def decoded(tokens: list[int]) -> str:
    """The text of tokens, without control tokens."""
    return bytes(token for token in tokens if token < 256).decode()


class TokenServer:
    """Answers with the text that `respond` returns for the text of a prompt and the seed of a request. What it raises is an
    error of the request."""

    def __init__(self, respond: Callable[[str, int], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply({"data": [{"id": NAME, "max_model_len": 65_536, "owned_by": "vllm"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                prompt: list[int] = body["prompt"]
                text = "".join(_CONTROL[t - 256] if t > 255 else chr(t) for t in prompt)
                try:
                    sampled = [*respond(text, body["seed"]).encode(), END]
                except Exception as error:
                    self._reply({"error": {"message": str(error)}}, 400)
                    return
                logprobs = {
                    "tokens": [f"token_id:{token}" for token in sampled],
                    "token_logprobs": [LOGPROB] * len(sampled),
                    "top_logprobs": [],
                    "text_offset": [],
                }
                choice = {
                    "index": 0,
                    "text": "",
                    "prompt_token_ids": prompt,
                    "token_ids": sampled,
                    "logprobs": logprobs,
                    "finish_reason": "stop",
                    "stop_reason": END,
                }
                self._reply({"id": "1", "choices": [choice], "usage": {"prompt_tokens": len(prompt)}})

            def _reply(self, value: Any, status: int = 200) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> TokenServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
