"""Runs for other programs: coefficients as a table, models as ONNX files, metrics in MLflow and TensorBoard."""

from taciturn.export.target import TARGETS, ExportRequest

__all__ = ["TARGETS", "ExportRequest"]
