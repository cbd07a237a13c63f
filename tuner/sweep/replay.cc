#include "tuner/sweep/replay.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace rooftune {
namespace {

struct Interval {
  double low;
  double high;
};

Interval IntervalOf(const v1::Measurement& m) {
  const double half = std::max(0.005 * m.median_us(), 0.25);
  const double low = m.ci_low_us() > 0 ? m.ci_low_us() : m.median_us();
  const double high = m.ci_high_us() > 0 ? m.ci_high_us() : m.median_us();
  return {std::min(low, m.median_us() - half), std::max(high, m.median_us() + half)};
}

bool Timed(const v1::Trial& trial) { return trial.has_measurement() && trial.measurement().median_us() > 0; }

}  // namespace

v1::ReplayTrialResponse CompareReplay(const v1::Trial& before, const v1::Trial& after) {
  v1::ReplayTrialResponse response;
  *response.mutable_before() = before;
  *response.mutable_after() = after;
  bool agrees = before.outcome() == after.outcome();
  if (Timed(before) && Timed(after)) {
    const Interval a = IntervalOf(before.measurement());
    const Interval b = IntervalOf(after.measurement());
    agrees = agrees && a.low <= b.high && b.low <= a.high;
    response.set_ratio(after.measurement().median_us() / before.measurement().median_us());
  } else {
    agrees = agrees && Timed(before) == Timed(after);
  }
  response.set_agrees(agrees);
  const auto compare = [&response](const char* field, const std::string& was, const std::string& is) {
    if (was != is) (*response.mutable_difference())[field] = absl::StrCat(was, " → ", is);
  };
  compare("driver", before.environment().driver(), after.environment().driver());
  compare("nvrtc", before.environment().nvrtc(), after.environment().nvrtc());
  compare("rooftune", before.environment().rooftune(), after.environment().rooftune());
  compare("sharing", before.environment().sharing(), after.environment().sharing());
  compare("device_key", before.device_key(), after.device_key());
  compare("template_revision", before.template_revision(), after.template_revision());
  compare("artifact_digest", before.artifact_digest(), after.artifact_digest());
  return response;
}

}  // namespace rooftune
