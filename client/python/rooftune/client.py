"""Calls to rooftuned."""
import hashlib
import os
import pathlib

import grpc
from google.protobuf import json_format

from . import _schema

_CHANNEL_OPTIONS = [("grpc.max_receive_message_length", 4 << 20)]


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
    def config(self):
        return dict(self.message.config)

    @property
    def evidence_name(self):
        return _schema.enum_name("EvidenceLevel", self.message.evidence)

    @property
    def time_us(self):
        """Measured median in microseconds, or None if it never ran on a GPU."""
        return self.message.measurement.median_us if self.message.HasField("measurement") else None

    @property
    def digest(self):
        return self.message.artifact_digest

    def to_dict(self):
        return json_format.MessageToDict(self.message, preserving_proto_field_name=True)

    def __repr__(self):
        return f"<Record {self.message.op!r} {self.message.template_id} {self.config} {self.evidence_name}>"


def default_address():
    """$ROOFTUNE_ADDRESS, else the socket a daemon of this user listens on."""
    if os.environ.get("ROOFTUNE_ADDRESS"):
        return os.environ["ROOFTUNE_ADDRESS"]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = f"{runtime}/rooftune" if runtime else f"/tmp/rooftune-{os.getuid()}"
    return f"unix:{folder}/rooftune.sock"


def op_text(op, dims):
    """The operator as text: `op` may be a kind or a whole text; keywords are appended as they are."""
    for key, value in dims.items():
        if isinstance(value, bool):
            value = int(value)
        if not isinstance(value, (int, str)) or (isinstance(value, str) and not value) or any(c.isspace() for c in str(value)):
            raise ValueError(f"{key}={value!r} is neither an integer nor a word")
        op += f" {key}={value}"
    return op


def _rich_error(error):
    """RooftuneError from a grpc.RpcError, with the ErrorInfo of its status details."""
    reason, facts = "", {}
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        # google.rpc.Status and ErrorInfo are read as any protobuf: field 3 of Status is a list of Any.
        status = _schema._pool.FindMessageTypeByName("google.rpc.Status")
        info = _schema._pool.FindMessageTypeByName("google.rpc.ErrorInfo")
        make = _schema.message_factory.GetMessageClass if hasattr(_schema.message_factory, "GetMessageClass") else \
            _schema.message_factory.MessageFactory(_schema._pool).GetPrototype
        parsed = make(status)()
        parsed.ParseFromString(value)
        for detail in parsed.details:
            if detail.type_url.endswith("google.rpc.ErrorInfo"):
                unpacked = make(info)()
                unpacked.ParseFromString(detail.value)
                reason, facts = unpacked.reason, dict(unpacked.metadata)
    return RooftuneError(error.code().name, reason, error.details(), facts)


class Client:
    """A connection to one daemon. Thread-safe; the channel is made on first use and again after a fork.

    `device` ("cuda:0", "model:h200-sxm", …) is used where a call names none; empty means the daemon's first.
    """

    def __init__(self, address=None, device="", timeout_s=10.0):
        self.address = address or default_address()
        self.device, self.timeout_s = device, timeout_s
        self._channel, self._pid = None, None

    def close(self):
        if self._channel is not None:
            self._channel.close()
        self._channel = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def _method(self, service, name, request, response, streaming=False):
        if self._channel is None or self._pid != os.getpid():
            self._channel, self._pid = grpc.insecure_channel(self.address, options=_CHANNEL_OPTIONS), os.getpid()
        kind = self._channel.unary_stream if streaming else self._channel.unary_unary
        return kind(f"/rooftune.v1.{service}/{name}", request_serializer=lambda m: m.SerializeToString(),
                    response_deserializer=_schema.message(response).FromString)

    def _query(self, op, device, min_evidence, miss, allow_nearest, generation, dims):
        return _schema.message("GetBestConfigRequest")(
            op=op_text(op, dims), device=device or self.device,
            min_evidence=_schema.enum_value("EvidenceLevel", min_evidence) if min_evidence else 0,
            miss_policy=_schema.enum_value("MissPolicy", miss) if miss else 0, allow_nearest=allow_nearest,
            generation=generation)

    def best(self, op, *, device="", min_evidence="", miss="fail", allow_nearest=False, generation=0, **dims):
        """The best known configuration as a Record; RooftuneError (NOT_TUNED) if there is none.

        `miss`: fail, estimate, tune_async or wait. `op`: a kind with dims as keywords, or a whole text.
        """
        request = self._query(op, device, min_evidence, miss, allow_nearest, generation, dims)
        try:
            response = self._method("ConfigService", "GetBestConfig", "GetBestConfigRequest", "GetBestConfigResponse")(
                request, timeout=self.timeout_s)
        except grpc.RpcError as error:
            raise _rich_error(error) from None
        return Record(response.record, _schema.enum_name("Match", response.match), response.generation)

    def fetch(self, op, *, directory=None, device="", min_evidence="", miss="fail", **dims):
        """(Record, binary) with the digest checked; also written as <digest>.cubin and recipe.json to `directory`."""
        request = _schema.message("GetKernelRequest")(
            query=self._query(op, device, min_evidence, miss, False, 0, dims))
        record, data = None, bytearray()
        try:
            for part in self._method("ConfigService", "GetKernel", "GetKernelRequest", "GetKernelResponse", True)(
                    request, timeout=max(self.timeout_s, 60)):
                if part.HasField("record"):
                    record = part.record
                else:
                    data += part.chunk
        except grpc.RpcError as error:
            raise _rich_error(error) from None
        digest = hashlib.sha256(data).hexdigest()
        if record is None or digest != record.artifact_digest:
            raise RooftuneError("DATA_LOSS", "DIGEST_MISMATCH", f"the binary's digest is {digest}")
        result = Record(record)
        if directory is not None:
            folder = pathlib.Path(directory)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{digest}.cubin").write_bytes(data)
            (folder / "recipe.json").write_text(
                json_format.MessageToJson(record, preserving_proto_field_name=True), encoding="utf-8")
        return result, bytes(data)

    def load(self, op, **options):
        """A Kernel that launches the best binary (evidence VERIFIED or better unless `min_evidence` says less)."""
        from .kernel import Kernel
        record, data = self.fetch(op, **options)
        return Kernel(record, data)
