"""Message classes made at run time from the descriptor set, so that no generated code ties the package to one
version of protobuf."""
import pathlib

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_pool = descriptor_pool.DescriptorPool()


def _load():
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString((pathlib.Path(__file__).parent / "rooftune.protoset").read_bytes())
    for file in files.file:  # dependencies come first
        _pool.Add(file) if not hasattr(_pool, "AddSerializedFile") else _pool.AddSerializedFile(file.SerializeToString())


_load()


def message(name):
    """The class of a message of rooftune.v1, e.g. message("TuningRecord")."""
    descriptor = _pool.FindMessageTypeByName("rooftune.v1." + name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(_pool).GetPrototype(descriptor)


def enum_value(enum, name):
    """Number of an enum value by its name in any case; ValueError lists what there is."""
    values = _pool.FindEnumTypeByName("rooftune.v1." + enum).values_by_name
    if name.upper() not in values:
        known = ", ".join(v.lower() for v in values if not v.endswith("_UNSPECIFIED"))
        raise ValueError(f"{name!r} is not one of: {known}")
    return values[name.upper()].number


def enum_name(enum, number):
    return _pool.FindEnumTypeByName("rooftune.v1." + enum).values_by_number[number].name
