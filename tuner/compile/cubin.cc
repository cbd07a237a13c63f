#include "tuner/compile/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "tuner/compile/elf_reader.h"

namespace rooftune {
namespace {

using worker::v1::KernelInfo;

// Marks of CUDA's ELF files; read off cubins of NVRTC 12 and 13 and compared with the assembler's own report.
constexpr uint16_t kMachineCuda = 190;
constexpr uint8_t kSymbolIsKernel = 0x10;  // in st_other
constexpr uint8_t kAttrMaxThreads = 0x05;
constexpr uint8_t kAttrRequiredThreads = 0x10;
constexpr uint8_t kAttrKernelParameter = 0x17;
constexpr uint8_t kAttrRegisterCount = 0x2f;
// Formats of an attribute: only this one carries a payload of a given size behind its four bytes.
constexpr uint8_t kFormatSized = 0x04;
// Bit position of the size in the last word of a parameter's entry.
constexpr int kParameterSizeShift = 18;
// Shared memory that the system keeps in every block from sm_90 on; counted in the section, not the kernel's.
constexpr uint64_t kReservedShared = 1024;
constexpr int kReservedSharedSinceArch = 90;
// A kernel has at most 32764 bytes of parameters.
constexpr int kMaxParameters = 32764;

absl::Status Broken(absl::string_view what) { return absl::DataLossError(absl::StrCat("not a whole cubin: ", what)); }

struct Attribute {
  uint8_t code;
  absl::string_view payload;
};

absl::StatusOr<std::vector<Attribute>> ReadAttributes(absl::string_view data) {
  std::vector<Attribute> attributes;
  for (uint64_t at = 0; at < data.size();) {
    const auto format = ReadInt<uint8_t>(data, at);
    const auto code = ReadInt<uint8_t>(data, at + 1);
    const auto size = ReadInt<uint16_t>(data, at + 2);
    if (!format || !code || !size) return Broken("an attribute is cut off");
    at += 4;
    if (*format != kFormatSized) continue;
    if (data.size() - at < *size) return Broken("an attribute is cut off");
    attributes.push_back({*code, data.substr(at, *size)});
    at += *size;
  }
  return attributes;
}

// From CUDA 13 on the number sits in the second byte (ELF ABI version 8), before in the first.
int ArchNumber(const ElfFile& file) { return file.abi_version >= 8 ? (file.flags >> 8) & 0xff : file.flags & 0xff; }

// The flags do not tell sm_90 from sm_90a; the note of the assembler's options does.
std::string ArchName(const ElfFile& file) {
  const std::string plain = absl::StrCat("sm_", ArchNumber(file));
  const ElfSection* note = file.Find(".note.nv.tkinfo");
  if (note == nullptr) return plain;
  const absl::string_view option = "-arch ";
  size_t at = note->data.find(option);
  if (at == absl::string_view::npos) return plain;
  at += option.size();
  size_t end = at;
  while (end < note->data.size() && (absl::ascii_isalnum(note->data[end]) || note->data[end] == '_')) ++end;
  const std::string named(note->data.substr(at, end - at));
  // Only a suffix may differ.
  return named.compare(0, plain.size(), plain) == 0 && named.size() <= plain.size() + 1 ? named : plain;
}

absl::Status SetSize(uint64_t value, absl::string_view what, int32_t limit, void (v1::Resources::*set)(int32_t),
                     v1::Resources* resources) {
  if (value > static_cast<uint64_t>(limit)) return Broken(absl::StrCat("impossible ", what));
  (resources->*set)(static_cast<int32_t>(value));
  return absl::OkStatus();
}

absl::Status AddParameter(absl::string_view payload, KernelInfo* kernel) {
  const auto ordinal = ReadInt<uint16_t>(payload, 4);
  const auto offset = ReadInt<uint16_t>(payload, 6);
  const auto packed = ReadInt<uint32_t>(payload, 8);
  if (!ordinal || !offset || !packed || kernel->parameter_size() >= kMaxParameters) return Broken("bad parameter");
  auto* parameter = kernel->add_parameter();
  parameter->set_ordinal(*ordinal);
  parameter->set_offset(*offset);
  parameter->set_size(static_cast<int32_t>(*packed >> kParameterSizeShift));
  return absl::OkStatus();
}

absl::Status ReadKernelAttributes(const ElfSection& section, KernelInfo* kernel) {
  RT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes, ReadAttributes(section.data));
  for (const Attribute& attribute : attributes) {
    if (attribute.code == kAttrKernelParameter) {
      RT_RETURN_IF_ERROR(AddParameter(attribute.payload, kernel));
    } else if (attribute.code == kAttrMaxThreads || attribute.code == kAttrRequiredThreads) {
      uint64_t threads = 1;
      for (int axis = 0; axis < 3; ++axis) {
        const auto size = ReadInt<uint32_t>(attribute.payload, 4 * axis);
        if (!size) return Broken("an attribute is cut off");
        threads = std::min<uint64_t>(threads * *size, uint64_t{1} << 31);
      }
      RT_RETURN_IF_ERROR(SetSize(threads, "launch bound", 1 << 20, &v1::Resources::set_threads_per_block,
                                 kernel->mutable_resources()));
    }
  }
  auto* parameters = kernel->mutable_parameter();
  std::sort(parameters->begin(), parameters->end(),
            [](const auto& a, const auto& b) { return a.ordinal() < b.ordinal(); });
  return absl::OkStatus();
}

// Register counts by symbol index.
absl::StatusOr<std::map<uint32_t, uint32_t>> ReadRegisters(const ElfFile& file) {
  std::map<uint32_t, uint32_t> registers;
  const ElfSection* info = file.Find(".nv.info");
  if (info == nullptr) return registers;
  RT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes, ReadAttributes(info->data));
  for (const Attribute& attribute : attributes) {
    if (attribute.code != kAttrRegisterCount) continue;
    const auto symbol = ReadInt<uint32_t>(attribute.payload, 0);
    const auto count = ReadInt<uint32_t>(attribute.payload, 4);
    if (!symbol || !count) return Broken("an attribute is cut off");
    registers[*symbol] = *count;
  }
  return registers;
}

using SectionsByName = absl::flat_hash_map<std::string, const ElfSection*>;

absl::Status ReadKernel(const ElfFile& file, const ElfSymbol& symbol, const SectionsByName& sections,
                        KernelInfo* kernel) {
  const std::string name(symbol.name);
  const auto find = [&](absl::string_view prefix) -> const ElfSection* {
    const auto it = sections.find(absl::StrCat(prefix, name));
    return it == sections.end() ? nullptr : it->second;
  };
  kernel->set_symbol(name);
  const ElfSection* code = find(".text.");
  if (code == nullptr) return Broken(absl::StrCat("no code of kernel ", name));
  auto* resources = kernel->mutable_resources();
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  RT_RETURN_IF_ERROR(SetSize(code->size, "code size", kMax, &v1::Resources::set_code_bytes, resources));
  if (const ElfSection* shared = find(".nv.shared.")) {
    const uint64_t reserved = ArchNumber(file) >= kReservedSharedSinceArch ? kReservedShared : 0;
    RT_RETURN_IF_ERROR(SetSize(shared->size - std::min(shared->size, reserved), "shared memory size", kMax,
                               &v1::Resources::set_static_shared_bytes, resources));
  }
  if (const ElfSection* info = find(".nv.info.")) RT_RETURN_IF_ERROR(ReadKernelAttributes(*info, kernel));
  return absl::OkStatus();
}

// Functions that were not inlined are local symbols "$kernel$function".
std::vector<std::string> Called(const ElfFile& file, const std::string& kernel) {
  const std::string prefix = absl::StrCat("$", kernel, "$");
  std::vector<std::string> called;
  for (const ElfSymbol& symbol : file.symbol) {
    absl::string_view name = symbol.name;
    if (absl::ConsumePrefix(&name, prefix)) called.emplace_back(name);
  }
  return called;
}

struct FunctionUsage {
  int32_t stack = 0, stores = 0, loads = 0;
};

// "  0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads", perhaps with a prefix.
bool ParseUsage(absl::string_view line, FunctionUsage* usage) {
  if (line.find(" bytes stack frame") == absl::string_view::npos) return false;
  const auto number_before = [&](absl::string_view words, int32_t* value) {
    const size_t end = line.find(words);
    if (end == absl::string_view::npos) return false;
    size_t begin = end;
    while (begin > 0 && absl::ascii_isdigit(line[begin - 1])) --begin;
    return absl::SimpleAtoi(line.substr(begin, end - begin), value);
  };
  return number_before(" bytes stack frame", &usage->stack) && number_before(" bytes spill stores", &usage->stores) &&
         number_before(" bytes spill loads", &usage->loads);
}

}  // namespace

absl::StatusOr<Cubin> ParseCubin(absl::string_view data) {
  RT_ASSIGN_OR_RETURN(const ElfFile file, ReadElf(data));
  if (file.machine != kMachineCuda) return Broken("made for another machine than a CUDA GPU");
  RT_ASSIGN_OR_RETURN(const auto registers, ReadRegisters(file));
  SectionsByName sections;
  for (const ElfSection& section : file.section) sections.emplace(std::string(section.name), &section);
  Cubin cubin;
  cubin.arch = ArchName(file);
  // More would make the search for called functions slow on hostile input; NVRTC modules hold a handful.
  constexpr size_t kMaxKernels = 1024;
  for (uint32_t i = 0; i < file.symbol.size(); ++i) {
    const ElfSymbol& symbol = file.symbol[i];
    if (ELF64_ST_TYPE(symbol.info) != STT_FUNC || (symbol.other & kSymbolIsKernel) == 0) continue;
    if (cubin.kernel.size() >= kMaxKernels) return Broken("more than 1024 kernels");
    KernelInfo kernel;
    RT_RETURN_IF_ERROR(ReadKernel(file, symbol, sections, &kernel));
    const auto count = registers.find(i);
    if (count != registers.end()) {
      RT_RETURN_IF_ERROR(SetSize(count->second, "register count", 1024, &v1::Resources::set_registers_per_thread,
                                 kernel.mutable_resources()));
    }
    cubin.called.push_back(Called(file, kernel.symbol()));
    cubin.kernel.push_back(std::move(kernel));
  }
  return cubin;
}

void AddPtxasUsage(absl::string_view log, Cubin* cubin) {
  std::map<std::string, FunctionUsage> usages;
  std::string function;
  for (absl::string_view line : absl::StrSplit(log, '\n')) {
    const absl::string_view mark = "Function properties for ";
    const size_t at = line.find(mark);
    FunctionUsage usage;
    if (at != absl::string_view::npos) {
      function = std::string(absl::StripAsciiWhitespace(line.substr(at + mark.size())));
    } else if (!function.empty() && ParseUsage(line, &usage)) {
      usages[function] = usage;
    }
  }
  for (size_t i = 0; i < cubin->kernel.size(); ++i) {
    const FunctionUsage& own = usages[cubin->kernel[i].symbol()];
    int64_t stores = own.stores, loads = own.loads;
    for (const std::string& called : cubin->called[i]) {
      stores += usages[called].stores;
      loads += usages[called].loads;
    }
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    auto* resources = cubin->kernel[i].mutable_resources();
    resources->set_stack_bytes(own.stack);
    resources->set_spill_store_bytes(static_cast<int32_t>(std::min(stores, kMax)));
    resources->set_spill_load_bytes(static_cast<int32_t>(std::min(loads, kMax)));
  }
}

}  // namespace rooftune
