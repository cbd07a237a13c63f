"""Calls to rooftuned."""
import hashlib
import os
import pathlib
import threading
from typing import TYPE_CHECKING, Dict, Optional, Tuple, Union

import grpc
from google.protobuf import json_format

from . import _schema

if TYPE_CHECKING:
    from .kernel import Kernel

Dim = Union[int, str]

_CHANNEL_OPTIONS = [("grpc.max_receive_message_length", 64 << 20)]
_MAX_BINARY = 256 << 20


class RooftuneError(Exception):
    """A call failed: `code` is the gRPC code's name, `reason` the server's (docs/errors.md), `facts` its details."""

    def __init__(self, code, reason, text, facts=None):
        super().__init__(f"{text} [{reason or code}]")
        self.code, self.reason, self.text, self.facts = code, reason, text, facts or {}


class Record:
    """A tuned configuration: a read-only view of rooftune.v1.TuningRecord (`message`)."""

    def __init__(self, message, match=None, generation=0):
        self.message, self.match, self.generation = message, match, generation

    @property
    def config(self) -> Dict[str, int]:
        return dict(self.message.config)

    @property
    def evidence_name(self) -> str:
        return _schema.enum_name("EvidenceLevel", self.message.evidence)

    @property
    def time_us(self) -> Optional[float]:
        """Measured median in microseconds, or None if it never ran on a GPU."""
        return self.message.measurement.median_us if self.message.HasField("measurement") else None

    @property
    def digest(self) -> str:
        return self.message.artifact_digest

    def to_dict(self) -> dict:
        return json_format.MessageToDict(self.message, preserving_proto_field_name=True)

    def __repr__(self):
        return f"<Record {self.message.op!r} {self.message.template_id} {self.config} {self.evidence_name}>"


def default_address() -> str:
    """$ROOFTUNE_ADDRESS, else the socket a daemon of this user listens on."""
    if os.environ.get("ROOFTUNE_ADDRESS"):
        return os.environ["ROOFTUNE_ADDRESS"]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = f"{runtime}/rooftune" if runtime else f"/tmp/rooftune-{os.getuid()}"
    return f"unix:{folder}/rooftune.sock"


def op_text(op: str, dims: Dict[str, Dim]) -> str:
    """The operator as text: `op` may be a kind or a whole text; keywords are appended as they are."""
    for key, value in dims.items():
        if isinstance(value, bool):
            value = int(value)
        if not isinstance(value, (int, str)) or (isinstance(value, str) and not value) or any(c.isspace() for c in str(value)):
            raise ValueError(f"{key}={value!r} is neither an integer nor a word")
        op += f" {key}={value}"
    return op


def _rich_error(error, address):
    """RooftuneError from a grpc.RpcError, with the ErrorInfo of its status details."""
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    if details is None:
        text = error.details()
        if error.code() == grpc.StatusCode.UNAVAILABLE:
            return RooftuneError("UNAVAILABLE", "NO_DAEMON", f"no rooftuned answers at {address} ({text}); start one or set "
                                                             "ROOFTUNE_ADDRESS")
        return RooftuneError(error.code().name, "", text)
    reason, facts = "", {}
    for detail in _schema.by_full_name("google.rpc.Status").FromString(details).details:
        if detail.type_url.endswith("/google.rpc.ErrorInfo"):
            info = _schema.by_full_name("google.rpc.ErrorInfo").FromString(detail.value)
            reason, facts = info.reason, dict(info.metadata)
    return RooftuneError(error.code().name, reason, error.details(), facts)


def _write(path, data):
    """All or nothing: readers see the old file or the whole new one."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


class Client:
    """A connection to one daemon. Thread-safe; the channel is made on first use and again after a fork.

    `device` ("cuda:0", "model:h200-sxm", …) is used where a call names none; empty means the daemon's first.
    """

    def __init__(self, address: Optional[str] = None, device: str = "", timeout_s: float = 10.0):
        self.address = address or default_address()
        self.device, self.timeout_s = device, timeout_s
        self._channel, self._pid, self._methods, self._lock = None, None, {}, threading.Lock()

    def close(self) -> None:
        with self._lock:
            if self._channel is not None and self._pid == os.getpid():
                self._channel.close()
            self._channel, self._methods = None, {}

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc):
        self.close()

    def _method(self, service, name, request, response, streaming=False):
        with self._lock:
            if self._channel is None or self._pid != os.getpid():
                self._channel, self._pid = grpc.insecure_channel(self.address, options=_CHANNEL_OPTIONS), os.getpid()
                self._methods = {}
            if name not in self._methods:
                kind = self._channel.unary_stream if streaming else self._channel.unary_unary
                self._methods[name] = kind(
                    f"/rooftune.v1.{service}/{name}", request_serializer=_schema.message(request).SerializeToString,
                    response_deserializer=_schema.message(response).FromString)
            return self._methods[name]

    def _query(self, op, device, min_evidence, miss, allow_nearest, generation, deterministic, templates_only,
               cublaslt_version, dims):
        return _schema.message("GetBestConfigRequest")(
            op=op_text(op, dims), device=device or self.device,
            min_evidence=_schema.enum_value("EvidenceLevel", min_evidence) if min_evidence else 0,
            miss_policy=_schema.enum_value("MissPolicy", miss) if miss else 0, allow_nearest=allow_nearest,
            generation=generation, deterministic=deterministic, cublaslt_version=cublaslt_version,
            provider=[_schema.enum_value("Provider", "TEMPLATE")] if templates_only else [])

    def best(self, op: str, *, device: str = "", min_evidence: str = "", miss: str = "fail", allow_nearest: bool = False,
             generation: int = 0, deterministic: bool = False, templates_only: bool = False, cublaslt_version: int = 0,
             timeout_s: Optional[float] = None, **dims: Dim) -> Record:
        """The best known configuration as a Record; RooftuneError (NOT_TUNED) if there is none.

        `miss`: fail, estimate, tune_async or wait (give a `timeout_s` with it). `op`: a kind with dims and attributes as
        keywords, or a whole text. `templates_only`: no call of cuBLASLt, but the best kernel; `cublaslt_version`: none of
        another version of the library than this (rooftune.cublaslt.version()).
        """
        request = self._query(op, device, min_evidence, miss, allow_nearest, generation, deterministic, templates_only,
                              cublaslt_version, dims)
        call = self._method("ConfigService", "GetBestConfig", "GetBestConfigRequest", "GetBestConfigResponse")
        try:
            response = call(request, timeout=timeout_s or self.timeout_s)
        except grpc.RpcError as error:
            raise _rich_error(error, self.address) from None
        return Record(response.record, _schema.enum_name("Match", response.match), response.generation)

    def fetch(self, op: str, *, directory: Union[str, os.PathLike, None] = None, device: str = "", min_evidence: str = "",
              miss: str = "fail", allow_nearest: bool = False, generation: int = 0, deterministic: bool = False,
              templates_only: bool = False, cublaslt_version: int = 0, timeout_s: Optional[float] = None,
              **dims: Dim) -> Tuple[Record, bytes]:
        """(Record, binary) with the digest checked; also written as <digest>.cubin and recipe.json to `directory`. The call
        of cuBLASLt has no binary: b"" and recipe.json only."""
        request = _schema.message("GetKernelRequest")(
            query=self._query(op, device, min_evidence, miss, allow_nearest, generation, deterministic, templates_only,
                              cublaslt_version, dims))
        call = self._method("ConfigService", "GetKernel", "GetKernelRequest", "GetKernelResponse", True)
        record, data = None, bytearray()
        try:
            for part in call(request, timeout=timeout_s or max(self.timeout_s, 60)):
                if part.HasField("record"):
                    record = part.record
                else:
                    data += part.chunk
                if len(data) > _MAX_BINARY:
                    raise RooftuneError("RESOURCE_EXHAUSTED", "", "the binary is larger than 256 MiB")
        except grpc.RpcError as error:
            raise _rich_error(error, self.address) from None
        of_library = record is not None and record.plan.HasField("cublaslt") and not data
        digest = "" if of_library else hashlib.sha256(data).hexdigest()
        if record is None or digest != record.artifact_digest:
            raise RooftuneError("DATA_LOSS", "DIGEST_MISMATCH", f"the binary's digest is {digest}")
        if directory is not None:
            folder = pathlib.Path(directory)
            folder.mkdir(parents=True, exist_ok=True)
            if digest:
                _write(folder / f"{digest}.cubin", bytes(data))
            _write(folder / "recipe.json",
                   json_format.MessageToJson(record, preserving_proto_field_name=True).encode("utf-8"))
        return Record(record), bytes(data)

    def load(self, op: str, *, gpu: Optional[int] = None, **options) -> "Kernel":
        """A Kernel that launches the best binary (evidence VERIFIED or better unless `min_evidence` says less), loaded on
        `gpu` (torch's current device if left out). Other options as for fetch(); unless they say otherwise, a call of
        cuBLASLt is only taken if the version of the library here made it."""
        from . import cublaslt
        from .kernel import Kernel
        if "templates_only" not in options and "cublaslt_version" not in options:
            here = cublaslt.version()
            options.update({"cublaslt_version": here} if here else {"templates_only": True})
        record, data = self.fetch(op, **options)
        return Kernel(record, data, gpu)
