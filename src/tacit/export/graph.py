"""An ONNX graph as it is put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FLOAT, TEXT, DOUBLE = 1, 8, 11  # ONNX's numbers for a float32, a string and a float64


@dataclass
class Graph:
    """Nodes and constants as they are added."""

    onnx: Any  # the package
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """The name of a node's result."""
        name = output or f"{kind.lower()}_{len(self.nodes)}"
        self._node(kind, inputs, [name], attributes)
        return name

    def split(self, x: str, parts: int, axis: int) -> list[str]:
        """The names of equal parts."""
        names = [f"split_{len(self.nodes)}_{part}" for part in range(parts)]
        self._node("Split", [x], names, {"axis": axis})
        return names

    def take(self, name: str, kind: int, width: int) -> str:
        """A column, or several, of the records."""
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, ["records", width]))
        return name

    def _node(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], attributes: dict[str, Any]) -> None:
        domain = "ai.onnx.ml" if kind == "LabelEncoder" else ""
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), list(outputs), domain=domain, **attributes))
