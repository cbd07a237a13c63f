import types
import unittest
import unittest.mock

import fakes
from fakes import FakeDriver
from rooftune import CudaError, Kernel, Record, _schema, cublaslt

A, B, C, BIAS, D, SCALE = 0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000


class FakeLibrary:
    """Notes the calls of libcublasLt with the values that they pass."""

    def __init__(self, version=130100, status=None):
        self.calls, self._version, self._status, self._next = [], version, status or {}, 0
        self.cublasLtGetVersion = types.SimpleNamespace(restype=None)
        self.library = cublaslt.Library(self)

    def __getattribute__(self, name):
        if not name.startswith("cublasLt"):
            return object.__getattribute__(self, name)
        if name == "cublasLtGetVersion":
            return _Function(lambda: object.__getattribute__(self, "_version"))
        if name == "cublasLtGetStatusName":
            return _Function(lambda status: b"CUBLAS_STATUS_NOT_SUPPORTED")
        return _Function(lambda *args: self._note(name, args))

    def _note(self, name, args):
        if name in self._status:
            return self._status[name]
        if name.endswith("Create"):
            self._next += 1
            args[0]._obj.value = self._next
        self.calls.append((name, [self._value(a) for a in args]))
        return 0

    @staticmethod
    def _value(argument):
        if hasattr(argument, "_obj"):
            argument = argument._obj
        if hasattr(argument, "raw"):
            return argument.raw  # .value would end at the first zero
        return getattr(argument, "value", argument)

    def named(self, name):
        return [args for called, args in self.calls if called == name]

    def attributes(self):
        """{attribute: value} of the description as it was last set."""
        return {args[1]: args[2] for args in self.named("cublasLtMatmulDescSetAttribute")}


class _Function:
    def __init__(self, call):
        self._call, self.restype = call, None

    def __call__(self, *args):
        return self._call(*args)


class Driver(FakeDriver):
    def __enter__(self):
        self.calls.append(("push",))
        return self

    def __exit__(self, *exc):
        self.calls.append(("pop",))


def record(version=130100, **more):
    message = _schema.message("TuningRecord")(name="records/v", op="gemm m=8 n=16 k=32 dtype=bf16", provider=2, evidence=4,
                                              template_id="cublaslt")
    plan = message.plan
    plan.arch, plan.op, plan.workspace_bytes.value = fakes.H200, message.op, 4096
    for name, role, shape in (("a", 1, (8, 32)), ("b", 1, (16, 32)), ("d", 2, (8, 16))):
        tensor = plan.tensor.add(name=name, role=role, dtype=3, alignment=256)
        for extent in shape:
            tensor.dim.add(value=extent)
    plan.scalar.add(name="alpha", dtype=1, default_value=1)
    lt = plan.cublaslt
    lt.a.MergeFrom(type(lt.a)(tensor="b", type=14, rows=32, columns=16, leading=32, batch=1, transposed=True))
    lt.b.MergeFrom(type(lt.a)(tensor="a", type=14, rows=32, columns=8, leading=32, batch=1))
    for matrix, tensor in ((lt.c, ""), (lt.d, "d")):
        matrix.MergeFrom(type(lt.a)(tensor=tensor, type=14, rows=16, columns=8, leading=16, batch=1))
    lt.compute_type, lt.scale_type, lt.alpha, lt.epilogue, lt.library_version = 68, 0, "alpha", 1, version
    lt.algorithm.opaque = bytes(range(64))
    plan.MergeFrom(_schema.message("LaunchPlan")(**more))
    return message


class CublasLtTest(unittest.TestCase):
    def setUp(self):
        self.driver, self.fake = Driver(), FakeLibrary()

    def kernel(self, message=None, fake=None):
        return Kernel(Record(message or record()), b"", 0, lambda gpu: self.driver, (fake or self.fake).library)

    def test_the_call_is_made_as_recorded(self):
        kernel = self.kernel()
        self.assertEqual(kernel(a=A, b=B, d=D, alpha=0.5, stream=77), {"d": D})
        layouts = self.fake.named("cublasLtMatrixLayoutCreate")
        self.assertEqual([layout[1:] for layout in layouts], [[14, 32, 16, 32], [14, 32, 8, 32], [14, 16, 8, 16], [14, 16, 8, 16]])
        self.assertEqual(self.fake.attributes(), {3: 1, 7: 1})
        workspace = next(c for c in self.driver.calls if c[0] == "allocate")
        self.assertEqual(workspace[1], 4096)
        (call,) = self.fake.named("cublasLtMatmul")
        self.assertEqual(call[2], 0.5)
        self.assertEqual([call[i] for i in (3, 5, 7, 8, 10)], [B, A, 0.0, D, D])  # the library's A is our B
        self.assertEqual(call[12], bytes(range(64)))
        self.assertEqual(call[13:], [workspace[2], 4096, 77])
        kernel.close()
        self.assertIn(("free", workspace[2]), self.driver.calls)
        self.assertEqual(len(self.fake.named("cublasLtMatrixLayoutDestroy")), 4)
        pushed = [c[0] for c in self.driver.calls]
        self.assertEqual(pushed.count("push"), pushed.count("pop"))

    def test_bias_beta_scales_and_batches(self):
        message = record()
        lt = message.plan.cublaslt
        for name in ("c", "bias", "a_scale"):
            message.plan.tensor.add(name=name, role=1, dtype=1, alignment=16)
        message.plan.scalar.add(name="beta_value", dtype=1, default_value=2)
        lt.c.tensor, lt.beta, lt.bias, lt.bias_type, lt.epilogue = "c", "beta_value", "bias", 14, 36
        lt.b.scale, lt.b.scale_mode = "a_scale", 3
        lt.d.batch, lt.d.batch_stride = 3, 128
        self.kernel(message)(a=A, b=B, c=C, bias=BIAS, a_scale=SCALE, d=D)
        self.assertEqual(self.fake.attributes(), {3: 1, 7: 36, 8: BIAS, 18: SCALE, 26: 14, 32: 3})
        self.assertEqual([args[1:3] for args in self.fake.named("cublasLtMatrixLayoutSetAttribute")], [[5, 3], [6, 128]])
        (call,) = self.fake.named("cublasLtMatmul")
        self.assertEqual([call[i] for i in (7, 8, 10)], [2.0, C, D])

    def test_integers_take_integer_scalars(self):
        message = record()
        message.plan.cublaslt.scale_type = 10
        kernel = self.kernel(message)
        kernel(a=A, b=B, d=D, alpha=3)
        self.assertEqual(self.fake.named("cublasLtMatmul")[0][2], 3)
        with self.assertRaisesRegex(ValueError, "alpha=0.5 is no integer"):
            kernel(a=A, b=B, d=D, alpha=0.5)

    def test_another_version_is_refused_and_explained(self):
        with self.assertRaisesRegex(CudaError, "of cuBLASLt 120805, here is 130100: .*templates_only=True"):
            self.kernel(record(version=120805))
        self.assertEqual(self.fake.calls, [])

    def test_misaligned_and_refused(self):
        with self.assertRaisesRegex(ValueError, "'a' must be aligned to 256"):
            self.kernel()(a=A + 16, b=B, d=D)
        fake = FakeLibrary(status={"cublasLtMatmul": 15})
        with self.assertRaisesRegex(CudaError, r"cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED \(15\)"):
            self.kernel(fake=fake)(a=A, b=B, d=D)

    def test_a_missing_library_says_what_to_do(self):
        with unittest.mock.patch.dict("os.environ", {"ROOFTUNE_LIBCUBLASLT": "/nowhere/libcublasLt.so"}):
            with self.assertRaisesRegex(CudaError, "no cuBLASLt: .*templates_only=True"):
                cublaslt.Library()


if __name__ == "__main__":
    unittest.main()
