"""The few calls of the CUDA driver that a launch needs, by ctypes. Works on the device's primary context, which is
PyTorch's too."""
import ctypes

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_CC_MAJOR, _CC_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


class CudaError(RuntimeError):
    pass


class Driver:
    _instance = None

    @classmethod
    def get(cls, ordinal=0):
        if cls._instance is None:
            cls._instance = cls(ordinal)
        return cls._instance

    def __init__(self, ordinal):
        try:
            self._lib = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(f"no CUDA driver: {error}") from None
        self._call("cuInit", 0)
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._device = device
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._call("cuCtxSetCurrent", self._context)

    def _call(self, name, *args):
        code = getattr(self._lib, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self._lib.cuGetErrorString(code, ctypes.byref(text))
            raise CudaError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")

    def check_arch(self, arch):
        """A cubin runs on its exact architecture only; say so before the driver does it obscurely."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(major), _CC_MAJOR, self._device)
        self._call("cuDeviceGetAttribute", ctypes.byref(minor), _CC_MINOR, self._device)
        have = f"sm_{major.value}{minor.value}"
        if arch.rstrip("a") != have:
            raise CudaError(f"the kernel is for {arch}, this GPU is {have}")

    def load(self, binary):
        self._call("cuCtxSetCurrent", self._context)
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(binary))
        return module

    def unload(self, module):
        self._call("cuModuleUnload", module)

    def function(self, module, symbol):
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, symbol.encode())
        return function

    def allow_shared(self, function, size):
        self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, ctypes.c_int(size))

    def allocate(self, size):
        self._call("cuCtxSetCurrent", self._context)
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address):
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def zero(self, address, size, stream):
        self._call("cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(0), ctypes.c_size_t(size), ctypes.c_void_p(stream))

    def launch(self, function, grid, block, shared, stream, values):
        """`values`: the arguments as bytes, in order; passed by pointer, so that the driver does the layout."""
        self._call("cuCtxSetCurrent", self._context)
        buffers = [ctypes.create_string_buffer(v, len(v)) for v in values]
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*[ctypes.addressof(b) for b in buffers])
        self._call("cuLaunchKernel", function, *[ctypes.c_uint(v) for v in (*grid, *block)], ctypes.c_uint(shared),
                   ctypes.c_void_p(stream), pointers, None)
