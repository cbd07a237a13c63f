#include "server/context.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "kernels/candidate.h"
#include "server/rpc_status.h"

namespace rooftune {
namespace {

constexpr int kDefaultPage = 50;
constexpr int kMaxPage = 1000;
constexpr size_t kMaxId = 128;

}  // namespace

std::string WhyStale(const ServerContext& context, const v1::TuningRecord& record, const Op& op) {
  if (record.provider() != v1::TEMPLATE) return "";
  const KernelTemplate* kernel = context.deps.library.Find(record.template_id());
  if (kernel == nullptr || kernel->revision() == record.template_revision()) return "";
  const absl::StatusOr<DevicePtr> device = context.devices.Resolve(record.device_key());
  if (!device.ok() || !(*device)->has_profile) return "";
  const Config config(record.config().begin(), record.config().end());
  const std::string why = kernel->WhyRejected(op, config, (*device)->device.profile());
  if (why.empty()) return "";
  return absl::StrCat("its configuration ", ConfigToString(config), " breaks today's template ", record.template_id(),
                      ": ", why);
}

absl::StatusOr<Op> ParseOp(const ServerContext& context, const std::string& text) {
  if (text.size() > kMaxOpText) {
    return Error(absl::StatusCode::kInvalidArgument, "OP_TOO_LONG",
                 absl::StrCat("the operator's text has ", text.size(), " bytes; at most ", kMaxOpText, " are read"));
  }
  if (absl::StripAsciiWhitespace(text).empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "MISSING_OP",
                 "no operator given, e.g. op=\"gemm m=4096 n=4096 k=4096 dtype=bf16\"", {{"field", "op"}});
  }
  return context.deps.library.ops().Parse(text);
}

absl::StatusOr<int> PageSize(int requested) {
  if (requested < 0) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE", "page_size must not be negative",
                 {{"field", "page_size"}});
  }
  return requested == 0 ? kDefaultPage : std::min(requested, kMaxPage);
}

absl::StatusOr<std::string> ResourceId(const std::string& name, absl::string_view prefix) {
  absl::string_view id = name;
  bool good = absl::ConsumePrefix(&id, prefix) && !id.empty() && id.size() <= kMaxId;
  for (const char c : id) {
    good = good && (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.');
  }
  if (good) return std::string(id);
  return Error(absl::StatusCode::kInvalidArgument, "BAD_NAME",
               absl::StrCat("\"", CleanText(name, kMaxId), "\" is not of the form ", prefix, "{id}"),
               {{"field", "name"}});
}

}  // namespace rooftune
