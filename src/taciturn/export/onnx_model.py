"""A model as an ONNX file that includes its encoding: columns or pixels in, label and probabilities out."""

from __future__ import annotations

import itertools
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
from taciturn.data.feature_maps.bins import KNOTS, PAIR_KNOTS, Bins
from taciturn.data.feature_maps.feature_map import FINE, normalize_rows
from taciturn.data.feature_maps.fourier import STEPS, Fourier
from taciturn.data.feature_maps.pixels import Pixels
from taciturn.data.feature_maps.scattering import COARSE, DIRECTIONS, FAINT, LEVELS, PLACES, Blur, Scattering, Wavelets
from taciturn.data.schema import Categorical, Numeric, Schema
from taciturn.data.table_cells import MISSING, whole_number
from taciturn.errors import InputError
from taciturn.export.target import (
    TARGETS,
    ExportRequest,
    ExportTarget,
    import_optional,
    privacy_sentence,
    requested_model,
)
from taciturn.runs.model import Model
from taciturn.types import GRID, Array, Classes, ColumnBlock, Range
from taciturn.version import VERSION

FLOAT, TEXT, DOUBLE = 1, 8, 11  # ONNX's numbers for float32, string and float64
OPSET, ML_OPSET, IR_VERSION = 17, 3, 8  # of 2022: all runtimes in use can read them


@dataclass
class GraphBuilder:
    """An ONNX graph under construction.

    Parameters
    ----------
    onnx : module
        The package `onnx`, which is optional.
    """

    onnx: Any
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    def add(self, kind: str, *operands: Any, name: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its result.

        Parameters
        ----------
        kind : str
            The ONNX operator.
        *operands : str, or number or array of numpy
            Names of earlier results, or constants.
        name : str
            Name of the result; by default a new one.
        **attributes
            Attributes of the operator.
        """
        name = name or f"{kind.lower()}_{len(self.nodes)}"
        self._add_node(kind, operands, [name], attributes)
        return name

    def split(self, x: str, parts: int, axis: int) -> list[str]:
        """Add a node that splits x into equal parts and return their names."""
        names = [f"split_{len(self.nodes)}_{part}" for part in range(parts)]
        self._add_node("Split", [x], names, {"axis": axis})
        return names

    def add_input(self, name: str, kind: int, width: int) -> str:
        """Add an input of shape [records, width] and return its name."""
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, ["records", width]))
        return name

    def add_output(self, name: str, kind: int, *width: int) -> None:
        """Declare a result of shape [records, *width] as an output."""
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, kind, ["records", *width]))

    def _add_node(self, kind: str, operands: Sequence[Any], names: list[str], attributes: dict[str, object]) -> None:
        inputs = [operand if isinstance(operand, str) else self._constant(operand) for operand in operands]
        domain = "ai.onnx.ml" if kind == "LabelEncoder" else ""
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, names, domain=domain, **attributes))

    def _constant(self, value: Any) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name


def onnx_model(onnx: Any, model: Model, run: str, privacy: str) -> Any:
    """Return a model with its encoding as an ONNX `ModelProto`.

    Parameters
    ----------
    onnx : module
        The package `onnx`.
    model : Model
        A trained model.
    run : str
        Name of its run, stored as metadata.
    privacy : str
        Its guarantee in one sentence, stored as metadata.

    Raises
    ------
    InputError
        If the model's feature map or a column of its schema has no form in ONNX.
    """
    graph, helper = GraphBuilder(onnx), onnx.helper
    if model.schema is not None:
        x = _encoded_table(graph, read_schema(model.schema))
    else:
        x = graph.add_input("features", DOUBLE, len(model.columns))
    scores = _scores(graph, model, _mapped(graph, model, x))
    if isinstance(model.target, Classes):
        _add_classes(graph, model, model.target.names, scores)
    else:
        _add_value(graph, model.target, scores)
    proto = helper.make_model(
        helper.make_graph(graph.nodes, "taciturn", graph.inputs, graph.outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="taciturn",
        producer_version=VERSION,
    )
    classes = list(model.target.names) if isinstance(model.target, Classes) else []
    facts = {"run": run, "label": model.label, "privacy": privacy}
    facts |= {"features": json.dumps(list(model.features)), "classes": json.dumps(classes)}
    helper.set_model_props(proto, {f"taciturn.{name}": value for name, value in facts.items()})
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _encoded_table(graph: GraphBuilder, schema: Schema) -> str:
    """Add an input per column, under its name, and encode them as the schema says."""
    parts = [
        _numeric(graph, rule, schema.scale) if isinstance(rule, Numeric) else _categorical(graph, rule)
        for rule in schema.columns
    ]
    return graph.add("Concat", *parts, axis=1)


def _numeric(graph: GraphBuilder, rule: Numeric, scale: str) -> str:
    """Fill a missing value, which is NaN or infinite, clip to the bounds and scale, in the order of the encoding."""
    value = graph.add_input(rule.name, DOUBLE, 1)
    absent = graph.add("Or", graph.add("IsNaN", value), graph.add("IsInf", value))
    filled = graph.add("Where", absent, np.float64(rule.fill), value)
    stretched = _stretched(graph, graph.add("Clip", filled, np.float64(rule.low), np.float64(rule.high)), rule)
    low, high = rule.stretched(np.array([rule.low, rule.high])).tolist()
    unit = graph.add("Div", graph.add("Sub", stretched, np.float64(low)), np.float64(high - low))
    if scale == "symmetric":
        unit = graph.add("Sub", graph.add("Mul", unit, np.float64(2.0)), np.float64(1.0))
    return graph.add("Concat", unit, _cast(graph, absent, DOUBLE), axis=1) if rule.block.missing else unit


def _stretched(graph: GraphBuilder, value: str, rule: Numeric) -> str:
    """Apply the column's scale: v, ln v, or asinh(v / step) = sign(v) ln(|v/step| + sqrt((v/step)^2 + 1))."""
    if rule.scale == "linear":
        return value
    if rule.scale == "log":
        return graph.add("Log", value)
    ratio = graph.add("Div", value, np.float64(rule.step))
    root = graph.add("Sqrt", graph.add("Add", graph.add("Mul", ratio, ratio), np.float64(1.0)))
    size = graph.add("Log", graph.add("Add", graph.add("Abs", ratio), root))  # not all runtimes have Asinh of doubles
    return graph.add("Mul", graph.add("Sign", ratio), size)


def _categorical(graph: GraphBuilder, rule: Categorical) -> str:
    """Encode a category as one 1 among 0s; missing and unknown texts have the codes of the schema's rules."""
    if rule.buckets:
        raise InputError(
            f"column '{rule.name}' has buckets: ONNX cannot hash strings; use taciturn predict, or declare categories"
        )
    codes = dict.fromkeys(_missing_texts(), rule.fill)
    for position, category in enumerate(rule.categories):
        codes |= dict.fromkeys(_spellings(category), position)
    codes |= {category: position for position, category in enumerate(rule.categories)}
    found = graph.add(
        "LabelEncoder",
        graph.add_input(rule.name, TEXT, 1),
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=rule.unknown_fill,
    )
    return _cast(graph, graph.add("Equal", found, np.arange(len(rule.values), dtype=np.int64)), DOUBLE)


def _missing_texts() -> list[str]:
    """Return all texts that stand for a missing value, in upper and lower case and mixtures."""
    return [
        "".join(letters)
        for text in sorted(MISSING)
        for letters in itertools.product(*((letter, letter.upper()) for letter in text))
    ]


def _spellings(category: str) -> list[str]:
    """Return how programs write a whole number: 1, 1.0, 1.00, 1., +1, 01; other categories have one spelling."""
    number = whole_number(category)
    if number is None:
        return []
    sign, digits = "-" if number < 0 else "", str(abs(number))
    plain = [sign + digits, f"{sign}0{digits}", *([] if sign else [f"+{digits}"])]
    return [text + ending for text in plain for ending in ("", ".", ".0", ".00")]


def _mapped(graph: GraphBuilder, model: Model, x: str) -> str:
    """Apply the feature map, if there is one; the intercept is added later."""
    settings = model.settings
    if settings.features == NONE:
        return x
    if settings.precision == "float32":  # in which training and taciturn predict encode the records
        x = _cast(graph, _cast(graph, x, FLOAT), DOUBLE)
    phi = feature_map_node(graph, x, settings.features, model.shape)
    return graph.add("Mul", phi, np.float64(length_share(settings.intercept)))


def _scores(graph: GraphBuilder, model: Model, x: str) -> str:
    w: Array = model.w.astype(np.float64)
    if not model.settings.intercept:
        return graph.add("MatMul", x, w)
    last = w[-1] if model.settings.features == NONE else length_share(intercept=True) * w[-1]
    return graph.add("Add", graph.add("MatMul", x, w[:-1]), last)


def _add_classes(graph: GraphBuilder, model: Model, names: tuple[str, ...], scores: str) -> None:
    """Add the class of the highest score, empty if a score is NaN, and probabilities if the loss has them."""
    total = graph.add("ReduceSum", scores, np.array([1], np.int64), keepdims=0)
    highest = graph.add("ArgMax", scores, axis=1, keepdims=0)
    best = graph.add("Where", graph.add("IsNaN", total), np.int64(len(names)), highest)
    graph.add("Gather", np.array([*names, ""], dtype=object), best, name="label")
    graph.add_output("label", TEXT)
    if model.loss.probabilities(np.zeros((1, len(names)))) is not None:
        graph.add_output(graph.add("Softmax", scores, name="probabilities", axis=1), DOUBLE, len(names))
    else:
        graph.add_output(graph.add("Identity", scores, name="scores"), DOUBLE, len(names))


def _add_value(graph: GraphBuilder, target: Range, scores: str) -> None:
    """Add a predicted number in its own unit, within the label's bounds."""
    within = graph.add("Clip", scores, np.float64(0.0), np.float64(1.0))
    scaled = graph.add("Mul", within, np.float64(target.high - target.low))
    graph.add_output(graph.add("Add", scaled, np.float64(target.low), name="prediction"), DOUBLE, 1)


def feature_map_node(graph: GraphBuilder, x: str, features: str, shape: InputShape) -> str:
    """Add the feature map phi(x) of encoded records x, without the intercept, and return its name."""
    phi = build_map(features, shape)
    if phi is normalize_rows:
        return _unit_length(graph, x)
    if type(phi) not in FEATURE_MAPS:
        raise InputError(f"the feature map {features} has no form in ONNX: export to csv, or use taciturn predict")
    return FEATURE_MAPS[type(phi)](graph, x, phi)


def _bins(graph: GraphBuilder, x: str, phi: Bins) -> str:
    """Map each column on its own, [n, J] -> [n, width], then the pairs of columns."""
    own: list[str] = []
    parts: list[str] = []
    for block, columns in zip(phi.blocks, phi.columns, strict=True):
        if block.kind == "pair":
            left, right = (_levels(graph, own[k], phi.blocks[k], phi.low, PAIR_KNOTS) for k in block.of)
            parts.append(_pair(graph, left, right))
            continue
        ends = (np.array([end], np.int64) for end in (columns.start, columns.stop, 1))
        own.append(graph.add("Slice", x, *ends))
        parts.append(_levels(graph, own[-1], block, phi.low, KNOTS))
    return graph.add("Div", graph.add("Concat", *parts, axis=1), np.float64(math.sqrt(len(phi.blocks))))


def _levels(graph: GraphBuilder, own: str, block: ColumnBlock, low: float, knots: Array) -> str:
    """Return a column's levels: of a number its hat functions, which are 0 if it is missing and has an indicator."""
    if block.kind != "numeric":
        return own
    if not block.missing:
        return _hats(graph, own, low, knots)
    value, absent = graph.split(own, 2, axis=1)
    present = graph.add("Sub", np.float64(1.0), absent)
    return graph.add("Concat", graph.add("Mul", _hats(graph, value, low, knots), present), absent, axis=1)


def _hats(graph: GraphBuilder, value: str, low: float, knots: Array) -> str:
    """Return the hat functions [n, knots]: the share of the interval before a knot less that of the one after it."""
    u = graph.add("Div", graph.add("Sub", value, np.float64(low)), np.float64(1.0 - low))
    shares = graph.add("Div", graph.add("Sub", u, knots[:-1]), knots[1:] - knots[:-1])
    clipped = graph.add("Clip", shares, np.float64(0.0), np.float64(1.0))
    steps = graph.add("Round", graph.add("Mul", clipped, np.float64(GRID)))
    first = GRID * np.eye(1, len(knots))
    differences = np.eye(len(knots) - 1, len(knots), 1) - np.eye(len(knots) - 1, len(knots))
    hats = graph.add("Add", graph.add("MatMul", steps, differences), first)
    return graph.add("Div", hats, np.float64(GRID))


def _pair(graph: GraphBuilder, left: str, right: str) -> str:
    """Return the products of two columns' levels, rounded as in `pair_features`."""
    one, other = (graph.add("Round", graph.add("Mul", part, np.float64(GRID))) for part in (left, right))
    products = graph.add(
        "Mul",
        graph.add("Unsqueeze", one, np.array([2], np.int64)),
        graph.add("Unsqueeze", other, np.array([1], np.int64)),
    )
    sums = graph.add("CumSum", graph.add("Flatten", products, axis=1), np.int64(1))
    rounded = graph.add("Round", graph.add("Div", sums, np.float64(GRID)))
    before = graph.add("Pad", rounded, np.array([0, 1, 0, -1], np.int64))
    return graph.add("Div", graph.add("Sub", rounded, before), np.float64(GRID))


def _fourier(graph: GraphBuilder, x: str, phi: Fourier) -> str:
    steps = graph.add("Round", graph.add("Mul", x, np.float64(STEPS)))
    phase = graph.add("Mul", graph.add("MatMul", steps, phi.frequencies), np.float64(1.0 / STEPS))
    cosine = graph.add("Sin", graph.add("Add", phase, np.float64(0.5 * math.pi)))  # not all runtimes have Cos
    return _unit_length(graph, graph.add("Concat", cosine, graph.add("Sin", phase), axis=1))


def _pixels(graph: GraphBuilder, x: str, phi: Pixels) -> str:
    blurred = _integer_product(graph, _as_bytes(graph, x), phi.blur)
    smooth = _unit_length(graph, graph.add("Div", _cast(graph, blurred, DOUBLE), np.float64(phi.scale)))
    return _unit_length(graph, graph.add("Sub", smooth, phi.centre))


def _scattering(graph: GraphBuilder, x: str, phi: Scattering) -> str:
    pixels = _as_bytes(graph, x)
    parts = [_blur(graph, pixels, phi.image, 1)]
    for size, wavelets in enumerate(phi.first):
        u = _wavelets(graph, pixels, wavelets)  # [n DIRECTIONS, grid]
        parts.append(_blur(graph, u, phi.blurs[size], DIRECTIONS))
        for larger in range(size + 1, len(phi.first)):
            second = _wavelets(graph, u, phi.second[size, larger])
            parts.append(_blur(graph, second, phi.blurs[larger], DIRECTIONS**2))
    deviations = _steps(graph, graph.add("Sub", graph.add("Concat", *parts, axis=1), phi.centre))
    weights = graph.add("Cast", phi.whitening.astype(np.int16), to=DOUBLE)
    whitened = graph.add("Mul", graph.add("MatMul", deviations, weights), np.float64(COARSE))
    return _unit_steps(graph, graph.add("Round", whitened))


def _wavelets(graph: GraphBuilder, u: str, wavelets: Wavelets) -> str:
    """Map [m, grid before] to [m DIRECTIONS, grid]."""
    parts = graph.split(_integer_product(graph, u, wavelets.weights), 2, axis=1)
    squares = graph.add("Add", *(graph.add("Mul", part, part) for part in parts))
    scaled = graph.add("Mul", graph.add("Sqrt", squares), np.float32(wavelets.scale))
    return _reshape(graph, graph.add("Min", graph.add("Round", scaled), np.float32(LEVELS)), wavelets.side**2)


def _blur(graph: GraphBuilder, u: str, blur: Blur, channels: int) -> str:
    """Map [n channels, grid] to [n, channels PLACES^2], each channel scaled to length 1."""
    blurred = _cast(graph, _integer_product(graph, u, blur.weights), DOUBLE)
    length = graph.add("Add", _length(graph, blurred), np.float64(FAINT))
    return _reshape(graph, graph.add("Div", blurred, length), channels * PLACES**2)


def _as_bytes(graph: GraphBuilder, x: str) -> str:
    rounded = graph.add("Round", graph.add("Mul", x, np.float64(255.0)))
    return _cast(graph, graph.add("Clip", rounded, np.float64(0.0), np.float64(255.0)), FLOAT)


def _integer_product(graph: GraphBuilder, u: str, weights: Any) -> str:
    """Multiply by integers, which are stored as such to keep the file small."""
    return graph.add("MatMul", u, graph.add("Cast", weights.astype(np.int16), to=FLOAT))


def _unit_length(graph: GraphBuilder, x: str) -> str:
    return _unit_steps(graph, _steps(graph, x))


def _steps(graph: GraphBuilder, x: str) -> str:
    return graph.add("Round", graph.add("Mul", x, np.float64(FINE)))


def _unit_steps(graph: GraphBuilder, steps: str) -> str:
    return graph.add("Div", steps, graph.add("Max", _length(graph, steps), np.float64(1.0)))


def _length(graph: GraphBuilder, x: str) -> str:
    squares = graph.add("ReduceSum", graph.add("Mul", x, x), np.array([1], np.int64), keepdims=1)
    return graph.add("Sqrt", squares)


def _cast(graph: GraphBuilder, x: str, kind: int) -> str:
    return graph.add("Cast", x, to=kind)


def _reshape(graph: GraphBuilder, x: str, columns: int) -> str:
    return graph.add("Reshape", x, np.array([-1, columns], np.int64))


FEATURE_MAPS: dict[type, Callable[[GraphBuilder, str, Any], str]] = {
    Bins: _bins,
    Fourier: _fourier,
    Pixels: _pixels,
    Scattering: _scattering,
}


def write_onnx(request: ExportRequest) -> list[str]:
    """Write the model as an ONNX file and return messages about it."""
    onnx = import_optional("onnx", "onnx")
    model, messages = requested_model(request)
    path = request.output_path("model.onnx")
    proto = onnx_model(onnx, model, request.folder.path.resolve().name, privacy_sentence(request.folder))
    with atomic_write(path) as file:
        file.write(proto.SerializeToString())
    inputs, outputs = (
        ", ".join(entry.name for entry in entries) for entries in (proto.graph.input, proto.graph.output)
    )
    return [*messages, f"{model.label} in {path}", f"it maps {inputs} to {outputs}; any ONNX runtime opens it"]


TARGETS.register("onnx")(ExportTarget(write_onnx, frozenset({"out"})))
