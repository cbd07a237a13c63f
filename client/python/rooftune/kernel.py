"""Launches a fetched kernel from its recipe alone."""
import ctypes
import struct
import sys

from . import _schema, expr
from .driver import Driver

_TORCH_DTYPES = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16", "FP64": "float64", "INT8": "int8", "INT32": "int32"}
_BYTES = {"FP32": 4, "FP16": 2, "BF16": 2, "FP64": 8, "FP8_E4M3": 1, "FP8_E5M2": 1, "INT8": 1, "INT32": 4}


class Kernel:
    """A loaded kernel. Call it with its tensors by name: torch tensors (checked) or device addresses (not).

    Outputs that are not given are allocated by torch. Returns the outputs by name. Launches on torch's current stream,
    or on `stream` (a CUstream as integer).
    """

    def __init__(self, record, binary):
        self.record, self.plan = record, record.message.plan
        self._driver = Driver.get()
        self._driver.check_arch(self.plan.arch)
        self._module = self._driver.load(binary)
        self._functions = {}
        for launch in self.plan.launch:
            function = self._driver.function(self._module, launch.symbol)
            if launch.shared_opt_in:
                self._driver.allow_shared(function, launch.dynamic_shared_bytes.value)
            self._functions[launch.symbol] = function
        self._workspace = None

    @property
    def tensors(self):
        """(name, role, dtype, shape) of every tensor."""
        return [(t.name, t.DESCRIPTOR.enum_types_by_name["Role"].values_by_number[t.role].name,
                 _schema.enum_name("DType", t.dtype), tuple(d.value for d in t.dim)) for t in self.plan.tensor]

    def evaluate(self, quantity, **dims):
        """Value of an IntExpr of the plan for other dims than it was asked for."""
        names = dict(self.plan.constant)
        names.update(self.plan.config)
        names.update(dims)
        return expr.evaluate(quantity.expr, names)

    def __call__(self, *, stream=None, **arguments):
        addresses, outputs = self._addresses(arguments)
        scalars = {s.name: arguments.pop(s.name, s.default_value) for s in self.plan.scalar}
        if arguments:
            raise TypeError(f"unknown argument {sorted(arguments)[0]!r}; tensors are {[t.name for t in self.plan.tensor]}, "
                            f"scalars {[s.name for s in self.plan.scalar]}")
        if stream is None:
            torch = sys.modules.get("torch")
            stream = torch.cuda.current_stream().cuda_stream if torch is not None else 0
        workspace = self._get_workspace()
        if workspace and self.plan.workspace_init == self.plan.DESCRIPTOR.enum_types_by_name["WorkspaceInit"].values_by_name["ZERO"].number:
            self._driver.zero(workspace, self.plan.workspace_bytes.value, stream)
        for launch in self.plan.launch:
            self._launch(launch, addresses, scalars, workspace, stream)
        return outputs

    def _addresses(self, arguments):
        torch = sys.modules.get("torch")
        addresses, outputs = {}, {}
        for name, role, dtype, shape in self.tensors:
            value = arguments.pop(name, None)
            if value is None:
                if role != "OUTPUT" or torch is None:
                    raise TypeError(f"tensor {name!r} ({dtype} {list(shape)}) is missing")
                value = torch.empty(shape, dtype=getattr(torch, _TORCH_DTYPES[dtype]), device="cuda")
            if isinstance(value, int):
                address = value
            else:
                self._check(name, value, dtype, shape)
                address = value.data_ptr()
            alignment = next(t.alignment for t in self.plan.tensor if t.name == name) or 16
            if address % alignment:
                raise ValueError(f"tensor {name!r} must be aligned to {alignment} bytes")
            addresses[name] = address
            if role != "INPUT":
                outputs[name] = value
        return addresses, outputs

    @staticmethod
    def _check(name, tensor, dtype, shape):
        wanted = _TORCH_DTYPES.get(dtype)
        if str(tensor.dtype) != f"torch.{wanted}":
            raise TypeError(f"tensor {name!r} is {tensor.dtype}, the kernel takes {wanted}")
        # Leading dimensions of one may be left away.
        squeezed = [d for d in shape if d != 1]
        if [d for d in tensor.shape if d != 1] != squeezed:
            raise ValueError(f"tensor {name!r} has shape {list(tensor.shape)}, the kernel takes {list(shape)}")
        if not tensor.is_contiguous():
            raise ValueError(f"tensor {name!r} must be contiguous")
        if not tensor.is_cuda:
            raise ValueError(f"tensor {name!r} is not on a GPU")

    def _get_workspace(self):
        size = self.plan.workspace_bytes.value
        if size and self._workspace is None:
            self._workspace = self._driver.allocate(size)
        return self._workspace or 0

    def _launch(self, launch, addresses, scalars, workspace, stream):
        if launch.cluster_x.value > 1:
            raise NotImplementedError("kernels with clusters need cuLaunchKernelEx, which this version does not use")
        values = []
        for argument in launch.argument:
            kind = argument.WhichOneof("kind")
            if kind == "tensor":
                values.append(struct.pack("<Q", addresses[argument.tensor]))
            elif kind == "scalar":
                values.append(struct.pack("<f", float(scalars[argument.scalar])))
            elif kind == "integer":
                values.append(struct.pack("<i" if argument.size == 4 else "<q", argument.integer.value))
            elif kind == "workspace_offset":
                values.append(struct.pack("<Q", workspace + argument.workspace_offset.value))
            else:
                raise NotImplementedError(f"argument kind {kind} is not supported by this version")
        one = lambda quantity: max(1, quantity.value)
        self._driver.launch(self._functions[launch.symbol],
                            (one(launch.grid_x), one(launch.grid_y), one(launch.grid_z)),
                            (one(launch.block_x), one(launch.block_y), one(launch.block_z)),
                            launch.dynamic_shared_bytes.value, stream, values)

    def close(self):
        """Unloads the binary. Only once no launch of it is running any more."""
        if self._module is not None:
            self._driver.unload(self._module)
            if self._workspace:
                self._driver.free(self._workspace)
        self._module = self._workspace = None
