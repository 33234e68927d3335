"""Implementation of the reference package's interface on our sandboxes.

Public names are in the reference's own modules (`llm_in_sandbox.agent`, `.docker_runtime`, ...); these are its parts.
"""
