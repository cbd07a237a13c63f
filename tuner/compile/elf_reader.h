// Sections and symbols of a 64-bit little-endian ELF file held in memory; every access is bounds-checked.
#ifndef ROOFTUNE_TUNER_COMPILE_ELF_READER_H_
#define ROOFTUNE_TUNER_COMPILE_ELF_READER_H_

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rooftune {

// The little-endian integer at `offset`, or nullopt past the end.
template <typename T>
std::optional<T> ReadInt(absl::string_view data, uint64_t offset) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  if (offset > data.size() || data.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  memcpy(&value, data.data() + offset, sizeof(T));
  return value;
}

struct ElfSection {
  absl::string_view name;
  uint32_t type = 0;
  uint32_t link = 0;
  // Also of sections without data in the file.
  uint64_t size = 0;
  absl::string_view data;
};

struct ElfSymbol {
  absl::string_view name;
  uint8_t info = 0;
  uint8_t other = 0;
  uint16_t section = 0;
};

struct ElfFile {
  uint16_t machine = 0;
  uint32_t flags = 0;
  uint8_t abi_version = 0;
  std::vector<ElfSection> section;
  // By symbol index.
  std::vector<ElfSymbol> symbol;

  // First section of that name, or null.
  const ElfSection* Find(absl::string_view name) const;
};

// Views into `data`, which must outlive the result. DATA_LOSS if it is no whole ELF64 file.
absl::StatusOr<ElfFile> ReadElf(absl::string_view data);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_COMPILE_ELF_READER_H_
