// What a sweep could try: the union of all templates' spaces, pruned and with predicted times. Pure.
#ifndef ROOFTUNE_TUNER_SWEEP_PLANNER_H_
#define ROOFTUNE_TUNER_SWEEP_PLANNER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/template_library.h"
#include "tuner/search/strategy.h"

namespace rooftune {

struct Plan {
  Op op;
  Work work;
  v1::Bounds bounds;
  std::vector<const KernelTemplate*> templates;
  std::vector<SearchSpace> spaces;  // parallel to templates
  // Valid points that pass the static prune, by template, then by position in its space.
  std::vector<SearchPoint> points;
  int64_t space_points = 0;
  int64_t valid_points = 0;
  // Points dropped before compiling, by reason.
  std::map<std::string, int64_t> pruned;

  Config ConfigOf(const SearchPoint& point) const {
    return spaces[static_cast<size_t>(point.template_index)].At(point.space_index);
  }
};

// FAILED_PRECONDITION: NO_TEMPLATE (none implements it on this device; says why for each), EMPTY_SPACE (with
// the counts). INVALID_ARGUMENT for an operator that does not parse or an unknown template id. At most
// `max_points` points get a prediction (those of each template in order, spread evenly).
absl::StatusOr<Plan> MakePlan(const TemplateLibrary& library, absl::string_view op_text, const DeviceProfile& device,
                              const Calibration* calibration, const std::vector<std::string>& template_ids = {},
                              int64_t max_points = 20'000);

// Positions of the `top` points with the lowest predicted time, best first.
std::vector<int64_t> BestPredicted(const Plan& plan, int64_t top);

// Drops all points but those and the default configurations, counted as pruned ("not among the N best predicted").
void KeepBestPredicted(int64_t top, Plan& plan);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_PLANNER_H_
