"""Export of runs: coefficients as CSV, models as ONNX files, metrics for MLflow and TensorBoard."""

from taciturn.export.target import TARGETS, ExportRequest, requested_model

__all__ = ["TARGETS", "ExportRequest", "requested_model"]
