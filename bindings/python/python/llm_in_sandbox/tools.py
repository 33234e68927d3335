"""The three tools in OpenAI's format, for clients that send them to a model themselves.

Names and arguments are those of the reference package; the descriptions are ours. Commands of `execute_bash` are
separate processes here: `_execute_action` keeps no shell between calls.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ALLOWED_STR_REPLACE_EDITOR_COMMANDS",
    "execute_bash_tool",
    "str_replace_editor_tool",
    "submit_tool",
]

ALLOWED_STR_REPLACE_EDITOR_COMMANDS = ["view", "create", "str_replace", "insert"]


def _tool(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


execute_bash_tool = _tool(
    "execute_bash",
    "Run a command with bash and get its exit code, stdout and stderr.\n"
    "- Each call starts a new shell in the working directory: files last, variables and `cd` do not.\n"
    "- Nobody answers questions: pass options such as -y, and do not start editors or pagers.\n"
    "- A command is killed after 120 s. Of long output only the first and last lines are shown.",
    {"command": {"type": "string", "description": "What bash runs; several lines are fine."}},
    ["command"],
)

str_replace_editor_tool = _tool(
    "str_replace_editor",
    "Look at and change text files.\n"
    "- `view`: a Python or reStructuredText file with line numbers, or a part of it (`view_range`); for a directory, its"
    " directories and such files, two levels deep. Use cat or sed for other files.\n"
    "- `create`: write `file_text` to a file, replacing what was there. Missing directories are made.\n"
    "- `str_replace`: put `new_str` in the place of `old_str`, which must occur exactly once in the file, white space"
    " included and without line numbers. Add neighboring lines until it is unique.\n"
    "- `insert`: put `new_str` as new lines after line `insert_line`.",
    {
        "command": {
            "type": "string",
            "enum": ALLOWED_STR_REPLACE_EDITOR_COMMANDS,
            "description": "What to do.",
        },
        "path": {"type": "string", "description": "The file or directory, as an absolute path."},
        "file_text": {"type": "string", "description": "For `create`: everything the file is to hold."},
        "old_str": {"type": "string", "description": "For `str_replace`: the text to be replaced."},
        "new_str": {
            "type": "string",
            "description": "For `str_replace`: the text that takes its place; nothing if left out."
            " For `insert`: the lines to be inserted.",
        },
        "insert_line": {
            "type": "integer",
            "description": "For `insert`: the line after which to insert; 0 is the top of the file.",
        },
        "view_range": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "For `view`: the first and the last line to show, counted from 1, such as [11, 40]; -1 as"
            " the last stands for the end.",
        },
    },
    ["command", "path"],
)

submit_tool = _tool(
    "submit",
    "Declare the task done. Call it once, when everything that was asked for is in place and checked: nothing can be"
    " done afterwards.",
    {},
    [],
)
