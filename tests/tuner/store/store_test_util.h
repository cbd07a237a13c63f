// Messages for tests of stores.
#ifndef ROOFTUNE_TESTS_TUNER_STORE_STORE_TEST_UTIL_H_
#define ROOFTUNE_TESTS_TUNER_STORE_STORE_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rooftune/v1/records.pb.h"
#include "tests/support/temp_dir.h"

namespace rooftune {

inline constexpr char kDevice[] = "nvidia-h200/132sm/141gb/700w";

inline v1::Sweep MakeSweep(const std::string& id, int64_t seconds = 1, v1::SweepState state = v1::DONE) {
  v1::Sweep sweep;
  sweep.set_name("sweeps/" + id);
  sweep.mutable_spec()->set_op("softmax rows=8 cols=64 dtype=fp32");
  sweep.set_device_key(kDevice);
  sweep.set_state(state);
  sweep.mutable_create_time()->set_seconds(seconds);
  return sweep;
}

inline v1::Measurement MakeTime(double median_us) {
  v1::Measurement measurement;
  measurement.set_median_us(median_us);
  measurement.set_ci_low_us(median_us * 0.99);
  measurement.set_ci_high_us(median_us * 1.01);
  for (int i = -2; i <= 2; ++i) measurement.add_sample_us(median_us + 0.1 * i);
  return measurement;
}

inline v1::Trial MakeTrial(const std::string& sweep_id, int index, v1::Outcome outcome = v1::OK,
                           double median_us = 10) {
  v1::Trial trial;
  trial.set_name(absl::StrCat("sweeps/", sweep_id, "/trials/", index));
  trial.set_index(index);
  trial.set_op("softmax rows=8 cols=64 dtype=fp32");
  trial.set_device_key(kDevice);
  trial.set_template_id("softmax");
  (*trial.mutable_config())["block"] = 128 + index;
  (*trial.mutable_config())["vec"] = 4;
  trial.set_outcome(outcome);
  if (outcome == v1::OK) {
    *trial.mutable_measurement() = MakeTime(median_us);
    trial.set_evidence(v1::MEASURED);
  }
  return trial;
}

inline v1::TuningRecord MakeRecord(const std::string& id, const std::string& key,
                                   v1::EvidenceLevel evidence = v1::MEASURED, double median_us = 10, int rank = 0) {
  v1::TuningRecord record;
  record.set_name("records/" + id);
  record.set_op("softmax rows=8 cols=64 dtype=fp32");
  record.set_device_key(kDevice);
  record.set_target_key(key);
  record.set_provider(v1::TEMPLATE);
  record.set_template_id("softmax");
  (*record.mutable_config())["block"] = 128;
  record.set_evidence(evidence);
  record.set_rank(rank);
  if (evidence >= v1::MEASURED) *record.mutable_measurement() = MakeTime(median_us);
  return record;
}

inline v1::ExportLine RunLine(const std::string& device_key = kDevice) {
  v1::ExportLine line;
  line.mutable_run()->set_schema(1);
  line.mutable_run()->set_device_key(device_key);
  return line;
}
inline v1::ExportLine Line(const v1::Sweep& sweep) {
  v1::ExportLine line;
  *line.mutable_sweep() = sweep;
  return line;
}
inline v1::ExportLine Line(const v1::Trial& trial) {
  v1::ExportLine line;
  *line.mutable_trial() = trial;
  return line;
}
inline v1::ExportLine Line(const v1::TuningRecord& record) {
  v1::ExportLine line;
  *line.mutable_record() = record;
  return line;
}

template <typename Items>
std::vector<std::string> NamesOf(const Items& items) {
  std::vector<std::string> names;
  for (const auto& item : items) names.push_back(item.name());
  return names;
}

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_TUNER_STORE_STORE_TEST_UTIL_H_
