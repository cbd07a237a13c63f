// Types, values and prototypes of the CUDA driver API, as far as they are used. Our own, since cuda.h need not be
// there where rooftune is built; values and layouts are those of cuda.h 13.0, which the driver keeps for good.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_CUDA_H_
#define ROOFTUNE_TUNER_WORKER_RUN_CUDA_H_

#include <cstddef>

namespace rooftune {
namespace cuda {

using Result = int;                      // CUresult
using Device = int;                      // CUdevice
using DevicePtr = unsigned long long;    // CUdeviceptr
using Context = struct ContextTag*;      // CUcontext
using Stream = struct StreamTag*;        // CUstream
using Event = struct EventTag*;          // CUevent
using Module = struct ModuleTag*;        // CUmodule
using Function = struct FunctionTag*;    // CUfunction
using Graph = struct GraphTag*;          // CUgraph
using GraphExec = struct GraphExecTag*;  // CUgraphExec
using MemHandle = unsigned long long;    // CUmemGenericAllocationHandle

struct Uuid {
  unsigned char bytes[16];
};

// CUmemLocation: type 1 = device.
struct MemLocation {
  int type = 1;
  int id = 0;
};
// CUmemAllocationProp: type 1 = pinned, no handle types.
struct MemAllocationProp {
  int type = 1;
  int requested_handle_types = 0;
  MemLocation location;
  void* win32_handle_meta_data = nullptr;
  unsigned char compression_type = 0;
  unsigned char gpu_direct_rdma_capable = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};
static_assert(sizeof(MemAllocationProp) == 32);
// CUmemAccessDesc: flags 1 = read, 3 = read and write.
struct MemAccessDesc {
  MemLocation location;
  int flags = 3;
};
static_assert(sizeof(MemAccessDesc) == 12);

// CUlaunchAttribute.
inline constexpr int kAttributeCooperative = 2;
inline constexpr int kAttributeClusterDimension = 4;
struct LaunchAttribute {
  int id = 0;
  char pad[4] = {};
  union {
    char bytes[64] = {};
    struct {
      unsigned x, y, z;
    } cluster;
    int cooperative;
    void* alignment;
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72);
struct LaunchConfig {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;
  Stream stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
static_assert(sizeof(LaunchConfig) == 56);

// CUtensorMap: opaque; the driver wants it aligned to 64 bytes.
struct alignas(64) TensorMap {
  unsigned char bytes[128] = {};
};
static_assert(sizeof(TensorMap) == 128);
// CUtensorMapDataType.
enum TensorMapType {
  kTensorMapUint8 = 0,
  kTensorMapInt32 = 3,
  kTensorMapFloat16 = 6,
  kTensorMapFloat32 = 7,
  kTensorMapFloat64 = 8,
  kTensorMapBfloat16 = 9,
};

enum DeviceAttribute {
  kMaxThreadsPerBlock = 1,
  kMaxBlockX = 2,
  kMaxBlockY = 3,
  kMaxBlockZ = 4,
  kMaxGridX = 5,
  kMaxGridY = 6,
  kMaxGridZ = 7,
  kClockRateKhz = 13,
  kMultiprocessorCount = 16,
  kMemoryClockRateKhz = 36,
  kMemoryBusBits = 37,
  kL2Bytes = 38,
  kThreadsPerMultiprocessor = 39,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kSharedPerMultiprocessor = 81,
  kRegistersPerMultiprocessor = 82,
  kSharedPerBlockOptin = 97,
  kVirtualMemorySupported = 102,
  kClusterLaunch = 120,
};
enum FunctionAttribute {
  kFunctionMaxThreads = 0,
  kFunctionStaticShared = 1,
  kFunctionMaxDynamicShared = 8,
  kFunctionNonPortableCluster = 14,
};
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr int kCaptureThreadLocal = 1;

using LogCallback = void (*)(void* data, int level, char* message, size_t length);

// member, symbol, parameters. The `_v2` names are those that cuda.h maps the plain ones to.
#define ROOFTUNE_CUDA_REQUIRED(X)                                                                               \
  X(Init, "cuInit", (unsigned flags))                                                                           \
  X(DriverGetVersion, "cuDriverGetVersion", (int* version))                                                     \
  X(GetErrorName, "cuGetErrorName", (Result code, const char** text))                                           \
  X(GetErrorString, "cuGetErrorString", (Result code, const char** text))                                       \
  X(DeviceGetCount, "cuDeviceGetCount", (int* count))                                                           \
  X(DeviceGet, "cuDeviceGet", (Device * device, int ordinal))                                                   \
  X(DeviceGetName, "cuDeviceGetName", (char* name, int length, Device device))                                  \
  X(DeviceGetUuid, "cuDeviceGetUuid_v2", (Uuid * uuid, Device device))                                          \
  X(DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t * bytes, Device device))                                     \
  X(DeviceGetAttribute, "cuDeviceGetAttribute", (int* value, int attribute, Device device))                     \
  X(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (Context * context, Device device))                           \
  X(PrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (Device device))                                         \
  X(CtxSetCurrent, "cuCtxSetCurrent", (Context context))                                                        \
  X(MemGetInfo, "cuMemGetInfo_v2", (size_t * free, size_t * total))                                             \
  X(MemAlloc, "cuMemAlloc_v2", (DevicePtr * pointer, size_t bytes))                                             \
  X(MemFree, "cuMemFree_v2", (DevicePtr pointer))                                                               \
  X(MemcpyHtoD, "cuMemcpyHtoD_v2", (DevicePtr to, const void* from, size_t bytes))                              \
  X(MemcpyDtoH, "cuMemcpyDtoH_v2", (void* to, DevicePtr from, size_t bytes))                                    \
  X(MemsetD8Async, "cuMemsetD8Async", (DevicePtr to, unsigned char value, size_t bytes, Stream stream))         \
  X(ModuleLoadData, "cuModuleLoadData", (Module * module, const void* image))                                   \
  X(ModuleUnload, "cuModuleUnload", (Module module))                                                            \
  X(ModuleGetFunction, "cuModuleGetFunction", (Function * function, Module module, const char* name))           \
  X(FuncGetAttribute, "cuFuncGetAttribute", (int* value, int attribute, Function function))                     \
  X(FuncSetAttribute, "cuFuncSetAttribute", (Function function, int attribute, int value))                      \
  X(LaunchKernelEx, "cuLaunchKernelEx",                                                                         \
    (const LaunchConfig* config, Function function, void** parameters, void** extra))                           \
  X(EventCreate, "cuEventCreate", (Event * event, unsigned flags))                                              \
  X(EventDestroy, "cuEventDestroy_v2", (Event event))                                                           \
  X(EventRecord, "cuEventRecord", (Event event, Stream stream))                                                 \
  X(EventElapsedTime, "cuEventElapsedTime", (float* milliseconds, Event start, Event end))                      \
  X(StreamCreate, "cuStreamCreate", (Stream * stream, unsigned flags))                                          \
  X(StreamDestroy, "cuStreamDestroy_v2", (Stream stream))                                                       \
  X(StreamSynchronize, "cuStreamSynchronize", (Stream stream))                                                  \
  X(StreamBeginCapture, "cuStreamBeginCapture_v2", (Stream stream, int mode))                                   \
  X(StreamEndCapture, "cuStreamEndCapture", (Stream stream, Graph * graph))                                     \
  X(GraphInstantiate, "cuGraphInstantiateWithFlags", (GraphExec * exec, Graph graph, unsigned long long flags)) \
  X(GraphUpload, "cuGraphUpload", (GraphExec exec, Stream stream))                                              \
  X(GraphLaunch, "cuGraphLaunch", (GraphExec exec, Stream stream))                                              \
  X(GraphExecDestroy, "cuGraphExecDestroy", (GraphExec exec))                                                   \
  X(GraphDestroy, "cuGraphDestroy", (Graph graph))

// May be nullptr: virtual memory (needs a device that has it), the log (drivers from CUDA 12.9 on) and tensor maps
// (from 12.0 on).
#define ROOFTUNE_CUDA_OPTIONAL(X)                                                                                     \
  X(MemGetGranularity, "cuMemGetAllocationGranularity",                                                               \
    (size_t * granularity, const MemAllocationProp* prop, int option))                                                \
  X(MemCreate, "cuMemCreate",                                                                                         \
    (MemHandle * handle, size_t bytes, const MemAllocationProp* prop, unsigned long long flags))                      \
  X(MemRelease, "cuMemRelease", (MemHandle handle))                                                                   \
  X(MemAddressReserve, "cuMemAddressReserve",                                                                         \
    (DevicePtr * pointer, size_t bytes, size_t alignment, DevicePtr hint, unsigned long long flags))                  \
  X(MemAddressFree, "cuMemAddressFree", (DevicePtr pointer, size_t bytes))                                            \
  X(MemMap, "cuMemMap", (DevicePtr pointer, size_t bytes, size_t offset, MemHandle handle, unsigned long long flags)) \
  X(MemUnmap, "cuMemUnmap", (DevicePtr pointer, size_t bytes))                                                        \
  X(MemSetAccess, "cuMemSetAccess", (DevicePtr pointer, size_t bytes, const MemAccessDesc* access, size_t count))     \
  X(LogsRegisterCallback, "cuLogsRegisterCallback", (LogCallback callback, void* data, void** handle))                \
  X(LogsUnregisterCallback, "cuLogsUnregisterCallback", (void* handle))                                               \
  X(TensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                                                   \
    (TensorMap * map, int type, unsigned rank, void* address, const unsigned long long* dims,                         \
     const unsigned long long* strides, const unsigned* box, const unsigned* element_strides, int interleave,         \
     int swizzle, int l2_promotion, int oob_fill))

// Entry points; the optional ones may be nullptr.
struct Functions {
#define ROOFTUNE_CUDA_DECLARE(member, symbol, parameters) Result(*member) parameters = nullptr;
  ROOFTUNE_CUDA_REQUIRED(ROOFTUNE_CUDA_DECLARE)
  ROOFTUNE_CUDA_OPTIONAL(ROOFTUNE_CUDA_DECLARE)
#undef ROOFTUNE_CUDA_DECLARE
};

}  // namespace cuda

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_CUDA_H_
