"""`Action`: a tool call, as code written for the reference package passes it around."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["Action"]

_FUNCTION = re.compile(r"<function\s*=\s*([^>\s]+)\s*>")
_PARAMETER = re.compile(r"<parameter\s*=\s*([^>\s]+)\s*>(.*?)</parameter>", re.DOTALL)


class Action:
    """A tool call: the name of the tool and its arguments.

    An empty name stands for a response without a tool call. `function_id` is accepted and not kept.
    """

    def __init__(self, function_name: str, parameters: dict[str, Any], function_id: str | None = None) -> None:
        self.function_name = function_name
        self.parameters = parameters

    @classmethod
    def from_string(cls, text: str) -> Action:
        """Reads `<function=NAME><parameter=KEY>VALUE</parameter></function>`; text without a call is an empty action.

        Values are texts. The released environment calls this method with texts; version 0.2.0 of the reference does not
        have it.
        """
        function = _FUNCTION.search(text)
        if function is None:
            return cls("", {})
        parameters = {key: value.strip() for key, value in _PARAMETER.findall(text, function.end())}
        return cls(function.group(1), parameters)

    def to_dict(self) -> dict[str, Any]:
        """The action as it appears in `trajectory.json`."""
        return {"function": self.function_name, "parameters": self.parameters}

    def __str__(self) -> str:
        return str(self.to_dict())

    def __repr__(self) -> str:
        return f"Action({self.function_name!r}, {self.parameters!r})"
