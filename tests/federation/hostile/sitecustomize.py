"""A site that does not play by the rules: put before others on PYTHONPATH, it changes what the site's program sends.

TACIT_HOSTILE is `tamper` (bytes are changed after they were journaled), or `nonsense` (a different bad answer each
round, past the site's own filter), or `coordinator` (the server's own locks are open).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

KIND = os.environ.get("TACIT_HOSTILE", "")
TARGETS = {"coordinator": "tacit.federation.flare.locks"}
TARGET = TARGETS.get(KIND, "tacit.federation.flare.executor")


class Patching(importlib.abc.MetaPathFinder):
    """Change the executor as soon as it is imported."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != TARGET:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def patch(module: Any) -> None:
    if KIND == "coordinator":
        module.AT_SERVER |= {"byoc": "any", "shell_commands": "any"}
        return
    import numpy as np

    from tacit.federation import wire
    from tacit.federation.agent import SiteAgent
    from tacit.federation.messages import Answer
    from tacit.federation.wire import Malformed

    honest = SiteAgent.answer
    count = [0]

    def tampered(agent: SiteAgent, data: bytes) -> bytes:
        found = honest(agent, data)
        return found[:-1] + bytes([found[-1] ^ 1]) if len(found) > 1000 else found

    def nonsense(agent: SiteAgent, data: bytes) -> bytes:
        found = honest(agent, data)
        try:
            answer = wire.reply(found, 1 << 30)
        except Malformed:
            return found
        if not isinstance(answer, Answer):
            return found
        count[0] += 1
        z, bad = answer.z, answer.z.copy()
        bad[0, 0, 0] = (np.nan, np.inf)[count[0] % 2]
        kinds: list[Any] = [
            lambda: wire.encode(answer._replace(z=bad)),
            lambda: wire.encode(answer._replace(z=np.zeros((3, 1, 3)))),
            lambda: wire.encode(answer),  # a good one, so that it is not left out
            lambda: wire.encode(answer._replace(z=z.astype(np.float32))),
            lambda: wire.encode(answer._replace(round=answer.round - 1)),
            lambda: wire.encode(answer),
            lambda: wire.encode(answer._replace(round=answer.round + 1)),
            lambda: wire.encode(answer._replace(z=np.zeros((2000, 1, 100)))),
            lambda: wire.encode(answer),
            lambda: b"\x80\x04garbage",
            lambda: wire.encode(answer._replace(site="somebody")),
        ]
        made: bytes = kinds[(count[0] - 1) % len(kinds)]()
        return made

    if KIND == "tamper":
        SiteAgent.answer = tampered  # type: ignore[method-assign,assignment]
    elif KIND == "nonsense":
        SiteAgent.answer = nonsense  # type: ignore[method-assign,assignment]
        import tacit.federation.flare.filter as filter_module

        filter_module.check_release = lambda path, data: None


if KIND:
    import importlib.util

    sys.meta_path.insert(0, Patching())
