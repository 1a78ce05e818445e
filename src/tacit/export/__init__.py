"""Runs for other programs: coefficients as a table, models as ONNX files, metrics in MLflow and TensorBoard."""

from tacit.export.base import TARGETS, Request

__all__ = ["TARGETS", "Request"]
