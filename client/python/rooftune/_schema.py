"""Message classes made at run time from the descriptor set, so that no generated code ties the package to one
version of protobuf."""
import pathlib

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_pool = descriptor_pool.DescriptorPool()


def _load():
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString((pathlib.Path(__file__).parent / "rooftune.protoset").read_bytes())
    for file in files.file:  # dependencies come first
        _pool.AddSerializedFile(file.SerializeToString())


    if "google/rpc/error_details.proto" not in {file.name for file in files.file}:
        _pool.AddSerializedFile(_error_info_file().SerializeToString())


def _error_info_file():
    """google.rpc.ErrorInfo, which no service names and so no import brings."""
    file = descriptor_pb2.FileDescriptorProto(name="google/rpc/error_details.proto", package="google.rpc", syntax="proto3")
    info = file.message_type.add(name="ErrorInfo")
    optional, repeated, string = 1, 3, 9  # FieldDescriptorProto.Label and Type
    for number, name in enumerate(("reason", "domain"), 1):
        info.field.add(name=name, number=number, type=string, label=optional)
    info.field.add(name="metadata", number=3, type=11, label=repeated, type_name=".google.rpc.ErrorInfo.MetadataEntry")
    entry = info.nested_type.add(name="MetadataEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type=string, label=optional)
    return file


_load()


def by_full_name(name):
    """The class of any message of the descriptor set, e.g. by_full_name("google.rpc.Status")."""
    descriptor = _pool.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(_pool).GetPrototype(descriptor)


def message(name):
    """The class of a message of rooftune.v1, e.g. message("TuningRecord")."""
    return by_full_name("rooftune.v1." + name)


def enum_value(enum, name):
    """Number of an enum value by its name in any case; ValueError lists what there is."""
    values = _pool.FindEnumTypeByName("rooftune.v1." + enum).values_by_name
    if name.upper() not in values or values[name.upper()].number == 0:
        known = ", ".join(v.lower() for v in values if values[v].number)
        raise ValueError(f"{name!r} is not one of: {known}")
    return values[name.upper()].number


def enum_name(enum, number):
    """Name of an enum value; the number itself if this version does not know it."""
    value = _pool.FindEnumTypeByName("rooftune.v1." + enum).values_by_number.get(number)
    return value.name if value is not None else str(number)


def nested_enum_name(of, enum, number):
    """Name of a value of an enum inside a message."""
    return enum_name(f"{of}.{enum}", number)


def nested_enum_value(of, enum, name):
    return enum_value(f"{of}.{enum}", name)
