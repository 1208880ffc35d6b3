"""The compiled core; everything else is in setup.cfg, which cannot declare extensions."""

from setuptools import Extension, setup

FILES = [f"bftrainer/_core/{name}.c" for name in ("module", "decide", "prune")]
# Without contraction to fused multiply-add, results are those of NumPy to the last bit.
FLAGS = ["-std=c11", "-O3", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra"]
setup(
    ext_modules=[
        Extension(
            "bftrainer._core._core",
            FILES,
            depends=["bftrainer/_core/core.h"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            extra_compile_args=FLAGS,
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
