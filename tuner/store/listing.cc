#include "tuner/store/listing.h"

#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace rooftune {

std::string SweepListing(std::optional<v1::SweepState> state) {
  return absl::StrCat("sweeps ", state.has_value() ? static_cast<int>(*state) : -1);
}

std::string TrialListing(const TrialFilter& filter) {
  return absl::StrCat("trials ", static_cast<int>(filter.outcome), " ", filter.sweep);
}

std::string RecordListing(const RecordFilter& filter) {
  // Filters are free text: hashed with their lengths, so that no two filters look alike.
  const std::string fields = Fingerprint().Add(filter.target_key).Add(filter.op_kind).Add(filter.device_key).Key();
  return absl::StrCat("records ", static_cast<int>(filter.min_evidence), " ", filter.include_superseded, " ", fields);
}

int64_t TimeMicros(const google::protobuf::Timestamp& time) { return time.seconds() * 1'000'000 + time.nanos() / 1000; }

}  // namespace rooftune
