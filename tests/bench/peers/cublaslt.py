"""cuBLASLt by ctypes: every algorithm that its heuristic returns for y[m,n] = x[m,k] · w[n,k]ᵀ, as calls. PyTorch's own
copy of the library is used, so that versions agree."""

import ctypes
import re

import torch

# Numbers of cublasLt.h, cublas_api.h and library_types.h.
_COMPUTE_FP32, _COMPUTE_INT32 = 68, 72
_FP32, _BF16, _E4M3, _INT8, _INT32 = 0, 14, 28, 3, 10
_TRANS_A, _A_SCALE, _B_SCALE, _FAST_ACCUMULATION = 3, 17, 18, 25
_PREFERENCE_WORKSPACE = 1
_TRANSPOSED = 1
WORKSPACE_BYTES = 64 << 20
MAX_ALGORITHMS = 64


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class LtError(RuntimeError):
    """The library is missing or refused a call."""


def _library():
    torch.mm(*[torch.ones(16, 16, device="cuda", dtype=torch.bfloat16)] * 2)  # loads it
    with open("/proc/self/maps", encoding="utf-8") as maps:
        found = re.findall(r"\S*libcublasLt\.so\S*", maps.read())
    if not found:
        raise LtError("PyTorch has not loaded libcublasLt")
    return ctypes.CDLL(found[0])


class CublasLt:
    def __init__(self):
        self._lib = _library()
        self._lib.cublasLtGetVersion.restype = ctypes.c_size_t
        self.version = str(self._lib.cublasLtGetVersion())
        self._handle = ctypes.c_void_p()
        self._check("cublasLtCreate", ctypes.byref(self._handle))
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")

    def _check(self, name, *arguments):
        code = getattr(self._lib, name)(*arguments)
        if code:
            raise LtError(f"{name}: status {code}")

    def _layout(self, dtype, rows, columns):
        layout = ctypes.c_void_p()
        self._check(
            "cublasLtMatrixLayoutCreate",
            ctypes.byref(layout),
            dtype,
            ctypes.c_uint64(rows),
            ctypes.c_uint64(columns),
            ctypes.c_int64(rows),
        )
        return layout

    def _set(self, description, attribute, value):
        self._check(
            "cublasLtMatmulDescSetAttribute",
            description,
            attribute,
            ctypes.byref(value),
            ctypes.c_size_t(ctypes.sizeof(value)),
        )

    def problem(self, m, n, k, fp8_scales=None, fast_accumulation=True):
        """A _Problem with bf16 results; `fp8_scales`: two device tensors of one fp32 (x, w) for e4m3 operands, else they
        are bf16."""
        description = self._description(_COMPUTE_FP32, _FP32)
        if fp8_scales:
            x_scale, w_scale = fp8_scales
            self._set(description, _A_SCALE, ctypes.c_void_p(w_scale.data_ptr()))
            self._set(description, _B_SCALE, ctypes.c_void_p(x_scale.data_ptr()))
            self._set(description, _FAST_ACCUMULATION, ctypes.c_int8(int(fast_accumulation)))
        return self._problem(description, (m, n, k), _E4M3 if fp8_scales else _BF16, _BF16, ctypes.c_float, fp8_scales)

    def int8_problem(self, m, n, k):
        """A _Problem of int8 operands and int32 results: with other results the library takes no scale a row."""
        return self._problem(self._description(_COMPUTE_INT32, _INT32), (m, n, k), _INT8, _INT32, ctypes.c_int32)

    def _description(self, compute, scale):
        description = ctypes.c_void_p()
        self._check("cublasLtMatmulDescCreate", ctypes.byref(description), compute, scale)
        self._set(description, _TRANS_A, ctypes.c_int32(_TRANSPOSED))
        return description

    def _problem(self, description, sizes, operand, result, scalar, keep=None):
        # Column-major: yᵀ[n,m] = (w as [k,n])ᵀ · (x as [k,m]).
        m, n, k = sizes
        layouts = (self._layout(operand, k, n), self._layout(operand, k, m), self._layout(result, n, m))
        return _Problem(self, description, layouts, self._algorithms(description, layouts), scalar, keep)

    def _algorithms(self, description, layouts):
        preference = ctypes.c_void_p()
        self._check("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        limit = ctypes.c_uint64(WORKSPACE_BYTES)
        self._check(
            "cublasLtMatmulPreferenceSetAttribute",
            preference,
            _PREFERENCE_WORKSPACE,
            ctypes.byref(limit),
            ctypes.c_size_t(8),
        )
        results, count = (_Heuristic * MAX_ALGORITHMS)(), ctypes.c_int()
        a, b, d = layouts
        self._check(
            "cublasLtMatmulAlgoGetHeuristic",
            self._handle,
            description,
            a,
            b,
            d,
            d,
            preference,
            MAX_ALGORITHMS,
            results,
            ctypes.byref(count),
        )
        self._lib.cublasLtMatmulPreferenceDestroy(preference)
        return [results[i] for i in range(count.value) if results[i].state == 0]

    def matmul(self, problem, algorithm, x, w, y):
        """Queues it on torch's current stream."""
        one, zero = problem.scalar(1), problem.scalar(0)
        a, b, d = problem.layouts
        self._check(
            "cublasLtMatmul",
            self._handle,
            problem.description,
            ctypes.byref(one),
            ctypes.c_void_p(w.data_ptr()),
            a,
            ctypes.c_void_p(x.data_ptr()),
            b,
            ctypes.byref(zero),
            ctypes.c_void_p(y.data_ptr()),
            d,
            ctypes.c_void_p(y.data_ptr()),
            d,
            ctypes.byref(algorithm.algo),
            ctypes.c_void_p(self._workspace.data_ptr()),
            ctypes.c_size_t(WORKSPACE_BYTES),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )


class _Problem:
    def __init__(self, library, description, layouts, algorithms, scalar, keep):
        self.library, self.description, self.layouts, self.scalar = library, description, layouts, scalar
        self.algorithms, self._keep = algorithms, keep  # the scales are read at every launch

    def calls(self, index, inputs, outputs):
        """Calls of algorithm `index` over the buffer sets."""
        algorithm = self.algorithms[index]
        return [
            lambda i=i, o=o: self.library.matmul(self, algorithm, i["a"], i["b"], o["d"])
            for i, o in zip(inputs, outputs)
        ]

    def describe(self, index) -> str:
        words = self.algorithms[index].algo
        return (
            f"heuristic {index} of {len(self.algorithms)}, algorithm {':'.join(f'{w:x}' for w in words[:4])}, "
            f"{self.algorithms[index].workspace} B workspace"
        )
