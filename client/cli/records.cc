// records, trials, export, import.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"
#include "client/evidence_file.h"

namespace rooftune::cli {

absl::Status RecordsList(Context& context, const ListOptions& options) {
  v1::ListRecordsRequest request;
  request.set_op(options.op);
  request.set_page_size(options.limit);
  request.set_include_superseded(options.all);
  RT_ASSIGN_OR_RETURN(const int evidence,
                      EnumValue(v1::EvidenceLevel_descriptor(), options.min_evidence, "--min-evidence"));
  request.set_min_evidence(static_cast<v1::EvidenceLevel>(evidence));
  RT_ASSIGN_OR_RETURN(const auto response, context.client->ListRecords(request));
  if (context.json) {
    PrintJson(response);
    return absl::OkStatus();
  }
  std::vector<std::vector<std::string>> rows = {
      {"RECORD", "EVIDENCE", "TIME", "DEVICE", "OPERATOR", "TEMPLATE", "CONFIGURATION"}};
  for (const auto& record : response.record()) {
    const double time_us = record.has_measurement() ? record.measurement().median_us() : record.prediction().time_us();
    rows.push_back({record.name(), v1::EvidenceLevel_Name(record.evidence()),
                    absl::StrCat(TimeText(time_us), record.has_measurement() ? "" : " predicted"), record.device_key(),
                    record.op(), record.template_id(), ConfigText(record.config())});
  }
  PrintTable(rows);
  if (!response.next_page_token().empty()) std::fprintf(stderr, "rooftune: there are more; raise --limit\n");
  return absl::OkStatus();
}

absl::Status RecordsShow(Context& context, const std::string& name) {
  RT_ASSIGN_OR_RETURN(const auto record, context.client->GetRecord(ResourceName("records/", name)));
  PrintJson(record);
  return absl::OkStatus();
}

absl::Status TrialsList(Context& context, const ListOptions& options) {
  v1::ListTrialsRequest request;
  if (!options.name.empty()) request.set_sweep(ResourceName("sweeps/", options.name));
  request.set_page_size(options.limit);
  RT_ASSIGN_OR_RETURN(const int outcome, EnumValue(v1::Outcome_descriptor(), options.outcome, "--outcome"));
  request.set_outcome(static_cast<v1::Outcome>(outcome));
  RT_ASSIGN_OR_RETURN(const auto response, context.client->ListTrials(request));
  if (context.json) {
    PrintJson(response);
    return absl::OkStatus();
  }
  std::vector<std::vector<std::string>> rows = {
      {"TRIAL", "OUTCOME", "TIME", "PREDICTED", "REGS", "SPILL", "CONFIGURATION", "MESSAGE"}};
  for (const auto& trial : response.trial()) {
    rows.push_back({absl::StrCat(trial.index()), v1::Outcome_Name(trial.outcome()),
                    MeasurementText(trial.measurement()), TimeText(trial.prediction().time_us()),
                    absl::StrCat(trial.resources().registers_per_thread()),
                    absl::StrCat(trial.resources().spill_store_bytes()),
                    absl::StrCat(trial.template_id(), " ", ConfigText(trial.config())), Clip(trial.message(), 60)});
  }
  PrintTable(rows);
  if (!response.next_page_token().empty()) std::fprintf(stderr, "rooftune: there are more; raise --limit\n");
  return absl::OkStatus();
}

absl::Status Export(Context& context, const std::vector<std::string>& sweeps, const std::string& suite,
                    const std::string& out) {
  v1::ExportEvidenceRequest request;
  for (const std::string& sweep : sweeps) request.add_sweep(ResourceName("sweeps/", sweep));
  request.set_suite(suite);
  RT_ASSIGN_OR_RETURN(const auto writer, EvidenceWriter::Create(out));
  int lines = 0;
  CatchInterrupt();  // so that no half-written file stays
  RT_RETURN_IF_ERROR(context.client->ExportEvidence(request, [&](const v1::ExportLine& line) {
    ++lines;
    return Interrupted() ? absl::CancelledError("interrupted; nothing was written") : writer->Write(line);
  }));
  // The run's header alone is no evidence.
  if (lines < 2)
    return Error(absl::StatusCode::kNotFound, "NOTHING_TO_EXPORT", "no finished sweep matches; nothing was written");
  RT_RETURN_IF_ERROR(writer->Finish());
  if (out != "-") std::fprintf(stderr, "rooftune: %d lines written to %s\n", lines, out.c_str());
  return absl::OkStatus();
}

absl::Status Import(Context& context, const std::string& file) {
  RT_ASSIGN_OR_RETURN(const auto lines, ReadEvidence(file));
  RT_ASSIGN_OR_RETURN(const auto response, context.client->ImportEvidence(lines));
  if (context.json) {
    PrintJson(response);
  } else {
    std::printf("imported %d sweeps, %d trials, %d records; %d lines were there already\n", response.sweeps(),
                response.trials(), response.records(), response.duplicates());
  }
  return absl::OkStatus();
}

}  // namespace rooftune::cli
