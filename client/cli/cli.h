// What the commands of `rooftune` share: the connection, output for people or programs, exit codes.
#ifndef ROOFTUNE_CLIENT_CLI_CLI_H_
#define ROOFTUNE_CLIENT_CLI_CLI_H_

#include <google/protobuf/message.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/client.h"

namespace rooftune::cli {

// Documented in docs/cli.md; scripts rely on them.
enum ExitCode {
  kOk = 0,
  kError = 1,
  kUsage = 2,
  kNotFound = 3,
  kDenied = 4,
  kUnavailable = 5,
  kPrecondition = 6,
  kPending = 8,
  kInterrupted = 130,
};
ExitCode ExitCodeOf(const absl::Status& status);

// Options before the command, and what they lead to.
struct Context {
  std::string address;
  std::string device;
  bool json = false;
  bool local = false;
  std::string data_dir;                    // with --local
  std::vector<std::string> template_dirs;  // with --local
  std::unique_ptr<Client> client;
};

// Commands return a status; main prints it and makes the exit code of it. `words` is an operator as typed.
struct TuneOptions {
  std::vector<std::string> words;
  std::vector<std::string> templates;
  std::string strategy = "model";
  int max_trials = 0;
  int top_predicted = 0;
  double time_budget_s = 0;
  uint64_t seed = 0;
  std::string l2 = "cold";
  std::string clock = "cool";
  std::string objective = "time";
  int compile_timeout_ms = 0;
  int run_timeout_ms = 0;
  int max_spill_bytes = 0;
  bool no_baselines = false;
  bool no_vendor = false;
  bool detach = false;
  bool dry_run = false;
  std::string request_id;
};
struct QueryOptions {
  std::vector<std::string> words;
  std::string min_evidence;
  std::string miss = "estimate";
  bool allow_nearest = false;
  bool deterministic = false;
  bool templates_only = false;
  int64_t cublaslt_version = 0;  // 0 = not said
  std::string objective = "time";
  double wait_s = 600;
  std::string record;  // fetch: instead of an operator
  std::string out = ".";
};
struct ListOptions {
  std::string name;
  std::string op;
  std::string state;
  std::string outcome;
  std::string min_evidence;
  bool all = false;
  int limit = 50;
};

struct TryOptions {
  std::vector<std::string> words;
  // "[TEMPLATE:]name=value,…"; one is tried, several are raced.
  std::vector<std::string> configs;
  std::string template_id;
  std::string l2 = "cold";
  std::string clock = "cool";
  std::string objective = "time";
  uint64_t seed = 0;
};

absl::Status Estimate(Context& context, const std::vector<std::string>& words, int top);
absl::Status Best(Context& context, const QueryOptions& options);
absl::Status Fetch(Context& context, const QueryOptions& options);
absl::Status Tune(Context& context, const TuneOptions& options);
absl::Status SweepList(Context& context, const ListOptions& options);
absl::Status SweepShow(Context& context, const std::string& name);
absl::Status SweepWatch(Context& context, const std::string& name);
absl::Status SweepCancel(Context& context, const std::string& name);
absl::Status SweepResume(Context& context, const std::string& name, bool detach);
absl::Status RecordsList(Context& context, const ListOptions& options);
absl::Status RecordsShow(Context& context, const std::string& name);
absl::Status TrialsList(Context& context, const ListOptions& options);
absl::Status Try(Context& context, const TryOptions& options);
// FAILED_PRECONDITION (REPLAY_DIFFERS) if the new measurement does not agree.
absl::Status TrialReplay(Context& context, const std::string& name);
absl::Status Export(Context& context, const std::vector<std::string>& sweeps, const std::string& suite,
                    const std::string& out);
absl::Status Import(Context& context, const std::string& file);
absl::Status TemplatesList(Context& context);
absl::Status TemplatesShow(Context& context, const std::string& id);
// `target`: an id the daemon knows; `words` may give an operator to check with.
absl::Status TemplatesCheck(Context& context, const std::string& target, const std::vector<std::string>& archs,
                            const std::vector<std::string>& words);
absl::Status TemplatesNew(Context& context, const std::string& name, const std::string& dir);
absl::Status DevicesList(Context& context, bool all);
absl::Status DevicesShow(Context& context, const std::string& name);
absl::Status DevicesCalibrate(Context& context, const std::string& name);
absl::Status Doctor(Context& context);

// Output.
// proto3 JSON with the protos' field names, one message a line.
std::string ToJson(const google::protobuf::Message& message);
void PrintJson(const google::protobuf::Message& message);
// Columns aligned for a terminal; the first row is the heading.
void PrintTable(const std::vector<std::vector<std::string>>& rows);
std::string ConfigText(const google::protobuf::Map<std::string, int64_t>& config);
// "168.4 µs" with sensible digits; "-" for 0.
std::string TimeText(double us);
// "168.4 µs ±0.3 %" of a measurement.
std::string MeasurementText(const v1::Measurement& measurement);
// "412 µJ (408 … 415) a launch"; needs a measured energy.
std::string EnergyText(const v1::Measurement& measurement);
// The operator as text; INVALID_ARGUMENT (NO_OPERATOR) if there are no words.
absl::StatusOr<std::string> OpText(const std::vector<std::string>& words);
// The number of an enum value given in any case, 0 for none; INVALID_ARGUMENT (BAD_VALUE) lists the values.
absl::StatusOr<int> EnumValue(const google::protobuf::EnumDescriptor* descriptor, const std::string& name,
                              const char* option);
// At most `columns` characters (code points) of the first line of `text`, with … where something was left away.
std::string Clip(const std::string& text, size_t columns);
// "7f3a" → "sweeps/7f3a" for the prefix "sweeps/"; a full name stays as it is.
std::string ResourceName(const std::string& prefix, const std::string& name);
// Writes a result for the user: all or nothing, readable as the umask says.
absl::Status WriteOutput(const std::string& path, const std::string& data);
// RESOURCE_EXHAUSTED or another error if not everything printed has reached standard output.
absl::Status FlushOutput();
// A person is looking at this descriptor: colours and live lines are fine (honours NO_COLOR and ROOFTUNE_FORCE_TTY).
bool IsTerminal(int fd);

// From then on the first Ctrl-C (or SIGTERM) only makes Interrupted() true, the second ends the program at once.
void CatchInterrupt();
bool Interrupted();
// A process that the first Ctrl-C also asks to end, so that no call waits for it; 0 = none.
void EndWithInterrupt(int pid);

}  // namespace rooftune::cli

#endif  // ROOFTUNE_CLIENT_CLI_CLI_H_
