"""Export of runs: coefficients as CSV, models as ONNX files, metrics for MLflow and TensorBoard."""

from taciturn.export.target import TARGETS, ExportRequest

__all__ = ["TARGETS", "ExportRequest"]
