#include "tests/tuner/worker/run_fake_cuda.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/generate.h"
#include "tuner/worker/run_support.h"
#include "tuner/worker/run_verify.h"

namespace rooftune {
namespace {

using cuda::DevicePtr;
using cuda::Result;

FakeCuda* fake = nullptr;
double now_us = 0;
struct FakeGraph {
  std::vector<std::function<void()>> nodes;
};
FakeGraph* capturing = nullptr;
struct FakeEvent {
  double at_us = 0;
};

template <typename T>
T* Memory(DevicePtr p) {
  return reinterpret_cast<T*>(p);
}

// Captures or executes.
Result Do(std::function<void()> work) {
  if (fake->sticky != 0) return fake->sticky;
  if (capturing != nullptr) {
    capturing->nodes.push_back(std::move(work));
  } else {
    work();
  }
  return 0;
}

Result Launch(const cuda::LaunchConfig* config, cuda::Function function, void** parameters, void**) {
  const std::string symbol = *reinterpret_cast<std::string*>(function);
  if (config->block_x * config->block_y * config->block_z > 1024) return 1;
  const FakeCuda::Kernel kernel = fake->kernels.at(symbol);
  fake->attributes[symbol].clear();
  for (unsigned i = 0; i < config->attribute_count; ++i) fake->attributes[symbol].push_back(config->attributes[i].id);
  auto values = std::make_shared<std::vector<cuda::TensorMap>>(static_cast<size_t>(kernel.arguments));
  for (int i = 0; i < kernel.arguments; ++i) {
    std::memcpy((*values)[static_cast<size_t>(i)].bytes, parameters[i], kernel.maps.count(i) > 0 ? 128 : 8);
  }
  return Do([symbol, kernel, values] {
    std::vector<void*> pointers;
    for (cuda::TensorMap& value : *values) pointers.push_back(value.bytes);
    ++fake->launches[symbol];
    const auto duration = fake->duration_us.find(symbol);
    now_us += duration != fake->duration_us.end() ? duration->second : 1;
    kernel.run(pointers.data());
  });
}

void Fill(void** a) {
  const int64_t n = ArgumentAt<int64_t>(a, 1);
  const auto dtype = static_cast<v1::DType>(ArgumentAt<int32_t>(a, 2));
  for (int64_t i = 0; i < n; ++i) {
    const double value =
        GenerateElement(ArgumentAt<uint64_t>(a, 3), ArgumentAt<uint32_t>(a, 4), static_cast<uint64_t>(i),
                        ArgumentAt<float>(a, 5), ArgumentAt<float>(a, 6), dtype);
    // Tests use FP32 only.
    Memory<float>(ArgumentAt<DevicePtr>(a, 0))[i] = static_cast<float>(value);
  }
}

void Compare(void** a) {
  const float* const out = Memory<float>(ArgumentAt<DevicePtr>(a, 0));
  const double* const reference = Memory<double>(ArgumentAt<DevicePtr>(a, 1));
  const float* const magnitude = Memory<float>(ArgumentAt<DevicePtr>(a, 2));
  CompareResult* const result = Memory<CompareResult>(ArgumentAt<DevicePtr>(a, 8));
  for (int64_t i = 0; i < ArgumentAt<int64_t>(a, 3); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &out[i], sizeof(bits));
    const double bound = ArgumentAt<double>(a, 5) * std::abs(reference[i]) +
                         ArgumentAt<double>(a, 6) * static_cast<double>(magnitude[i]) + ArgumentAt<double>(a, 7);
    const double error = std::abs(static_cast<double>(out[i]) - reference[i]);
    if (bits == 0xFFFFFFFFu) ++result->unwritten;
    if (!(error <= bound)) {
      ++result->wrong;
      result->first_wrong_index = std::min(result->first_wrong_index, static_cast<uint64_t>(i));
    }
    if (std::isfinite(error)) {
      result->max_abs = std::max(result->max_abs, error);
      result->max_ratio = std::max(result->max_ratio, error / bound);
    }
  }
}

void CheckBytes(void** a) {
  const unsigned char* const p = Memory<unsigned char>(ArgumentAt<DevicePtr>(a, 0));
  for (int64_t i = 0; i < ArgumentAt<int64_t>(a, 1); ++i) {
    *Memory<uint64_t>(ArgumentAt<DevicePtr>(a, 2)) += p[i] != 0xFF;
  }
}

void Checksum(void** a) {
  const unsigned char* const p = Memory<unsigned char>(ArgumentAt<DevicePtr>(a, 0));
  uint64_t hash = 14695981039346656037u;
  for (int64_t i = 0; i < ArgumentAt<int64_t>(a, 1); ++i) hash = (hash ^ p[i]) * 1099511628211u;
  *Memory<uint64_t>(ArgumentAt<DevicePtr>(a, 2)) += hash;
}

void ReadClock(void** a) {
  const double mhz = fake->clocks_mhz.front();
  if (fake->clocks_mhz.size() > 1) fake->clocks_mhz.erase(fake->clocks_mhz.begin());
  const uint64_t words[4] = {0, 0, static_cast<uint64_t>(mhz * 10), 10'000};
  std::memcpy(Memory<void>(ArgumentAt<DevicePtr>(a, 0)), words, sizeof(words));
}

std::map<std::string, FakeCuda::Kernel> SupportKernelsOnTheHost() {
  const auto nothing = [](void**) {};
  const auto poison = [](void** a) {
    std::memset(Memory<void>(ArgumentAt<DevicePtr>(a, 0)), 0xFF, static_cast<size_t>(ArgumentAt<int64_t>(a, 1)));
  };
  const auto reset = [](void** a) { *Memory<CompareResult>(ArgumentAt<DevicePtr>(a, 0)) = CompareResult(); };
  // Bandwidth kernels touch nothing: their buffers are large and their data nobody reads.
  return {{"rt_fill", {10, Fill}},      {"rt_poison", {2, poison}},          {"rt_reset_result", {1, reset}},
          {"rt_compare", {9, Compare}}, {"rt_check_bytes", {3, CheckBytes}}, {"rt_copy", {3, nothing}},
          {"rt_read", {3, nothing}},    {"rt_write", {2, nothing}},          {"rt_read_write", {6, nothing}},
          {"rt_widen", {4, nothing}},   {"rt_flush_read", {3, nothing}},     {"rt_l2_read", {4, nothing}},
          {"rt_empty", {0, nothing}},   {"rt_clock", {1, ReadClock}},        {"rt_ffma", {2, nothing}},
          {"rt_ex2", {2, nothing}}};
}

int Attribute(int attribute) {
  const std::map<int, int> values = {
      {cuda::kMaxThreadsPerBlock, 1024},  {cuda::kMaxBlockX, 1024},
      {cuda::kMaxBlockY, 1024},           {cuda::kMaxBlockZ, 64},
      {cuda::kMaxGridX, 2147483647},      {cuda::kMaxGridY, 65535},
      {cuda::kMaxGridZ, 65535},           {cuda::kMultiprocessorCount, 4},
      {cuda::kL2Bytes, 1 << 20},          {cuda::kSharedPerBlockOptin, 100'000},
      {cuda::kComputeCapabilityMajor, 9}, {cuda::kVirtualMemorySupported, fake->has_virtual_memory ? 1 : 0}};
  const auto found = values.find(attribute);
  return found != values.end() ? found->second : 0;
}

template <typename T>
T* Handle() {
  static int some = 0;
  return reinterpret_cast<T*>(&some);
}

void FillDevice(cuda::Functions& f) {
  f.Init = [](unsigned) { return 0; };
  f.GetErrorName = [](Result code, const char** text) {
    *text = code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR";
    return 0;
  };
  f.GetErrorString = [](Result, const char** text) {
    *text = "an error";
    return 0;
  };
  f.DeviceGetCount = [](int* count) {
    *count = 1;
    return 0;
  };
  f.DeviceGet = [](cuda::Device* device, int ordinal) {
    *device = ordinal;
    return 0;
  };
  f.DeviceGetUuid = [](cuda::Uuid* uuid, cuda::Device) {
    *uuid = {};
    return 0;
  };
  f.DeviceGetAttribute = [](int* value, int attribute, cuda::Device) {
    *value = Attribute(attribute);
    return 0;
  };
  f.PrimaryCtxRetain = [](cuda::Context* context, cuda::Device) {
    *context = reinterpret_cast<cuda::Context>(Handle<int>());
    return 0;
  };
  f.PrimaryCtxRelease = [](cuda::Device) { return 0; };
  f.CtxSetCurrent = [](cuda::Context) { return 0; };
}

void FillMemory(cuda::Functions& f) {
  f.MemGetInfo = [](size_t* free, size_t* total) {
    *free = *total = static_cast<size_t>(fake->free_bytes);
    return fake->sticky;
  };
  f.MemAlloc = [](DevicePtr* pointer, size_t bytes) {
    if (fake->sticky != 0) return fake->sticky;
    if (static_cast<int64_t>(bytes) > fake->free_bytes) return 2;
    *pointer = reinterpret_cast<DevicePtr>(std::aligned_alloc(512, (bytes + 511) / 512 * 512));
    ++fake->allocations;
    return 0;
  };
  f.MemFree = [](DevicePtr pointer) {
    std::free(Memory<void>(pointer));
    --fake->allocations;
    return 0;
  };
  f.MemcpyDtoH = [](void* to, DevicePtr from, size_t bytes) {
    if (fake->sticky == 0) std::memcpy(to, Memory<void>(from), bytes);
    return fake->sticky;
  };
  f.MemsetD8Async = [](DevicePtr to, unsigned char value, size_t bytes, cuda::Stream) {
    return Do([=] { std::memset(Memory<void>(to), value, bytes); });
  };
  // Mappings without protection: a page of the reservation on either side is memory too.
  f.MemGetGranularity = [](size_t* granularity, const cuda::MemAllocationProp*, int) {
    *granularity = 4096;
    return 0;
  };
  f.MemCreate = [](cuda::MemHandle* handle, size_t, const cuda::MemAllocationProp*, unsigned long long) {
    *handle = 1;
    ++fake->allocations;
    return fake->sticky;
  };
  f.MemRelease = [](cuda::MemHandle) {
    --fake->allocations;
    return 0;
  };
  f.MemAddressReserve = [](DevicePtr* pointer, size_t bytes, size_t, DevicePtr, unsigned long long) {
    *pointer = reinterpret_cast<DevicePtr>(std::aligned_alloc(4096, bytes));
    ++fake->allocations;
    return 0;
  };
  f.MemAddressFree = [](DevicePtr pointer, size_t) {
    std::free(Memory<void>(pointer));
    --fake->allocations;
    return 0;
  };
  f.MemMap = [](DevicePtr, size_t, size_t, cuda::MemHandle, unsigned long long) { return 0; };
  f.MemUnmap = [](DevicePtr, size_t) { return 0; };
  f.MemSetAccess = [](DevicePtr, size_t, const cuda::MemAccessDesc*, size_t) { return 0; };
}

// Refuses a little of what the driver does.
Result EncodeTensorMap(cuda::TensorMap* to, int type, unsigned rank, void* address, const unsigned long long* dims,
                       const unsigned long long* strides, const unsigned* box, const unsigned* element_strides,
                       int interleave, int swizzle, int l2_promotion, int oob_fill) {
  FakeCuda::EncodedMap map;
  map.address = reinterpret_cast<uint64_t>(address);
  map.type = type;
  map.rank = static_cast<int32_t>(rank);
  if (map.address % 16 != 0 || reinterpret_cast<uint64_t>(to) % 64 != 0) return 1;
  for (unsigned i = 0; i < rank; ++i) {
    if (dims[i] == 0 || box[i] == 0 || box[i] > 256 || (i > 0 && strides[i - 1] % 16 != 0)) return 1;
    map.dims[i] = dims[i];
    if (i > 0) map.strides[i - 1] = strides[i - 1];
    map.box[i] = static_cast<uint8_t>(box[i]);
    map.element_strides[i] = static_cast<uint8_t>(element_strides[i]);
  }
  map.interleave = static_cast<uint8_t>(interleave);
  map.swizzle = static_cast<uint8_t>(swizzle);
  map.l2_promotion = static_cast<uint8_t>(l2_promotion);
  map.oob_fill = static_cast<uint8_t>(oob_fill);
  std::memcpy(to->bytes, &map, sizeof(map));
  ++fake->encoded_maps;
  return 0;
}

void FillLaunching(cuda::Functions& f) {
  f.ModuleLoadData = [](cuda::Module* module, const void*) {
    *module = reinterpret_cast<cuda::Module>(++fake->module_loads);
    fake->live_modules.insert(*module);
    return fake->sticky;
  };
  f.ModuleUnload = [](cuda::Module module) {
    if (fake->live_modules.erase(module) == 0) ++fake->uses_after_unload;
    return 0;
  };
  f.ModuleGetFunction = [](cuda::Function* function, cuda::Module module, const char* name) {
    if (fake->live_modules.count(module) == 0) ++fake->uses_after_unload;
    const auto found = fake->kernels.find(name);
    if (found == fake->kernels.end()) return 500;
    *function = reinterpret_cast<cuda::Function>(const_cast<std::string*>(&found->first));
    return 0;
  };
  f.FuncSetAttribute = [](cuda::Function, int, int) { return 0; };
  f.LaunchKernelEx = Launch;
  if (fake->has_tensor_maps) f.TensorMapEncodeTiled = EncodeTensorMap;
  f.StreamCreate = [](cuda::Stream* stream, unsigned) {
    *stream = reinterpret_cast<cuda::Stream>(Handle<int>());
    return 0;
  };
  f.StreamDestroy = [](cuda::Stream) { return 0; };
  f.StreamSynchronize = [](cuda::Stream) { return fake->sticky; };
  f.EventCreate = [](cuda::Event* event, unsigned) {
    *event = reinterpret_cast<cuda::Event>(new FakeEvent);
    ++fake->events;
    return fake->sticky;
  };
  f.EventDestroy = [](cuda::Event event) {
    delete reinterpret_cast<FakeEvent*>(event);
    --fake->events;
    return 0;
  };
  f.EventRecord = [](cuda::Event event, cuda::Stream) {
    reinterpret_cast<FakeEvent*>(event)->at_us = now_us;
    return fake->sticky;
  };
  f.EventElapsedTime = [](float* milliseconds, cuda::Event start, cuda::Event end) {
    const double us = reinterpret_cast<FakeEvent*>(end)->at_us - reinterpret_cast<FakeEvent*>(start)->at_us;
    *milliseconds = static_cast<float>(us / 1000);
    return fake->sticky;
  };
}

void FillGraphs(cuda::Functions& f) {
  f.StreamBeginCapture = [](cuda::Stream, int) {
    capturing = new FakeGraph;
    ++fake->graphs;
    return fake->sticky;
  };
  f.StreamEndCapture = [](cuda::Stream, cuda::Graph* graph) {
    *graph = reinterpret_cast<cuda::Graph>(capturing);
    capturing = nullptr;
    return fake->sticky;
  };
  f.GraphInstantiate = [](cuda::GraphExec* exec, cuda::Graph graph, unsigned long long) {
    *exec = reinterpret_cast<cuda::GraphExec>(graph);
    return 0;
  };
  f.GraphUpload = [](cuda::GraphExec, cuda::Stream) { return 0; };
  f.GraphLaunch = [](cuda::GraphExec exec, cuda::Stream) {
    for (const auto& node : reinterpret_cast<FakeGraph*>(exec)->nodes) node();
    return fake->sticky;
  };
  f.GraphExecDestroy = [](cuda::GraphExec) { return 0; };
  f.GraphDestroy = [](cuda::Graph graph) {
    delete reinterpret_cast<FakeGraph*>(graph);
    --fake->graphs;
    return 0;
  };
}

}  // namespace

FakeCuda::FakeCuda() : kernels(SupportKernelsOnTheHost()) {
  fake = this;
  now_us = 0;
  kernels["rt_checksum"] = {3, Checksum};
  kernels["rt_scrub_shared"] = {1, [](void**) {}};
}

FakeCuda::~FakeCuda() { fake = nullptr; }

std::unique_ptr<CudaDriver> FakeCuda::driver() const {
  cuda::Functions functions;
  FillDevice(functions);
  FillMemory(functions);
  FillLaunching(functions);
  FillGraphs(functions);
  return CudaDriver::FromFunctions(functions);
}

void FakeCuda::Submit(double us, std::function<void()> work) {
  Do([us, work = std::move(work)] {
    now_us += us;
    work();
  });
}

std::string FakeCuda::Cubin() {
  std::string elf(128, '\0');
  std::memcpy(elf.data(),
              "\x7f"
              "ELF\x02\x01",
              6);
  elf[18] = static_cast<char>(190);
  elf[40] = elf[58] = 64;
  elf[60] = 1;
  return elf;
}

}  // namespace rooftune
