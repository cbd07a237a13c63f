#include "tests/mutants/async_order.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/mutants/machine_code.h"

namespace rooftune {
namespace {

// Forms of SYNCS: arriving at a barrier, and trying whether it has been passed.
constexpr int kSyncsArrive = 0x9a7, kSyncsTry = 0x5a7;
// Of the upper half of WARPGROUP: set in DEPBAR, which waits.
constexpr uint64_t kDepbarBit = 0x10000;

class SectionReader {
 public:
  SectionReader(bool copies, std::string* faults) : copies_(copies), faults_(*faults) {}
  void Read(const Instruction& code) {
    switch (code.name()) {
      case opcode::kHgmma:
      case opcode::kIgmma:
      case opcode::kQgmma:
        if (copies_ && !viewed_) {
          Fault(code, "products read what threads have copied to shared memory without a fence between");
          viewed_ = true;
        }
        products_pending_ = true;
        break;
      case opcode::kWarpgroup:
        if ((code.high & kDepbarBit) != 0) products_pending_ = false;
        break;
      case opcode::kStsm:
      case opcode::kSts:
        unfenced_ = unsynchronized_ = true;
        break;
      case opcode::kFenceView:
        unfenced_ = false;
        viewed_ = true;
        break;
      case opcode::kBar:
        unsynchronized_ = false;
        break;
      case opcode::kUtmastg:
        if (unfenced_) Fault(code, "TMA stores what threads put into shared memory without a fence between");
        if (unsynchronized_) Fault(code, "TMA stores what threads put into shared memory without a barrier between");
        unfenced_ = unsynchronized_ = false;
        break;
      default:
        break;
    }
    if (code.name_and_form() == kSyncsTry) viewed_ = false;
    if (code.name_and_form() != kSyncsArrive || !products_pending_) return;
    Fault(code, "a barrier is arrived at while products are under way that nothing waited for");
    products_pending_ = false;
  }

 private:
  void Fault(const Instruction& code, const char* what) {
    absl::StrAppend(&faults_, absl::StrFormat("0x%x: ", code.offset), what, "\n");
  }

  const bool copies_;
  std::string& faults_;
  bool products_pending_ = false, viewed_ = false, unfenced_ = false, unsynchronized_ = false;
};

}  // namespace

std::string AsyncOrderFaults(const std::string& cubin) {
  std::string faults;
  for (const auto& section : MachineCode(cubin)) {
    const bool copies = std::any_of(section.begin(), section.end(), [](const Instruction& code) {
      return code.name() == opcode::kLdgsts;
    });
    SectionReader reader(copies, &faults);
    for (const Instruction& code : section) reader.Read(code);
  }
  return faults;
}

}  // namespace rooftune
