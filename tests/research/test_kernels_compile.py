"""The kernels compile for a GPU, whose compiler is stricter than the interpreter; this needs no GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("triton")

PROGRAM = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from taciturn.kernels.device_noise import standard_noise
from taciturn.research.gpu.triton_kernels import objective_update, output_update, softmax_residual

NUMBERS = {"t": "i32", "agent": "i32", "round": "i32", "update": "i32",
           "records": "fp32", "shrinkage": "fp32", "updates": "fp32"}
ARRAYS = {"labels": "*i32", "streams": "*i64", "out": "*fp64", "silent": "*i32", "seeds": "*i64",
          "agents": "*i64", "factor": "*fp16", "residual": "*fp16"}
SHAPE = {"P": 10, "R": 41, "JK": 7840, "K": 10, "C": 512, "STRIDE": 12}

def build(kernel, **constants):
    types = {name: "constexpr" if name in constants else ARRAYS.get(name, NUMBERS.get(name, "*fp32"))
             for name in kernel.arg_names}
    if kernel is output_update:
        types["records"] = "*fp32"
    if kernel is standard_noise:
        types["scale"] = "*fp64"
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=types, constexprs=places)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    print(kernel.__name__, len(built.asm["cubin"]) > 0)

build(softmax_residual, n=6000, R=41, K=10, C=512, STRIDE=12, WIDTH=16, RECORDS=8, RUNS=8)
for first, last in ((True, True), (False, False)):
    build(objective_update, **SHAPE, FIRST=first, LAST=last, BLOCKS=64)
build(output_update, **SHAPE, BLOCKS=64)
for gaussian in (True, False):
    build(standard_noise, JK=7840, K=10, R=41, GAUSSIAN=gaussian, BLOCKS=256)
"""


def test_the_kernels_compile_for_a_gpu(tmp_path: object) -> None:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "softmax_residual True", "objective_update True", "objective_update True", "output_update True",
        "standard_noise True", "standard_noise True",
    ]  # fmt: skip
