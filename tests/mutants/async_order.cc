#include "tests/mutants/async_order.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rooftune {
namespace {

// An instruction of sm_70 and later has 128 bits; its low 9 name it and the next 3 the kind of its operands. Read off
// nvdisasm 13.0's listing of this repository's kernels.
constexpr uint64_t kNameMask = 0x1ff, kFormMask = 0xfff;
constexpr uint64_t kHgmma = 0x1f0, kIgmma = 0x1f1, kQgmma = 0x1f3;  // products of warpgroups
constexpr uint64_t kWarpgroup = 0x1c5;                              // ARRIVE or DEPBAR
constexpr uint64_t kSyncsArrive = 0x9a7;                            // with its form: SYNCS has others
constexpr uint64_t kStsm = 0x044, kSts = 0x188;                     // stores to shared memory
constexpr uint64_t kFenceView = 0x1c6, kUtmastg = 0x1b5;            // proxy fence; TMA store
constexpr uint64_t kBar = 0x11d;                                    // barrier of threads
// Of the upper half of WARPGROUP: set in DEPBAR, which waits.
constexpr uint64_t kDepbarBit = 0x10000;

template <typename T>
T At(const std::string& bytes, uint64_t offset) {
  T value = 0;
  if (offset + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

class SectionReader {
 public:
  explicit SectionReader(std::string* faults) : faults_(*faults) {}
  void Read(uint64_t at, uint64_t low, uint64_t high) {
    const uint64_t name = low & kNameMask;
    if (name == kHgmma || name == kIgmma || name == kQgmma) products_pending_ = true;
    if (name == kWarpgroup && (high & kDepbarBit) != 0) products_pending_ = false;
    if ((low & kFormMask) == kSyncsArrive && products_pending_) {
      Fault(at, "a barrier is arrived at while products are under way that nothing waited for");
      products_pending_ = false;
    }
    if (name == kStsm || name == kSts) unfenced_ = unsynchronized_ = true;
    if (name == kFenceView) unfenced_ = false;
    if (name == kBar) unsynchronized_ = false;
    if (name != kUtmastg) return;
    if (unfenced_) Fault(at, "TMA stores what threads put into shared memory without a fence between");
    if (unsynchronized_) Fault(at, "TMA stores what threads put into shared memory without a barrier between");
    unfenced_ = unsynchronized_ = false;
  }

 private:
  void Fault(uint64_t at, const char* what) { absl::StrAppend(&faults_, absl::StrFormat("0x%x: ", at), what, "\n"); }

  std::string& faults_;
  bool products_pending_ = false, unfenced_ = false, unsynchronized_ = false;
};

}  // namespace

std::string AsyncOrderFaults(const std::string& cubin) {
  std::string faults;
  // Sections with SHF_EXECINSTR (4); the 64-bit ELF header has the place (40), size (58) and number (60) of the
  // headers.
  const auto headers = At<uint64_t>(cubin, 40);
  for (int i = 0; i < At<uint16_t>(cubin, 60); ++i) {
    const uint64_t header = headers + static_cast<uint64_t>(i) * At<uint16_t>(cubin, 58);
    if ((At<uint64_t>(cubin, header + 8) & 4) == 0) continue;
    const auto from = At<uint64_t>(cubin, header + 24), size = At<uint64_t>(cubin, header + 32);
    SectionReader reader(&faults);
    for (uint64_t at = 0; at + 16 <= size; at += 16) {
      reader.Read(at, At<uint64_t>(cubin, from + at), At<uint64_t>(cubin, from + at + 8));
    }
  }
  return faults;
}

}  // namespace rooftune
