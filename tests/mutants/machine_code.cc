#include "tests/mutants/machine_code.h"

#include <cstring>

namespace rooftune {
namespace {

template <typename T>
T At(const std::string& bytes, uint64_t offset) {
  T value = {};
  if (offset + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

}  // namespace

std::vector<std::vector<Instruction>> MachineCode(const std::string& cubin) {
  constexpr uint64_t kInstructionBytes = 16;
  std::vector<std::vector<Instruction>> sections;
  // Those with SHF_EXECINSTR (4); the 64-bit ELF header has the place (40), size (58) and number (60) of their headers.
  const auto headers = At<uint64_t>(cubin, 40);
  for (int i = 0; i < At<uint16_t>(cubin, 60); ++i) {
    const uint64_t header = headers + static_cast<uint64_t>(i) * At<uint16_t>(cubin, 58);
    if ((At<uint64_t>(cubin, header + 8) & 4) == 0) continue;
    const auto from = At<uint64_t>(cubin, header + 24), size = At<uint64_t>(cubin, header + 32);
    std::vector<Instruction>& section = sections.emplace_back();
    for (uint64_t at = 0; at + kInstructionBytes <= size && from + at < cubin.size(); at += kInstructionBytes) {
      section.push_back({at, At<uint64_t>(cubin, from + at), At<uint64_t>(cubin, from + at + 8)});
    }
  }
  return sections;
}

}  // namespace rooftune
