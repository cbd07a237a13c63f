"""Launches a fetched kernel from its recipe alone."""
import struct
import sys
import threading

from . import _schema, cublaslt, expr
from .driver import MAX_GRID, PORTABLE_CLUSTER, TENSOR_MAP_BYTES, CudaError, Driver, Workspaces

_TORCH_DTYPES = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16", "FP64": "float64", "INT8": "int8",
                 "INT32": "int32", "INT64": "int64", "INT4": "uint8", "FP8_E4M3": "float8_e4m3fn", "FP8_E5M2": "float8_e5m2"}
# struct formats by size in bytes.
_INTEGERS = {4: "<i", 8: "<q"}
_FLOATS = {4: "<f", 8: "<d"}
_DEFAULT_ALIGNMENT = 16
# Tensor maps kept on a device, by their place in the plan and the tensor's address; older ones are dropped.
_MAX_TENSOR_MAPS = 1024


class _Tensor:
    """What the recipe says of one tensor."""

    def __init__(self, spec):
        self.name = spec.name
        self.role = _schema.nested_enum_name("TensorSpec", "Role", spec.role)
        self.dtype = _schema.enum_name("DType", spec.dtype)
        self.shape = tuple(d.value for d in spec.dim)
        # torch has no 4-bit type: bytes of two elements, the even one in the lower half.
        if self.dtype == "INT4":
            self.shape = self.shape[:-1] + ((self.shape[-1] + 1) // 2,)
        self.alignment = spec.alignment or _DEFAULT_ALIGNMENT

    def check(self, tensor):
        """The address of a torch tensor; TypeError or ValueError if the kernel can't take it."""
        wanted = f"torch.{_TORCH_DTYPES.get(self.dtype)}"
        if str(tensor.dtype) != wanted:
            raise TypeError(f"tensor {self.name!r} is {tensor.dtype}, the kernel takes {wanted}")
        # Extents of one change nothing in memory.
        if [d for d in tensor.shape if d != 1] != [d for d in self.shape if d != 1]:
            raise ValueError(f"tensor {self.name!r} has shape {list(tensor.shape)}, the kernel takes {list(self.shape)}")
        if not tensor.is_contiguous():
            raise ValueError(f"tensor {self.name!r} must be contiguous")
        if not tensor.is_cuda:
            raise ValueError(f"tensor {self.name!r} is not on a GPU")
        return tensor.data_ptr()


def _wants(plan, init):
    """Whether the plan's workspace is to hold what a value of WorkspaceInit says."""
    return plan.workspace_init == _schema.nested_enum_value("LaunchPlan", "WorkspaceInit", init)


class _Loaded:
    """The module on one device, with what its launches hold there."""

    def __init__(self, driver, plan, binary):
        self.driver = driver
        driver.check_arch(plan.arch)
        self.module = driver.load(binary)
        self.functions, self._maps = {}, {}
        self.workspaces = Workspaces(driver, _wants(plan, "ZERO_ONCE"))
        shared = {}
        for launch in plan.launch:
            if launch.symbol not in self.functions:
                self.functions[launch.symbol] = driver.function(self.module, launch.symbol)
            if launch.shared_opt_in:
                shared[launch.symbol] = max(shared.get(launch.symbol, 0), launch.dynamic_shared_bytes.value)
            if launch.cluster_x.value > PORTABLE_CLUSTER:
                driver.allow_large_cluster(self.functions[launch.symbol])
        for symbol, size in shared.items():
            driver.allow_shared(self.functions[symbol], size)

    def tensor_map(self, key, spec, address):
        """Bytes of the map that `spec` describes; encoded once for each address."""
        key = (key, address)
        if key not in self._maps:
            if len(self._maps) >= _MAX_TENSOR_MAPS:
                del self._maps[next(iter(self._maps))]
            values = [[q.value for q in quantities] for quantities in
                      (spec.dim, spec.stride_bytes, spec.box, spec.element_stride)]
            self._maps[key] = self.driver.tensor_map(address, _schema.enum_name("DType", spec.dtype), *values,
                                                     (spec.interleave, spec.swizzle, spec.l2_promotion, spec.oob_fill))
        return self._maps[key]

    def close(self):
        self.workspaces.free()
        self.driver.unload(self.module)


class Kernel:
    """A loaded kernel, or the call of cuBLASLt that is faster than any. Call it with its tensors by name: torch tensors (checked) or device addresses (not).

    Outputs that are not given are allocated by torch. Returns the outputs by name. Launches on torch's current stream of
    the tensors' device, or on `stream` (a CUstream as integer). Thread-safe.

    `gpu`: ordinal of the device to load it on at once (torch's current one if left out); others follow when tensors
    that lie there are given.
    """

    def __init__(self, record, binary, gpu=None, driver_of=Driver.get, library=None):
        self.record, self.plan = record, record.message.plan
        self._binary, self._driver_of, self._library = binary, driver_of, library
        self._of_library = self.plan.HasField("cublaslt")
        self._lock, self._loaded = threading.Lock(), {}
        self._tensors = [_Tensor(spec) for spec in self.plan.tensor]
        self._zero_workspace = _wants(self.plan, "ZERO")
        for launch in self.plan.launch:
            self._check_launch(launch)
        self._gpu = _current_gpu() if gpu is None else gpu
        self._on(self._gpu)

    @property
    def tensors(self):
        """(name, role, dtype, shape) of every tensor."""
        return [(t.name, t.role, t.dtype, t.shape) for t in self._tensors]

    def evaluate(self, quantity, **dims):
        """Value of an IntExpr of the plan for other dims than it was asked for; what is not given stays as it was."""
        return expr.evaluate(quantity.expr, {**_asked(self.plan), **self.plan.constant, **self.plan.config, **dims})

    def __call__(self, *, stream=None, **arguments):
        scalars = {s.name: arguments.pop(s.name, s.default_value) for s in self.plan.scalar}
        known = {t.name for t in self._tensors}
        for name in arguments:
            if name not in known:
                raise TypeError(f"unknown argument {name!r}; tensors are {sorted(known)}, scalars {sorted(scalars)}")
        if self._binary is None:
            raise CudaError("the kernel was closed")
        gpu, of_torch = self._locate(arguments)
        with self._lock:
            loaded = self._on(gpu)
        if stream is None:
            stream = sys.modules["torch"].cuda.current_stream(gpu).cuda_stream if of_torch else 0
        addresses, outputs = self._addresses(arguments, gpu)
        # Held until all is queued, so that launches of several threads do not mix in one workspace.
        with self._lock:
            workspace = loaded.workspaces.get(self.plan.workspace_bytes.value, stream)
            if workspace and self._zero_workspace:
                loaded.driver.zero(workspace, self.plan.workspace_bytes.value, stream)
            if self._of_library:
                loaded.run(addresses, scalars, workspace, self.plan.workspace_bytes.value, stream)
            for index, launch in enumerate(self.plan.launch):
                self._launch(loaded, index, launch, addresses, scalars, workspace, stream)
        return outputs

    def _on(self, gpu):
        if gpu not in self._loaded:
            driver = self._driver_of(gpu)
            self._loaded[gpu] = (cublaslt.Product(driver, self.plan, self._library) if self._of_library
                                 else _Loaded(driver, self.plan, self._binary))
        return self._loaded[gpu]

    def _locate(self, arguments):
        """(device that the arguments are on, whether torch knows its stream)."""
        found, of_torch = {}, False
        for name, value in arguments.items():
            if value is None:
                continue
            if isinstance(value, int) and not isinstance(value, bool):
                gpu = self._loaded[self._gpu].driver.device_of(value)
            elif hasattr(value, "data_ptr"):
                gpu, of_torch = value.device.index, True
            else:
                raise TypeError(f"tensor {name!r} is neither a torch tensor nor a device address: {type(value).__name__}")
            if gpu is not None:
                found.setdefault(gpu, name)
        if len(found) > 1:
            where = ", ".join(f"{name!r} on {gpu}" for gpu, name in sorted(found.items()))
            raise ValueError(f"the tensors are on several GPUs: {where}")
        return (next(iter(found)) if found else self._gpu), of_torch

    def _addresses(self, arguments, gpu):
        torch = sys.modules.get("torch")
        addresses, outputs = {}, {}
        for tensor in self._tensors:
            value = arguments.get(tensor.name)
            if value is None:
                if tensor.role != "OUTPUT" or torch is None:
                    raise TypeError(f"tensor {tensor.name!r} ({tensor.dtype} {list(tensor.shape)}) is missing")
                value = torch.empty(tensor.shape, dtype=getattr(torch, _TORCH_DTYPES[tensor.dtype]), device=f"cuda:{gpu}")
            address = value if isinstance(value, int) else tensor.check(value)
            if address % tensor.alignment:
                raise ValueError(f"tensor {tensor.name!r} must be aligned to {tensor.alignment} bytes")
            addresses[tensor.name] = address
            if tensor.role != "INPUT":
                outputs[tensor.name] = value
        self._check_apart(addresses)
        return addresses, outputs

    def _check_apart(self, addresses):
        # A kernel may read its inputs again, or in another block, after it has written.
        owners = {}
        for tensor in self._tensors:
            other = owners.setdefault(addresses[tensor.name], tensor)
            if other is not tensor and "OUTPUT" in (other.role, tensor.role):
                raise ValueError(f"tensors {other.name!r} and {tensor.name!r} are at one address: an output needs memory of its own")

    @staticmethod
    def _check_launch(launch):
        for axis, limit in zip("xyz", MAX_GRID):
            blocks = getattr(launch, f"grid_{axis}").value
            if blocks > limit:
                raise CudaError(f"{launch.symbol}: grid {axis} has {blocks} blocks, CUDA takes at most {limit}")
        cluster = launch.cluster_x.value
        if cluster > 1 and max(1, launch.grid_x.value) % cluster:
            raise CudaError(f"{launch.symbol}: grid x ({launch.grid_x.value}) is no multiple of the cluster ({cluster})")
        for argument in launch.argument:
            kind = argument.WhichOneof("kind")
            if kind is None:
                raise NotImplementedError(f"{launch.symbol}: argument kind {kind} is not supported by this version")
            sizes = {"integer": _INTEGERS, "scalar": _FLOATS, "tensor_map": (TENSOR_MAP_BYTES,)}.get(kind, (8,))
            if argument.size not in sizes:
                raise NotImplementedError(f"{launch.symbol}: a {kind} of {argument.size} bytes is not supported by this version")

    @staticmethod
    def _launch(loaded, index, launch, addresses, scalars, workspace, stream):
        values = []
        for position, argument in enumerate(launch.argument):
            kind = argument.WhichOneof("kind")
            if kind == "tensor":
                values.append(struct.pack("<Q", addresses[argument.tensor]))
            elif kind == "scalar":
                values.append(struct.pack(_FLOATS[argument.size], float(scalars[argument.scalar])))
            elif kind == "integer":
                values.append(struct.pack(_INTEGERS[argument.size], argument.integer.value))
            elif kind == "tensor_map":
                spec = argument.tensor_map
                values.append(loaded.tensor_map((index, position), spec, addresses[spec.tensor]))
            else:
                values.append(struct.pack("<Q", workspace + argument.workspace_offset.value))
        # An empty quantity means one.
        grid = tuple(max(1, q.value) for q in (launch.grid_x, launch.grid_y, launch.grid_z))
        block = tuple(max(1, q.value) for q in (launch.block_x, launch.block_y, launch.block_z))
        loaded.driver.launch(loaded.functions[launch.symbol], grid, block, max(1, launch.cluster_x.value),
                             launch.cooperative, launch.dynamic_shared_bytes.value, stream, values)

    def close(self):
        """Unloads the binary. Only once no launch of it is running any more."""
        with self._lock:
            loaded, self._loaded, self._binary = self._loaded, {}, None
        for on_gpu in loaded.values():
            on_gpu.close()


def _asked(plan):
    """Dims of the operator that the plan was made for."""
    # A dim with a default is not in the operator's text, but tensors have it as an extent.
    names = {d.expr: d.value for t in plan.tensor for d in t.dim if d.expr.isidentifier()}
    for word in plan.op.split()[1:]:
        name, _, value = word.partition("=")
        if value.isdecimal():
            names[name] = int(value)
    return names


def _current_gpu():
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_available() else 0
