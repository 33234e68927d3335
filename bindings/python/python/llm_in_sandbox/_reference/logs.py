"""Loggers of the reference's interface, without its dependency on `rich`."""

from __future__ import annotations

import logging

__all__ = ["agent_logger", "runtime_logger"]

_DATED = "%(asctime)s - %(name)s - %(levelname)s - %(message)s"


def agent_logger(name: str) -> logging.Logger:
    """A logger that writes messages from level INFO to standard error, and to no other handler.

    Other loggers keep their handlers. (The reference removes those of the root logger.)
    """
    logger = logging.getLogger(name)
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)-8s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger


def runtime_logger(name: str, level: int = logging.INFO) -> logging.Logger:
    """A logger with a handler that shows time, name and level; an existing handler is kept."""
    logger = logging.getLogger(name)
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_DATED))
        logger.addHandler(handler)
        logger.setLevel(level)
    return logger
