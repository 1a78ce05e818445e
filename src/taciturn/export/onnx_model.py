"""A model as an ONNX file: columns or pixels in, label and probabilities out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taciturn.core.storage import atomic_write
from taciturn.data import read_schema
from taciturn.data.feature_mapping import length_share
from taciturn.data.feature_maps import NONE, InputShape, build_map
from taciturn.data.feature_maps.exact_arithmetic import FINE, normalize_rows
from taciturn.data.feature_maps.fourier import STEPS, Fourier
from taciturn.data.feature_maps.pixels import Pixels
from taciturn.data.feature_maps.scattering import DIRECTIONS, FAINT, LEVELS, PLACES, Blur, Scattering, Wavelets
from taciturn.data.schema import Categorical, Numeric, Schema
from taciturn.errors import InputError
from taciturn.export.target import TARGETS, ExportRequest, Target, chosen_model, needed, privacy_sentence
from taciturn.runs.model import Model
from taciturn.types import Array, Classes
from taciturn.version import VERSION

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


def mapped_node(graph: Graph, x: str, features: str, raw: InputShape) -> str:
    """phi(x) for encoded records x, without the intercept."""
    phi = build_map(features, raw)
    if phi is normalize_rows:
        return _of_length_one(graph, x)
    if type(phi) not in NODES:
        raise InputError(f"the feature map {features} has no form in ONNX: export to csv, or use taciturn predict")
    return NODES[type(phi)](graph, x, phi)


def _fourier(graph: Graph, x: str, phi: Fourier) -> str:
    steps = graph.add("Round", [_times(graph, x, STEPS)])
    phase = _times(graph, graph.add("MatMul", [steps, graph.constant(phi.frequencies)]), 1.0 / STEPS)
    cosine = graph.add(
        "Sin", [graph.add("Add", [phase, graph.constant(np.float64(0.5 * math.pi))])]
    )  # all runtimes have it
    return _of_length_one(graph, graph.add("Concat", [cosine, graph.add("Sin", [phase])], axis=1))


def _pixels(graph: Graph, x: str, phi: Pixels) -> str:
    blurred = _whole_product(graph, _as_bytes(graph, x), phi.blur)
    smooth = _of_length_one(
        graph, graph.add("Div", [_cast(graph, blurred, DOUBLE), graph.constant(np.float64(phi.scale))])
    )
    return _of_length_one(graph, graph.add("Sub", [smooth, graph.constant(phi.centre)]))


def _scattering(graph: Graph, x: str, phi: Scattering) -> str:
    pixels = _as_bytes(graph, x)
    parts = [_blur(graph, pixels, phi.image, 1)]
    for size, of_size in enumerate(phi.first):
        u = _wavelets(graph, pixels, of_size)  # [n DIRECTIONS, grid]
        parts.append(_blur(graph, u, phi.blurs[size], DIRECTIONS))
        for larger in range(size + 1, len(phi.first)):
            again = _wavelets(graph, u, phi.second[size, larger])
            parts.append(_blur(graph, again, phi.blurs[larger], DIRECTIONS**2))
    channels = graph.add("Concat", parts, axis=1)
    return _of_length_one(graph, graph.add("Sub", [channels, graph.constant(phi.centre)]))


def _wavelets(graph: Graph, u: str, wavelets: Wavelets) -> str:
    """[m, grid before] -> [m DIRECTIONS, grid]."""
    parts = graph.split(_whole_product(graph, u, wavelets.weights), 2, axis=1)
    squares = graph.add("Add", [graph.add("Mul", [part, part]) for part in parts])
    scaled = graph.add("Mul", [graph.add("Sqrt", [squares]), graph.constant(np.float32(wavelets.scale))])
    capped = graph.add("Min", [graph.add("Round", [scaled]), graph.constant(np.float32(LEVELS))])
    return _shaped(graph, capped, wavelets.side**2)


def _blur(graph: Graph, u: str, blur: Blur, channels: int) -> str:
    """[n channels, grid] -> [n, channels PLACES^2], each channel scaled to length 1."""
    there = _cast(graph, _whole_product(graph, u, blur.weights), DOUBLE)
    length = graph.add("Add", [_length(graph, there), graph.constant(np.float64(FAINT))])
    return _shaped(graph, graph.add("Div", [there, length]), channels * PLACES**2)


def _as_bytes(graph: Graph, x: str) -> str:
    whole = graph.add("Round", [_times(graph, x, 255.0)])
    clipped = graph.add("Clip", [whole, graph.constant(np.float64(0.0)), graph.constant(np.float64(255.0))])
    return _cast(graph, clipped, FLOAT)


def _whole_product(graph: Graph, u: str, weights: Any) -> str:
    """A product with whole numbers, which take little room as such."""
    return graph.add("MatMul", [u, _cast(graph, graph.constant(weights.astype(np.int16)), FLOAT)])


def _of_length_one(graph: Graph, x: str) -> str:
    steps = graph.add("Round", [_times(graph, x, FINE)])
    return graph.add("Div", [steps, graph.add("Max", [_length(graph, steps), graph.constant(np.float64(1.0))])])


def _length(graph: Graph, x: str) -> str:
    axes = graph.constant(np.array([1], np.int64))
    return graph.add("Sqrt", [graph.add("ReduceSum", [graph.add("Mul", [x, x]), axes], keepdims=1)])


def _times(graph: Graph, x: str, factor: float) -> str:
    return graph.add("Mul", [x, graph.constant(np.float64(factor))])


def _cast(graph: Graph, x: str, kind: int) -> str:
    return graph.add("Cast", [x], to=kind)


def _shaped(graph: Graph, x: str, columns: int) -> str:
    return graph.add("Reshape", [x, graph.constant(np.array([-1, columns], np.int64))])


NODES: dict[type, Callable[[Graph, str, Any], str]] = {Fourier: _fourier, Pixels: _pixels, Scattering: _scattering}


OPSET, ML_OPSET, IR_VERSION = 17, 3, 8  # of 2022: what is in use everywhere reads them


def onnx_model(onnx: Any, model: Model, run: str, privacy: str) -> Any:
    """The model with its encoding, by the package `onnx`; `run` names it, `privacy` is what was promised."""
    graph, helper = Graph(onnx), onnx.helper
    schema = read_schema(model.schema) if model.schema is not None else None
    x = _encoded(graph, schema) if schema is not None else graph.take("features", DOUBLE, len(model.columns))
    scores = _scores(graph, model, _mapped(graph, model, x))
    outputs = _classes(graph, model, scores) if isinstance(model.target, Classes) else _value(graph, model, scores)
    made = helper.make_model(
        helper.make_graph(graph.nodes, "taciturn", graph.inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="taciturn",
        producer_version=VERSION,
    )
    classes = list(model.target.names) if isinstance(model.target, Classes) else []
    facts = {"run": run, "label": model.label, "privacy": privacy}
    lists = {"features": json.dumps(list(model.features)), "classes": json.dumps(classes)}
    helper.set_model_props(made, {f"taciturn.{name}": value for name, value in (facts | lists).items()})
    onnx.checker.check_model(made, full_check=True)
    return made


def _encoded(graph: Graph, schema: Schema) -> str:
    """A table's columns, each under its own name, as the schema encodes them."""
    parts = [
        _numeric(graph, rule, schema.scale) if isinstance(rule, Numeric) else _categorical(graph, rule)
        for rule in schema.columns
    ]
    return graph.add("Concat", parts, axis=1)


def _numeric(graph: Graph, rule: Numeric, scale: str) -> str:
    """Clip to the bounds, scale; a missing value, which is NaN or infinite, becomes what the schema says."""
    value = graph.take(rule.name, DOUBLE, 1)
    for missing in ("IsNaN", "IsInf"):
        value = graph.add("Where", [graph.add(missing, [value]), graph.constant(np.float64(rule.fill)), value])
    clipped = graph.add("Clip", [value, graph.constant(np.float64(rule.low)), graph.constant(np.float64(rule.high))])
    a, b = rule.scaling(scale)
    return graph.add("Add", [graph.add("Mul", [clipped, graph.constant(np.float64(a))]), graph.constant(np.float64(b))])


def _categorical(graph: Graph, rule: Categorical) -> str:
    """A 1 for the category and 0 for the others; a text that is none of them counts as missing."""
    places = {category: place for place, category in enumerate(rule.categories)}
    codes = graph.add(
        "LabelEncoder",
        [graph.take(rule.name, TEXT, 1)],
        keys_strings=list(places),
        values_int64s=list(places.values()),
        default_int64=rule.fill,
    )
    same = graph.add("Equal", [codes, graph.constant(np.arange(len(rule.categories), dtype=np.int64))])
    return graph.add("Cast", [same], to=DOUBLE)


def _mapped(graph: Graph, model: Model, x: str) -> str:
    """After the feature map, if there is one; without the intercept, as before."""
    own = model.settings
    if own.features == NONE:
        return x
    phi = mapped_node(graph, x, own.features, InputShape(len(model.columns), model.image))
    return graph.add("Mul", [phi, graph.constant(np.float64(length_share(own.intercept)))])


def _scores(graph: Graph, model: Model, x: str) -> str:
    w: Array = model.w.astype(np.float64)
    if not model.settings.intercept:
        return graph.add("MatMul", [x, graph.constant(w)])
    last = w[-1] if model.settings.features == NONE else length_share(intercept=True) * w[-1]
    return graph.add("Add", [graph.add("MatMul", [x, graph.constant(w[:-1])]), graph.constant(last)])


def _classes(graph: Graph, model: Model, scores: str) -> list[Any]:
    """The class of the highest score, none where there is no score, and probabilities where the loss has them."""
    names = model.target.names if isinstance(model.target, Classes) else ()
    total = graph.add("ReduceSum", [scores, graph.constant(np.array([1], np.int64))], keepdims=0)
    highest = graph.add("ArgMax", [scores], axis=1, keepdims=0)
    best = graph.add("Where", [graph.add("IsNaN", [total]), graph.constant(np.int64(len(names))), highest])
    graph.add("Gather", [graph.constant(np.array([*names, ""], dtype=object)), best], "label")
    has_chances = model.loss.probabilities(np.zeros((1, len(names)))) is not None
    second = "probabilities" if has_chances else "scores"
    graph.add("Softmax" if has_chances else "Identity", [scores], second, **({"axis": 1} if has_chances else {}))
    return [
        graph.onnx.helper.make_tensor_value_info("label", TEXT, ["records"]),
        graph.onnx.helper.make_tensor_value_info(second, DOUBLE, ["records", len(names)]),
    ]


def _value(graph: Graph, model: Model, scores: str) -> list[Any]:
    """A number in its own unit."""
    if isinstance(model.target, Classes):
        raise TypeError("a class is no number")
    width = graph.constant(np.float64(model.target.high - model.target.low))
    graph.add("Add", [graph.add("Mul", [scores, width]), graph.constant(np.float64(model.target.low))], "prediction")
    return [graph.onnx.helper.make_tensor_value_info("prediction", DOUBLE, ["records", 1])]


def write_onnx(request: ExportRequest) -> list[str]:
    """Write the model, with what it takes to use it."""
    onnx = needed("onnx", "onnx")
    model, said = chosen_model(request)
    path = request.place("model.onnx")
    made = onnx_model(onnx, model, request.folder.path.resolve().name, privacy_sentence(request.folder))
    with atomic_write(path) as file:
        file.write(made.SerializeToString())
    inputs = ", ".join(entry.name for entry in made.graph.input)
    outputs = ", ".join(entry.name for entry in made.graph.output)
    return [*said, f"{model.label} in {path}", f"it takes {inputs} and gives {outputs}; any ONNX runtime opens it"]


TARGETS.register("onnx")(Target("the model for any ONNX runtime, encoding included", write_onnx, frozenset({"out"})))
