#include "tuner/sweep/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "costmodel/roofline.h"
#include "tuner/search/policies.h"

namespace rooftune {
namespace {

// Names every template of the operator's kind with its conditions, so that a person sees which one fails.
absl::Status NoTemplate(const TemplateLibrary& library, const Op& op, const DeviceProfile& device) {
  std::vector<std::string> reasons;
  for (const KernelTemplate* candidate : library.templates()) {
    if (candidate->op_kind() != op.kind) continue;
    const auto& m = candidate->manifest();
    reasons.push_back(absl::StrCat(candidate->id(), " needs arch `", m.arch().empty() ? "1" : m.arch(), "`",
                                   m.when().empty() ? "" : absl::StrCat(" and `", m.when(), "`")));
  }
  return Error(absl::StatusCode::kFailedPrecondition, "NO_TEMPLATE",
               absl::StrCat("no template implements `", op.text, "` on ", device.id().empty() ? device.name() : device.id(),
                            " (cc ", device.cc(), "): ",
                            reasons.empty() ? "there is none for this operator; see `rooftune templates list`"
                                            : absl::StrJoin(reasons, "; ")));
}

absl::StatusOr<std::vector<const KernelTemplate*>> SelectTemplates(const TemplateLibrary& library, const Op& op,
                                                                   const DeviceProfile& device,
                                                                   const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    const KernelTemplate* found = library.Find(id);
    if (found == nullptr) {
      return Error(absl::StatusCode::kInvalidArgument, "UNKNOWN_TEMPLATE",
                   absl::StrCat("there is no template `", id, "`; see `rooftune templates list`"));
    }
    if (found->op_kind() != op.kind) {
      return Error(absl::StatusCode::kInvalidArgument, "WRONG_TEMPLATE",
                   absl::StrCat("template `", id, "` implements `", found->op_kind(), "`, not `", op.kind, "`"));
    }
  }
  std::vector<const KernelTemplate*> selected;
  for (const KernelTemplate* candidate : library.For(op, device)) {
    if (ids.empty() || std::find(ids.begin(), ids.end(), candidate->id()) != ids.end()) selected.push_back(candidate);
  }
  if (selected.empty()) return NoTemplate(library, op, device);
  return selected;
}

// Positions of a space to look at: all, or `limit` spread evenly, and always the default.
std::vector<int64_t> Positions(int64_t size, int64_t limit, int64_t default_index) {
  std::vector<int64_t> positions;
  if (size <= limit) {
    positions.resize(static_cast<size_t>(size));
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
  }
  std::set<int64_t> chosen;
  if (default_index >= 0) chosen.insert(default_index);
  for (int64_t i = 0; i < limit; ++i) chosen.insert(static_cast<int64_t>(static_cast<double>(i) * static_cast<double>(size) / static_cast<double>(limit)));
  positions.assign(chosen.begin(), chosen.end());
  return positions;
}

absl::Status AddTemplate(const KernelTemplate& source, const DeviceProfile& device, const Calibration* calibration,
                         int64_t limit, Plan& plan) {
  RT_ASSIGN_OR_RETURN(SearchSpace space, source.Space(plan.op, device));
  const int index = static_cast<int>(plan.templates.size());
  if (__builtin_add_overflow(plan.space_points, space.total_points(), &plan.space_points)) {
    plan.space_points = std::numeric_limits<int64_t>::max();
  }
  plan.valid_points += space.size();
  for (const auto& [reason, count] : space.rejected()) plan.pruned[reason] += count;
  int64_t default_index = -1;
  const auto default_config = source.DefaultConfig(plan.op, device);
  if (default_config.ok()) default_index = space.IndexOf(*default_config);
  for (const int64_t position : Positions(space.size(), limit, default_index)) {
    const Config config = space.At(position);
    RT_ASSIGN_OR_RETURN(const KernelTemplate::Analysis analysis, source.Analyse(plan.op, config, device));
    if (const auto reason = PruneStatic(analysis.resources, device)) {
      ++plan.pruned[*reason];
      continue;
    }
    const v1::Prediction prediction =
        PredictTime(plan.work, analysis.mapped, analysis.resources, device, calibration);
    plan.points.push_back({index, position, prediction.time_us(), position == default_index});
  }
  plan.templates.push_back(&source);
  plan.spaces.push_back(std::move(space));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const TemplateLibrary& library, absl::string_view op_text, const DeviceProfile& device,
                              const Calibration* calibration, const std::vector<std::string>& template_ids,
                              int64_t max_points) {
  Plan plan;
  RT_ASSIGN_OR_RETURN(plan.op, library.ops().Parse(op_text));
  RT_ASSIGN_OR_RETURN(plan.work, library.ops().Find(plan.op.kind)->ComputeWork(plan.op));
  plan.bounds = ComputeBounds(plan.work, device, calibration);
  RT_ASSIGN_OR_RETURN(const auto templates, SelectTemplates(library, plan.op, device, template_ids));
  const int64_t limit = std::max<int64_t>(1, max_points / static_cast<int64_t>(templates.size()));
  for (const KernelTemplate* source : templates) RT_RETURN_IF_ERROR(AddTemplate(*source, device, calibration, limit, plan));
  if (plan.points.empty()) {
    std::vector<std::string> counts;
    for (const auto& [reason, count] : plan.pruned) counts.push_back(absl::StrCat(reason, ": ", count));
    return Error(absl::StatusCode::kFailedPrecondition, "EMPTY_SPACE",
                 absl::StrCat("no configuration of ", plan.space_points, " is valid for `", plan.op.text, "` (",
                              absl::StrJoin(counts, ", "), ")"));
  }
  return plan;
}

std::vector<int64_t> BestPredicted(const Plan& plan, int64_t top) {
  std::vector<int64_t> order(plan.points.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return plan.points[static_cast<size_t>(a)].predicted_us < plan.points[static_cast<size_t>(b)].predicted_us;
  });
  if (static_cast<int64_t>(order.size()) > top) order.resize(static_cast<size_t>(top));
  return order;
}

void KeepBestPredicted(int64_t top, Plan& plan) {
  std::vector<bool> keep(plan.points.size());
  for (const int64_t position : BestPredicted(plan, top)) keep[static_cast<size_t>(position)] = true;
  std::vector<SearchPoint> kept;
  for (size_t i = 0; i < plan.points.size(); ++i) {
    if (keep[i] || plan.points[i].is_default) kept.push_back(plan.points[i]);
  }
  const auto dropped = static_cast<int64_t>(plan.points.size() - kept.size());
  if (dropped > 0) plan.pruned[absl::StrCat("not among the ", top, " best predicted")] += dropped;
  plan.points = std::move(kept);
}

}  // namespace rooftune
