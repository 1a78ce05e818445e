"""A model as an ONNX file."""

from __future__ import annotations

from tacit.export.base import TARGETS, Request, Target, needed
from tacit.export.model import chosen_model, privacy_sentence
from tacit.export.onnx_graph import onnx_model
from tacit.results.files import replacing


def write_onnx(request: Request) -> list[str]:
    """Write the model, with what it takes to use it."""
    onnx = needed("onnx", "onnx")
    model, said = chosen_model(request)
    path = request.place("model.onnx")
    made = onnx_model(onnx, model, request.folder.path.resolve().name, privacy_sentence(request.folder))
    with replacing(path) as file:
        file.write(made.SerializeToString())
    inputs = ", ".join(entry.name for entry in made.graph.input)
    outputs = ", ".join(entry.name for entry in made.graph.output)
    return [*said, f"{model.label} in {path}", f"it takes {inputs} and gives {outputs}; any ONNX runtime opens it"]


TARGETS.register("onnx")(Target("the model for any ONNX runtime, encoding included", write_onnx, frozenset({"out"})))
