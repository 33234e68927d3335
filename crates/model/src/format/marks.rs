//! The marks with which model families delimit calls in their text.
//!
//! Data only; `find` interprets them.

/// Marks around calls.
pub(super) const TAGS: [(&str, &str); 12] = [
    ("<tool_call>", "</tool_call>"),
    ("<tool_calls>", "</tool_calls>"),
    ("<tools>", "</tools>"),
    ("<function_call>", "</function_call>"),
    ("<functioncall>", "</functioncall>"),
    ("<|tool_call|>", "<|/tool_call|>"),
    ("<|tool_call>", "<tool_call|>"),
    ("<|python_tag|>", "<|eom_id|>"),
    ("<minimax:tool_call>", "</minimax:tool_call>"),
    ("<function_calls>", "</function_calls>"),
    ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    ("<|tool_call_begin|>", "<|tool_call_end|>"),
];

/// Marks around marks.
pub(super) const OUTER: [&str; 2] = ["<｜tool▁calls▁begin｜>", "<|tool_calls_section_begin|>"];

/// What separates the name of a tool from its arguments.
pub(super) const BETWEEN: [&str; 3] = ["[ARGS]", "<｜tool▁sep｜>", "<|tool_call_argument_begin|>"];

/// How early DeepSeek models begin a call.
pub(super) const DEEPSEEK: &str = "function<｜tool▁sep｜>";

/// The mark of Mistral's models.
pub(super) const MISTRAL: &str = "[TOOL_CALLS]";

/// Marks that only the other side writes: after a call, the model is imagining them.
pub(super) const IMAGINED: [&str; 4] =
    ["<tool_response", "<|im_start|>", "<|im_end|>", "<|eot_id|>"];

/// Languages of fenced blocks that may contain a call.
pub(super) const KINDS: [&str; 9] =
    ["", "json", "json5", "jsonc", "xml", "tool_call", "tool_code", "text", "javascript"];
