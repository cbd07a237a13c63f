#include "kernels/candidate.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/sha256.h"

namespace rooftune {

std::string ConfigToString(const Config& config) { return absl::StrJoin(config, ",", absl::PairFormatter("=")); }

std::string CompileKey(const worker::v1::CompileRequest& request, absl::string_view nvrtc_version) {
  Fingerprint key;
  key.Add("compile").Add(request.source().name()).Add(request.source().text());
  key.Add(absl::StrCat(request.header_size()));
  for (const auto& header : request.header()) key.Add(header.name()).Add(header.text());
  key.Add(absl::StrCat(request.define_size()));
  for (const std::string& define : request.define()) key.Add(define);
  return key.Add(request.arch()).Add(absl::StrCat(request.option_list_version())).Add(nvrtc_version).Key();
}

std::string TargetKey(absl::string_view canonical_op, absl::string_view device_key, v1::Objective objective) {
  Fingerprint key;
  key.Add("target").Add(canonical_op).Add(device_key);
  if (objective == v1::ENERGY || objective == v1::ENERGY_DELAY) key.Add(v1::Objective_Name(objective));
  return key.Key();
}

std::string EnvironmentKey(const v1::Environment& environment) {
  const auto leading = [](const std::string& version, size_t parts) {
    std::vector<std::string> all = absl::StrSplit(version, '.');
    if (all.size() > parts) all.resize(parts);
    return absl::StrJoin(all, ".");
  };
  std::string key = absl::StrCat("nvrtc ", environment.nvrtc().empty() ? "none" : leading(environment.nvrtc(), 2));
  if (!environment.driver().empty()) absl::StrAppend(&key, "/driver ", leading(environment.driver(), 1));
  return key;
}

}  // namespace rooftune
