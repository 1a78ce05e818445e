"""Feature maps as nodes of an ONNX graph: the same sums of whole numbers, so that the features are the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.data.maps import Raw, built
from tacit.data.maps.fourier import STEPS, Fourier
from tacit.data.maps.pixels import Pixels
from tacit.data.maps.scattering import FAINT, PLACES, Blur, Scattering
from tacit.data.maps.wavelets import DIRECTIONS, LEVELS, Wavelets
from tacit.data.maps.whole import FINE, of_length_one
from tacit.errors import InputError
from tacit.export.graph import DOUBLE, FLOAT, Graph


def mapped_node(graph: Graph, x: str, features: str, raw: Raw) -> str:
    """phi(x) for encoded records x, without the intercept."""
    phi = built(features, raw)
    if phi is of_length_one:
        return _of_length_one(graph, x)
    if type(phi) not in NODES:
        raise InputError(f"the feature map {features} has no form in ONNX: export to csv, or use tacit predict")
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
