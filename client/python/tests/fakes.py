"""A fake daemon and a fake driver."""
import concurrent.futures
import hashlib
import os
import tempfile

import grpc

from rooftune import _schema

BINARY = b"\x7fELF not really a cubin, but bytes"
H200 = "sm_90"


def gemm_record(**plan):
    """A record of a split-K gemm with two launches, a workspace, a bias, scalars and a cluster."""
    record = _schema.message("TuningRecord")(name="records/r1", op="gemm m=8 n=16 k=32 dtype=bf16", template_id="gemm_mma",
                                             artifact_digest=hashlib.sha256(BINARY).hexdigest(), evidence=4)
    record.config["split_k"] = 2
    record.measurement.median_us = 168.4
    record.plan.arch, record.plan.op = H200, record.op
    record.plan.config["split_k"] = 2
    tensors = [("a", 1, 3, (8, 32)), ("b", 1, 3, (16, 32)), ("d", 2, 3, (8, 16))]
    for name, role, dtype, shape in tensors:
        tensor = record.plan.tensor.add(name=name, role=role, dtype=dtype, alignment=16)
        tensor.dim.add(value=1, expr="batch")
        for extent in shape:
            tensor.dim.add(value=extent)
    record.plan.scalar.add(name="alpha", dtype=1, default_value=1.5)
    record.plan.workspace_bytes.value, record.plan.workspace_init = 1024, 2
    product = record.plan.launch.add(symbol="rt_gemm", shared_opt_in=True)
    product.grid_x.value, product.grid_z.value, product.block_x.value, product.cluster_x.value = 4, 2, 128, 2
    product.grid_x.expr = "batch * ceildiv(m, 2) * split_k // 2"
    product.dynamic_shared_bytes.value = 65536
    product.argument.add(tensor="a", size=8)
    product.argument.add(tensor="b", size=8)
    product.argument.add(workspace_offset={"value": 256}, size=8)
    product.argument.add(integer={"value": -3}, size=4)
    total = record.plan.launch.add(symbol="rt_reduce", cooperative=True)
    total.grid_x.value, total.block_x.value = 1, 256
    total.argument.add(tensor="d", size=8)
    total.argument.add(scalar="alpha", size=4)
    total.argument.add(integer={"value": 1 << 40}, size=8)
    record.plan.MergeFrom(_schema.message("LaunchPlan")(**plan))
    return record


class FakeDriver:
    """Notes what it is asked to do."""

    def __init__(self, ordinal=0, arch=H200):
        self.ordinal, self._arch, self.calls, self._next = ordinal, arch, [], 0x1000

    def check_arch(self, arch):
        from rooftune import CudaError
        if arch != self._arch:
            raise CudaError(f"the kernel is for {arch}, GPU {self.ordinal} is {self._arch}")

    def device_of(self, address):
        return self.ordinal

    def load(self, binary):
        self.calls.append(("load", binary))
        return "module"

    def unload(self, module):
        self.calls.append(("unload", module))

    def function(self, module, symbol):
        return f"{module}.{symbol}"

    def allow_shared(self, function, size):
        self.calls.append(("allow_shared", function, size))

    def allow_large_cluster(self, function):
        self.calls.append(("allow_large_cluster", function))

    def tensor_map(self, address, *description):
        self.calls.append(("tensor_map", address, *description))
        return b"map of %#x" % address

    def allocate(self, size):
        self._next += 0x10000
        self.calls.append(("allocate", size, self._next))
        return self._next

    def free(self, address):
        self.calls.append(("free", address))

    def zero(self, address, size, stream):
        self.calls.append(("zero", address, size, stream))

    def launch(self, function, grid, block, cluster, cooperative, shared, stream, values):
        self.calls.append(("launch", function, grid, block, cluster, cooperative, shared, stream, values))

    def launches(self):
        return [c for c in self.calls if c[0] == "launch"]


class FakeTensor:
    """As much of a torch tensor as a launch looks at."""

    def __init__(self, shape, dtype="torch.bfloat16", gpu=0, address=0x100, contiguous=True):
        self.shape, self.dtype, self._address, self._contiguous = shape, dtype, address, contiguous
        self.device = type("Device", (), {"index": gpu})()
        self.is_cuda = gpu is not None

    def data_ptr(self):
        return self._address

    def is_contiguous(self):
        return self._contiguous


class FakeDaemon:
    """A gRPC server on a Unix socket. `handlers`: method name -> function(request, context)."""

    def __init__(self):
        self.requests = []
        self.handlers = {}
        self._folder = tempfile.TemporaryDirectory(prefix="rooftune-test-")
        self.address = f"unix:{os.path.join(self._folder.name, 'socket')}"
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("rooftune.v1.ConfigService", {
            "GetBestConfig": grpc.unary_unary_rpc_method_handler(
                lambda request, context: self._handle("GetBestConfig", request, context),
                _schema.message("GetBestConfigRequest").FromString, lambda m: m.SerializeToString()),
            "GetKernel": grpc.unary_stream_rpc_method_handler(
                lambda request, context: self._handle("GetKernel", request, context),
                _schema.message("GetKernelRequest").FromString, lambda m: m.SerializeToString()),
        }),))
        self._server.add_insecure_port(self.address)
        self._server.start()

    def _handle(self, name, request, context):
        self.requests.append(request)
        return self.handlers[name](request, context)

    def close(self):
        self._server.stop(None).wait()
        self._folder.cleanup()


def fail(code, reason, text, facts):
    """A handler that fails with an ErrorInfo."""
    info = _schema.by_full_name("google.rpc.ErrorInfo")(reason=reason, domain="rooftune", metadata=facts)
    status = _schema.by_full_name("google.rpc.Status")(code=code.value[0], message=text)
    status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString())

    def handler(request, context):
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(code, text)

    return handler
