#include "costmodel/device_profile.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/status_macros.h"
#include "costmodel/embedded.h"
#include "base/suggest.h"
#include "costmodel/text_proto.h"

namespace rooftune {
namespace {

constexpr double kGiB = 1 << 30;
// A user's folder holds a handful of small files; these limits only stop a wrong path.
constexpr size_t kMaxProfileBytes = 64 << 10;
constexpr int kMaxProfiles = 1000;

absl::Status BadProfile(const DeviceProfile& p, absl::string_view field, absl::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_PROFILE",
               absl::StrCat("profile ", p.id(), ": ", field, " ", what), {{"field", std::string(field)}});
}

bool IsId(absl::string_view id) {
  if (id.empty() || id.size() > 63) return false;
  return std::all_of(id.begin(), id.end(),
                     [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-'; });
}

absl::Status ValidatePeaks(const DeviceProfile& p) {
  std::set<std::pair<std::string, int>> seen;
  for (const device::v1::Peak& peak : p.peak()) {
    const std::string field = absl::StrCat("peak ", peak.pipe(), " ", v1::DType_Name(peak.dtype()));
    if (peak.pipe() != "tensor" && peak.pipe() != "fp32")
      return BadProfile(p, field, "has an unknown pipe (tensor, fp32)");
    if (peak.dtype() == v1::DTYPE_UNSPECIFIED) return BadProfile(p, field, "has no dtype");
    const double rate = peak.tera_ops().value();
    // 1e6 TFLOP/s is a thousand times today's largest: a value in GFLOP/s or FLOP/s.
    if (!(rate > 0) || rate > 1e6) return BadProfile(p, field, "must be TFLOP/s within (0, 1e6]");
    if (!seen.insert({peak.pipe(), peak.dtype()}).second) return BadProfile(p, field, "is given twice");
  }
  if (p.peak_size() > 0 && p.peak_clock_mhz() <= 0) return BadProfile(p, "peak_clock_mhz", "must be given with peaks");
  return absl::OkStatus();
}

absl::StatusOr<DeviceProfile> ParseProfile(const std::string& text, const std::string& origin) {
  DeviceProfile profile;
  RT_RETURN_IF_ERROR(ParseTextProto(text, origin, &profile));
  const absl::Status valid = ValidateProfile(profile);
  if (!valid.ok()) return Annotate(valid, origin);
  return profile;
}

// "NVIDIA H200 NVL" -> "nvidia-h200-nvl".
std::string Slug(absl::string_view name) {
  std::string slug;
  for (const char c : name) {
    const char lower = absl::ascii_tolower(c);
    const bool keep = absl::ascii_islower(lower) || absl::ascii_isdigit(lower) || lower == '.';
    if (keep) {
      slug += lower;
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug;
}

// Limits that no attribute of the driver gives, by the rules of CUDA's occupancy calculator.
void FillLimitsByCc(DeviceProfile& p) {
  p.set_registers_per_thread_max(255);
  p.set_register_allocation_granularity(256);
  p.set_threads_per_block_max(1024);
  p.set_shared_reserved_per_block_bytes(p.cc() >= 80 ? 1024 : 0);
  p.set_shared_allocation_granularity(p.cc() >= 80 ? 128 : 256);
  p.set_shared_bytes_per_clk_sm(128);
  const bool small = p.cc() == 75 || p.cc() == 86 || p.cc() == 87;
  p.set_blocks_per_sm_max(small ? 16 : p.cc() == 89 || p.cc() >= 120 ? 24 : 32);
}

// Double data rate: two transfers a clock on every memory type so far (checked on HBM and GDDR cards).
double DriverBandwidthGbps(const worker::v1::DeviceInfo& info) {
  return 2.0 * info.memory_clock_mhz() * 1e6 * info.memory_bus_bits() / 8.0 / 1e9;
}

void PutDriverValues(const worker::v1::DeviceInfo& info, DeviceProfile& p) {
  if (info.cc() > 0) p.set_cc(info.cc());
  if (info.sm_count() > 0 && p.sm_count() > 0 && info.sm_count() != p.sm_count()) {
    // A part with more or fewer SMs switched on, or a MIG slice: peaks are per SM.
    const double scale = static_cast<double>(info.sm_count()) / p.sm_count();
    for (device::v1::Peak& peak : *p.mutable_peak())
      peak.mutable_tera_ops()->set_value(peak.tera_ops().value() * scale);
  }
  if (info.sm_count() > 0) p.set_sm_count(info.sm_count());
  if (info.max_clock_mhz() > 0) p.set_max_clock_mhz(info.max_clock_mhz());
  if (info.memory_bytes() > 0) p.set_memory_bytes(info.memory_bytes());
  if (info.l2_bytes() > 0) p.set_l2_bytes(info.l2_bytes());
  if (info.shared_per_block_optin_bytes() > 0) p.set_shared_per_block_optin_bytes(info.shared_per_block_optin_bytes());
  if (info.shared_per_sm_bytes() > 0) p.set_shared_per_sm_bytes(info.shared_per_sm_bytes());
  if (info.registers_per_sm() > 0) p.set_registers_per_sm(info.registers_per_sm());
  if (info.threads_per_sm() > 0) p.set_threads_per_sm(info.threads_per_sm());
  if (info.power_limit_watts() > 0) p.set_tdp_watts(info.power_limit_watts());
  const double gbps = DriverBandwidthGbps(info);
  const double known = p.memory_gbps().value();
  // A driver that reports another clock's bandwidth must not move the floor of a known card.
  if (gbps > 0 && (known <= 0 || std::fabs(gbps / known - 1.0) < 0.25)) {
    p.mutable_memory_gbps()->Clear();
    p.mutable_memory_gbps()->set_value(gbps);
    p.mutable_memory_gbps()->add_source("driver: 2 x memory clock x bus width");
  }
}

// Never destroyed: device keys are made until the process ends.
const ProfileCatalog& BuiltinCatalog() {
  static const ProfileCatalog* const catalog = [] {
    absl::StatusOr<ProfileCatalog> builtin = ProfileCatalog::Builtin();
    // Embedded files are checked by a test; without them keys just use the measured size.
    return new ProfileCatalog(builtin.ok() ? *std::move(builtin) : ProfileCatalog());
  }();
  return *catalog;
}

}  // namespace

absl::StatusOr<ProfileCatalog> ProfileCatalog::Builtin() {
  ProfileCatalog catalog;
  for (const EmbeddedFile& file : EmbeddedProfiles()) {
    RT_ASSIGN_OR_RETURN(DeviceProfile profile, ParseProfile(file.data, file.path));
    std::string id = profile.id();
    catalog.profiles_[std::move(id)] = std::move(profile);
  }
  return catalog;
}

absl::Status ProfileCatalog::AddDir(const std::string& dir) {
  std::error_code error;
  std::vector<std::string> paths;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (absl::EndsWith(it->path().string(), ".txtpb")) paths.push_back(it->path().string());
    if (paths.size() > kMaxProfiles) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_PROFILE",
                   absl::StrCat(dir, " holds more than ", kMaxProfiles, " profiles"));
    }
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("reading profiles in ", dir));
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    RT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxProfileBytes));
    RT_ASSIGN_OR_RETURN(DeviceProfile profile, ParseProfile(text, path));
    std::string id = profile.id();
    profiles_[std::move(id)] = std::move(profile);
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceProfile> ProfileCatalog::ById(absl::string_view id) const {
  const auto it = profiles_.find(std::string(id));
  if (it != profiles_.end()) return it->second;
  std::vector<std::string> ids;
  for (const auto& [known, profile] : profiles_) ids.push_back(known);
  return Error(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
               absl::StrCat("no device profile ", id.substr(0, 64), DidYouMean(id, ids)),
               {{"nearest", Nearest(id, ids)}});
}

absl::StatusOr<DeviceProfile> ProfileCatalog::ByName(absl::string_view name, int64_t memory_bytes) const {
  const DeviceProfile* best = nullptr;
  const auto distance = [&](const DeviceProfile& p) { return std::llabs(p.memory_bytes() - memory_bytes); };
  for (const auto& [id, profile] : profiles_) {
    if (profile.name() != name) continue;
    if (best == nullptr || distance(profile) < distance(*best)) best = &profile;
  }
  if (best != nullptr) return *best;
  return Error(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
               absl::StrCat("no device profile for a GPU named \"", name.substr(0, 64), "\""));
}

absl::Status ValidateProfile(const DeviceProfile& p) {
  if (!IsId(p.id())) return BadProfile(p, "id", "must be 1 to 63 of a-z, 0-9 and -");
  if (p.name().empty()) return BadProfile(p, "name", "is missing");
  const struct {
    const char* field;
    double value, min, max;
  } ranges[] = {
      {"cc", static_cast<double>(p.cc()), 50, 999},
      {"sm_count", static_cast<double>(p.sm_count()), 1, 10000},
      {"max_clock_mhz", static_cast<double>(p.max_clock_mhz()), 100, 10000},
      {"memory_bytes", static_cast<double>(p.memory_bytes()), 1 << 20, 1e15},
      {"memory_gbps", p.memory_gbps().value(), 1, 1e6},
      {"l2_bytes", static_cast<double>(p.l2_bytes()), 0, 1e12},
      {"shared_per_sm_bytes", static_cast<double>(p.shared_per_sm_bytes()), 1 << 10, 1 << 30},
      {"shared_per_block_optin_bytes", static_cast<double>(p.shared_per_block_optin_bytes()), 1 << 10,
       static_cast<double>(p.shared_per_sm_bytes())},
      {"shared_reserved_per_block_bytes", static_cast<double>(p.shared_reserved_per_block_bytes()), 0, 1 << 20},
      {"shared_allocation_granularity", static_cast<double>(p.shared_allocation_granularity()), 1, 1 << 20},
      {"registers_per_sm", static_cast<double>(p.registers_per_sm()), 1 << 10, 1 << 24},
      {"registers_per_thread_max", static_cast<double>(p.registers_per_thread_max()), 1, 1 << 16},
      {"register_allocation_granularity", static_cast<double>(p.register_allocation_granularity()), 1, 1 << 16},
      {"threads_per_sm", static_cast<double>(p.threads_per_sm()), 32, 1 << 16},
      {"threads_per_block_max", static_cast<double>(p.threads_per_block_max()), 32, 1 << 16},
      {"blocks_per_sm_max", static_cast<double>(p.blocks_per_sm_max()), 1, 1 << 10},
      {"sfu_per_clk_sm", p.sfu_per_clk_sm(), 0, 1e4},
      {"shared_bytes_per_clk_sm", p.shared_bytes_per_clk_sm(), 0, 1e5},
      {"tdp_watts", static_cast<double>(p.tdp_watts()), 0, 1e5},
  };
  for (const auto& range : ranges) {
    if (!(range.value >= range.min && range.value <= range.max)) {
      return BadProfile(p, range.field,
                        absl::StrCat("is ", range.value, ", not within [", range.min, ", ", range.max, "]"));
    }
  }
  return ValidatePeaks(p);
}

DeviceProfile ProfileOfDevice(const worker::v1::DeviceInfo& info, const ProfileCatalog& catalog) {
  DeviceProfile profile;
  const absl::StatusOr<DeviceProfile> known = catalog.ByName(info.name(), info.memory_bytes());
  if (known.ok()) {
    profile = *known;
  } else {
    profile.set_id(Slug(info.name()));
    profile.set_name(info.name());
    profile.set_cc(info.cc());
    FillLimitsByCc(profile);
    profile.set_note("not in the device table: no peaks, so bounds have a memory term only");
  }
  PutDriverValues(info, profile);
  return profile;
}

// The size as sold, so that a key does not change with what the driver keeps for itself: the known card's where
// the driver's size is near it, else GiB rounded. (H200: 143771 MiB reported, 141 sold.)
std::string DeviceKey(const worker::v1::DeviceInfo& info) {
  int64_t gb = std::llround(static_cast<double>(info.memory_bytes()) / kGiB);
  const absl::StatusOr<DeviceProfile> known = BuiltinCatalog().ByName(info.name(), info.memory_bytes());
  if (known.ok() && info.mig_profile().empty()) {
    const double sold = static_cast<double>(known->memory_bytes());
    if (std::fabs(static_cast<double>(info.memory_bytes()) / sold - 1.0) < 0.1) gb = std::llround(sold / kGiB);
  }
  std::string key =
      absl::StrCat(Slug(info.name()), "/", info.sm_count(), "sm/", gb, "gb/", info.power_limit_watts(), "w");
  if (!info.mig_profile().empty()) absl::StrAppend(&key, "/mig-", Slug(info.mig_profile()));
  return key;
}

std::string ModelDeviceKey(const DeviceProfile& profile) { return absl::StrCat("model/", profile.id()); }

std::string ArchName(int cc, bool arch_specific) { return absl::StrCat("sm_", cc, arch_specific ? "a" : ""); }

Names DeviceNames(const DeviceProfile& p) {
  return {{"cc", p.cc()},
          {"sm_count", p.sm_count()},
          {"shared_max", p.shared_per_block_optin_bytes()},
          {"shared_per_sm", p.shared_per_sm_bytes()},
          {"l2_bytes", p.l2_bytes()},
          {"registers_max", p.registers_per_sm()},
          {"threads_max", p.threads_per_block_max()}};
}

}  // namespace rooftune
