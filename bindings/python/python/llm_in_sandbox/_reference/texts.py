"""Sentences of observations that are ours.

Everything else in an observation (exit codes, headings, errors) is the reference's, because code and trained models
read it. These sentences only advise the model.
"""

#: The observation of a response without a tool call.
NO_TOOL_CALL = """
The response has no tool call, so nothing was done.
Every response has to call one of the tools. Nobody answers questions: decide for yourself and continue.
"""

#: Stands for the lines left out in the middle of long output.
LINES_LEFT_OUT = (
    "-" * 50,
    "<Lines in the middle are left out to save context>",
    "-" * 50,
)

#: Follows text that was cut off.
CLIPPED = (
    "<response clipped><NOTE>The rest is left out to save context. Find the line numbers you need with `grep -n`, then"
    " view that range.</NOTE>"
)

#: Follows a created file.
REVIEW_FILE = "Check that the file is as you want it, and edit it if not."

#: Follows a replacement.
REVIEW_REPLACEMENT = "Check that the change is as you want it, and edit the file again if not."

#: Follows an insertion.
REVIEW_INSERTION = (
    "Check that the change is as you want it (indentation, no duplicate lines), and edit the file again if not."
)


def not_viewable(path: str) -> str:
    """The observation of `view` for a file of another kind."""
    return f"ERROR: `view` shows only .py and .rst files, to save context. File '{path}' is not one: use cat or sed."
