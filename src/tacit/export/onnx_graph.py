"""The graph of a model in ONNX: the table's own columns or pixels in, label and probabilities out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tacit.data import read_schema
from tacit.data.mapping import length_share
from tacit.data.maps import NONE, Raw
from tacit.data.schema import Categorical, Numeric, Schema
from tacit.export.graph import DOUBLE, TEXT, Graph
from tacit.export.onnx_maps import mapped_node
from tacit.study.use import Model
from tacit.types import Array, Classes
from tacit.version import VERSION

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8  # of 2022: what is in use everywhere reads them


def onnx_model(onnx: Any, model: Model, run: str, privacy: str) -> Any:
    """The model with its encoding, by the package `onnx`; `run` names it, `privacy` is what was promised."""
    graph, helper = Graph(onnx), onnx.helper
    schema = read_schema(model.schema) if model.schema is not None else None
    x = _encoded(graph, schema) if schema is not None else graph.take("features", DOUBLE, len(model.columns))
    scores = _scores(graph, model, _mapped(graph, model, x))
    outputs = _classes(graph, model, scores) if isinstance(model.target, Classes) else _value(graph, model, scores)
    made = helper.make_model(
        helper.make_graph(graph.nodes, "tacit", graph.inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="tacit",
        producer_version=VERSION,
    )
    classes = list(model.target.names) if isinstance(model.target, Classes) else []
    facts = {"run": run, "label": model.label, "privacy": privacy}
    lists = {"features": json.dumps(list(model.features)), "classes": json.dumps(classes)}
    helper.set_model_props(made, {f"tacit.{name}": value for name, value in (facts | lists).items()})
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
    phi = mapped_node(graph, x, own.features, Raw(len(model.columns), model.image))
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
