"""A tokenizer and a model without a download: bytes as tokens, one random layer, and Qwen's chat template from TRL."""

from importlib import resources

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config

#: The response of a model that calls a tool, as Qwen writes it.
CALL = '<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def tokenizer():
    """One token for each byte, and Qwen's control tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_only = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bytes_only.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=bytes_only)
    made.add_special_tokens({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})
    made.add_tokens(["<|im_start|>"], special_tokens=True)
    made.add_tokens(["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"])
    template = resources.files("trl") / "chat_templates" / "qwen3.jinja"
    made.chat_template = template.read_text(encoding="utf-8")
    return made


def config(vocabulary):
    """The smallest Qwen3."""
    return Qwen3Config(
        architectures=["Qwen3ForCausalLM"],
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=16_384,
        eos_token_id=vocabulary.eos_token_id,
        pad_token_id=vocabulary.pad_token_id,
        tie_word_embeddings=True,
    )
