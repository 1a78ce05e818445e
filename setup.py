"""The compiled part of Taciturn: C functions in a shared library, of which Python knows nothing.

`optional`: where there is no C compiler, or one that lacks GCC's vector types, the package installs without it, and
everything runs on numpy.
"""

from setuptools import Extension, setup

KERNELS = "src/taciturn/kernels"

setup(
    ext_modules=[
        Extension(
            "taciturn.kernels._compiled",
            sources=[f"{KERNELS}/{name}.c" for name in ("rows", "noise", "discrete", "pack")],
            depends=[f"{KERNELS}/{name}.h" for name in ("levels", "rows", "rows_both", "rows_pass")],
            extra_compile_args=["-O3", "-fno-math-errno", "-fno-strict-aliasing", "-g0"],
            libraries=["m"],
            optional=True,
            py_limited_api=True,  # it asks nothing of Python: one wheel of a platform serves all versions
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
