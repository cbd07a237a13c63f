"""Makes the call of cuBLASLt that a record of provider CUBLASLT describes, by ctypes."""
import ctypes
import os
import threading

from .driver import CudaError, Workspaces

# Numbers of cublasLt.h and library_types.h, which the library keeps between major versions.
_TRANSPOSE = (3, 4)  # CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB
_EPILOGUE, _BIAS_POINTER, _BIAS_TYPE = 7, 8, 26
_SCALE_POINTER, _SCALE_MODE = (17, 18), (31, 32)  # of A, of B
_BATCH_COUNT, _BATCH_STRIDE = 5, 6  # CUBLASLT_MATRIX_LAYOUT_*
_OP_TRANSPOSE = 1
_INT32 = 10  # CUDA_R_32I
_ALGORITHM_BYTES = 64
_NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")


class Library:
    """libcublasLt of this process: $ROOFTUNE_LIBCUBLASLT, else the one that torch or anybody else has loaded already, else
    the system's. Thread-safe."""

    _instance, _lock = None, threading.Lock()

    @classmethod
    def get(cls):
        """The one Library; CudaError if there is none."""
        with cls._lock:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    def __init__(self, library=None):
        chosen = os.environ.get("ROOFTUNE_LIBCUBLASLT")
        reasons = []
        for name in (chosen,) if chosen else _NAMES:
            if library is None:
                try:
                    library = ctypes.CDLL(name)
                except OSError as error:
                    reasons.append(str(error))
        if library is None:
            raise CudaError(f"no cuBLASLt: {'; '.join(reasons)}. Ask for templates only (templates_only=True), or name the "
                            "library in ROOFTUNE_LIBCUBLASLT")
        self._lib = library
        for name, kind in (("cublasLtGetVersion", ctypes.c_size_t), ("cublasLtGetStatusName", ctypes.c_char_p)):
            getattr(library, name).restype = kind

    def version(self):
        """As the library gives it: 130100."""
        return int(self._lib.cublasLtGetVersion())

    def call(self, name, *args):
        status = getattr(self._lib, name)(*args)
        if status:
            text = self._lib.cublasLtGetStatusName(status) or b"unknown error"
            raise CudaError(f"{name}: {text.decode()} ({status})")


def version():
    """Version of the library that a call would use, or 0 if there is none: for Client.best(cublaslt_version=…)."""
    try:
        return Library.get().version()
    except CudaError:
        return 0


class Product:
    """A plan's call, made ready on one device: what Kernel holds of it there. Not thread-safe."""

    def __init__(self, driver, plan, library=None):
        self.driver, self.workspaces = driver, Workspaces(driver)
        self._recipe = recipe = plan.cublaslt
        self._handle, self._description, self._layouts = ctypes.c_void_p(), ctypes.c_void_p(), []
        self._library = library or Library.get()
        driver.check_arch(plan.arch)
        here = self._library.version()
        if recipe.library_version != here:
            raise CudaError(f"the algorithm is of cuBLASLt {recipe.library_version}, here is {here}: algorithms are good for one "
                            f"version only. Ask with cublaslt_version={here} or templates_only=True, or tune again with it")
        if len(recipe.algorithm.opaque) != _ALGORITHM_BYTES:
            raise CudaError(f"an algorithm has {_ALGORITHM_BYTES} bytes, not {len(recipe.algorithm.opaque)}")
        self._algorithm = ctypes.create_string_buffer(recipe.algorithm.opaque, _ALGORITHM_BYTES)
        with driver:
            self._describe()

    def _call(self, name, *args):
        self._library.call(name, *args)

    def _describe(self):
        recipe = self._recipe
        self._call("cublasLtCreate", ctypes.byref(self._handle))
        self._call("cublasLtMatmulDescCreate", ctypes.byref(self._description), ctypes.c_int(recipe.compute_type),
                   ctypes.c_int(recipe.scale_type))
        for index, matrix in enumerate((recipe.a, recipe.b, recipe.c, recipe.d)):
            layout = ctypes.c_void_p()
            self._call("cublasLtMatrixLayoutCreate", ctypes.byref(layout), ctypes.c_int(matrix.type),
                       ctypes.c_uint64(matrix.rows), ctypes.c_uint64(matrix.columns), ctypes.c_int64(matrix.leading))
            self._layouts.append(layout)
            if matrix.batch > 1:
                self._set_layout(layout, _BATCH_COUNT, ctypes.c_int32(matrix.batch))
                self._set_layout(layout, _BATCH_STRIDE, ctypes.c_int64(matrix.batch_stride))
            if index < 2 and matrix.transposed:
                self._set(_TRANSPOSE[index], ctypes.c_int32(_OP_TRANSPOSE))
            if index < 2 and matrix.scale_mode:
                self._set(_SCALE_MODE[index], ctypes.c_int32(matrix.scale_mode))
        self._set(_EPILOGUE, ctypes.c_uint32(recipe.epilogue))
        if recipe.bias:
            self._set(_BIAS_TYPE, ctypes.c_int32(recipe.bias_type))

    def _set(self, attribute, value):
        self._call("cublasLtMatmulDescSetAttribute", self._description, ctypes.c_int(attribute), ctypes.byref(value),
                   ctypes.c_size_t(ctypes.sizeof(value)))

    def _set_layout(self, layout, attribute, value):
        self._call("cublasLtMatrixLayoutSetAttribute", layout, ctypes.c_int(attribute), ctypes.byref(value),
                   ctypes.c_size_t(ctypes.sizeof(value)))

    def _scalar(self, name, scalars, fallback):
        value = scalars.get(name, fallback) if name else fallback
        if self._recipe.scale_type == _INT32:
            if value != int(value):
                raise ValueError(f"{name}={value} is no integer, as products of integers need")
            return ctypes.c_int32(int(value))
        return ctypes.c_float(value)

    def run(self, addresses, scalars, workspace, size, stream):
        """Queues the product on `stream`. `addresses`: of the plan's tensors by name."""
        recipe = self._recipe
        alpha, beta = self._scalar(recipe.alpha, scalars, 1), self._scalar(recipe.beta, scalars, 0)
        a, b, d = (ctypes.c_void_p(addresses[m.tensor]) for m in (recipe.a, recipe.b, recipe.d))
        c = ctypes.c_void_p(addresses[recipe.c.tensor]) if recipe.c.tensor else d
        with self.driver:
            if recipe.bias:
                self._set(_BIAS_POINTER, ctypes.c_void_p(addresses[recipe.bias]))
            for matrix, attribute in zip((recipe.a, recipe.b), _SCALE_POINTER):
                if matrix.scale:
                    self._set(attribute, ctypes.c_void_p(addresses[matrix.scale]))
            self._call("cublasLtMatmul", self._handle, self._description, ctypes.byref(alpha), a, self._layouts[0], b,
                       self._layouts[1], ctypes.byref(beta), c, self._layouts[2], d, self._layouts[3], self._algorithm,
                       ctypes.c_void_p(workspace or None), ctypes.c_size_t(size), ctypes.c_void_p(stream or None))

    def close(self):
        self.workspaces.free()
        with self.driver:
            for layout in self._layouts:
                self._call("cublasLtMatrixLayoutDestroy", layout)
            self._call("cublasLtMatmulDescDestroy", self._description)
            self._call("cublasLtDestroy", self._handle)
