"""The few calls of the CUDA driver that a launch needs, by ctypes. Works on a device's primary context, which is
PyTorch's too."""
import ctypes
import threading

# Numbers of cuda.h.
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NON_PORTABLE_CLUSTER = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_CC_MAJOR, _CC_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
TENSOR_MAP_BYTES = 128  # sizeof(CUtensorMap)
_TENSOR_MAP_ALIGNMENT = 64
_MAX_RANK = 5
# CUtensorMapDataType by dtype; 8-bit floats are moved as bytes.
_TENSOR_MAP_TYPES = {"FP32": 7, "FP16": 6, "BF16": 9, "FP64": 8, "INT32": 3, "INT8": 0, "FP8_E4M3": 0, "FP8_E5M2": 0}
_POINTER_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

# What the driver accepts at most: 2^31 - 1 blocks in x, 65535 in y and z.
MAX_GRID = (2**31 - 1, 65535, 65535)
# Larger clusters need the kernel's consent to lose portability.
PORTABLE_CLUSTER = 8


class CudaError(RuntimeError):
    """The driver is missing, refused a call, or the kernel does not fit the device."""


class _LaunchAttributeValue(ctypes.Union):
    """CUlaunchAttributeValue: 64 bytes, of which a cluster uses the first three integers, `cooperative` one."""

    _fields_ = [("pad", ctypes.c_char * 64), ("cluster", ctypes.c_uint * 3), ("cooperative", ctypes.c_int)]


class _LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", _LaunchAttributeValue)]


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_LaunchAttribute)), ("count", ctypes.c_uint)]


class Workspaces:
    """Device memory of a plan's launches, one a stream: launches of two streams may run at the same time."""

    def __init__(self, driver, zero_once=False):
        """`zero_once`: each is zeroed when it is made."""
        self._driver, self._zero_once, self._of_stream = driver, zero_once, {}

    def get(self, size, stream):
        if not size:
            return 0
        if stream not in self._of_stream:
            self._of_stream[stream] = self._driver.allocate(size)
            if self._zero_once:
                self._driver.zero(self._of_stream[stream], size, stream)
        return self._of_stream[stream]

    def free(self):
        for address in self._of_stream.values():
            self._driver.free(address)


class Driver:
    """The primary context of one device. Thread-safe: every call makes it current on its thread first, and puts back
    what was current before, so that the caller's own device stays chosen."""

    _instances = {}
    _lock = threading.Lock()

    @classmethod
    def get(cls, ordinal=0):
        """The one Driver of a device; CudaError if there is no driver or no such device."""
        with cls._lock:
            if ordinal not in cls._instances:
                cls._instances[ordinal] = cls(ordinal)
            return cls._instances[ordinal]

    def __init__(self, ordinal, library=None):
        if library is None:
            try:
                library = ctypes.CDLL("libcuda.so.1")
            except OSError as error:
                raise CudaError(f"no CUDA driver: {error}") from None
        self._lib, self.ordinal = library, ordinal
        self._call("cuInit", 0)
        self._device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self._device), ordinal)
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)

    def _call(self, name, *args):
        code = getattr(self._lib, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self._lib.cuGetErrorString(code, ctypes.byref(text))
            raise CudaError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")

    def __enter__(self):
        self._call("cuCtxPushCurrent_v2", self._context)
        return self

    def __exit__(self, *exc):
        previous = ctypes.c_void_p()
        self._call("cuCtxPopCurrent_v2", ctypes.byref(previous))

    def arch(self):
        """"sm_90" of the device."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(major), _CC_MAJOR, self._device)
        self._call("cuDeviceGetAttribute", ctypes.byref(minor), _CC_MINOR, self._device)
        return f"sm_{major.value}{minor.value}"

    def check_arch(self, arch):
        """A cubin runs on its exact architecture only; say so before the driver does it obscurely."""
        have = self.arch()
        if arch.rstrip("a") != have:
            raise CudaError(f"the kernel is for {arch}, GPU {self.ordinal} is {have}")

    def device_of(self, address):
        """Ordinal of the device that holds an address; None if the driver does not know it."""
        ordinal = ctypes.c_int(-1)
        code = self._lib.cuPointerGetAttribute(ctypes.byref(ordinal), _POINTER_DEVICE_ORDINAL, ctypes.c_uint64(address))
        return None if code else ordinal.value

    def load(self, binary):
        module = ctypes.c_void_p()
        with self:
            self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(binary))
        return module

    def unload(self, module):
        with self:
            self._call("cuModuleUnload", module)

    def function(self, module, symbol):
        function = ctypes.c_void_p()
        with self:
            self._call("cuModuleGetFunction", ctypes.byref(function), module, symbol.encode())
        return function

    def allow_shared(self, function, size):
        """Dynamic shared memory beyond 48 KiB must be allowed once for each function."""
        with self:
            self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, ctypes.c_int(size))

    def allow_large_cluster(self, function):
        with self:
            self._call("cuFuncSetAttribute", function, _NON_PORTABLE_CLUSTER, ctypes.c_int(1))

    def tensor_map(self, address, dtype, dims, strides, box, element_strides, modes):
        """The 128 bytes of a CUtensorMap over the tensor at `address`. Dims are innermost first, `strides` (bytes) of all
        but the first; `modes`: interleave, swizzle, L2 promotion, fill outside."""
        if not hasattr(self._lib, "cuTensorMapEncodeTiled"):
            raise CudaError("the driver has no cuTensorMapEncodeTiled; it takes one of CUDA 12.0 or later")
        rank = len(dims)
        if not 1 <= rank <= _MAX_RANK or len(strides) != rank - 1 or len(box) != rank or len(element_strides) != rank:
            raise CudaError(f"a tensor map with {rank} dims, {len(strides)} strides and a box of {len(box)}")
        if dtype not in _TENSOR_MAP_TYPES:
            raise CudaError(f"a tensor map of {dtype}")
        # The driver wants it aligned, which ctypes does not promise.
        buffer = ctypes.create_string_buffer(TENSOR_MAP_BYTES + _TENSOR_MAP_ALIGNMENT)
        start = -ctypes.addressof(buffer) % _TENSOR_MAP_ALIGNMENT
        with self:
            self._call("cuTensorMapEncodeTiled", ctypes.c_void_p(ctypes.addressof(buffer) + start),
                       ctypes.c_int(_TENSOR_MAP_TYPES[dtype]), ctypes.c_uint(rank), ctypes.c_void_p(address),
                       (ctypes.c_uint64 * rank)(*dims), (ctypes.c_uint64 * rank)(*strides),
                       (ctypes.c_uint * rank)(*box), (ctypes.c_uint * rank)(*element_strides),
                       *[ctypes.c_int(mode) for mode in modes])
        return buffer.raw[start:start + TENSOR_MAP_BYTES]

    def allocate(self, size):
        address = ctypes.c_uint64()
        with self:
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address):
        with self:
            self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def zero(self, address, size, stream):
        with self:
            self._call("cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(0), ctypes.c_size_t(size),
                       ctypes.c_void_p(stream))

    def launch(self, function, grid, block, cluster, cooperative, shared, stream, values):
        """`values`: the arguments as bytes, in order; passed by pointer, so that the driver does the layout.
        `cluster`: blocks of a cluster in x; 1 = none. `cooperative`: all blocks must be on the GPU at a time."""
        buffers = [ctypes.create_string_buffer(v, len(v)) for v in values]
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*[ctypes.addressof(b) for b in buffers])
        with self:
            attributes = []
            if cluster > 1:
                attributes.append(_LaunchAttribute(id=_CLUSTER_DIMENSION))
                attributes[-1].value.cluster[:] = (cluster, 1, 1)
            if cooperative:
                attributes.append(_LaunchAttribute(id=_COOPERATIVE))
                attributes[-1].value.cooperative = 1
            if not attributes:
                self._call("cuLaunchKernel", function, *[ctypes.c_uint(v) for v in (*grid, *block)],
                           ctypes.c_uint(shared), ctypes.c_void_p(stream), pointers, None)
                return
            config = _LaunchConfig((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), shared, stream,
                                   (_LaunchAttribute * len(attributes))(*attributes), len(attributes))
            self._call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)
