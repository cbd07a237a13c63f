// mutant_check [--out FILE] [--only TEXT]: does verification find every planted fault, and nothing in right kernels?
//
// Runs unchanged kernels over many configurations and ragged shapes first (none may fail), then every mutant of
// tests/data/mutants/mutants.json (every one must fail; races may go well). FILE gets one JSON object a line: the
// unchanged kernels, the mutants, the totals last. --only keeps templates and mutants whose id contains TEXT. Needs a
// GPU; exit code 0 if all is as it should be.
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <cstdio>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file_util.h"
#include "tests/gpu/kernel_lab.h"
#include "tuner/run/worker_runner.h"

namespace rooftune {
namespace {

// A mutant that hangs has this long: a fault takes up to 0.6 s to be reported.
constexpr int kHangTimeoutMs = 1'500;
// A race that went well is given more chances.
constexpr int kRaceAttempts = 5;
constexpr int kWanted = 60;

// An operator and the mean of its input.
using Problem = std::pair<std::string, double>;

struct Case {
  Problem problem;
  const KernelTemplate* kernel = nullptr;
  Config config;
  const Mutant* mutant = nullptr;  // null: unchanged
  absl::StatusOr<worker::v1::RunRequest> request = absl::UnknownError("not made");
  v1::Outcome outcome = v1::NOT_RUN;
  std::string message;
  int attempts = 0;
  double wall_ms = 0;
  bool caught() const { return outcome != v1::OK && outcome != v1::NOT_RUN; }
};

struct Totals {
  int correct = 0, false_alarms = 0;
  int mutants = 0, caught = 0;      // without those that may need racecheck
  int races = 0, races_caught = 0;  // those
  int otherwise = 0;                // caught, but not as expected
  int broken = 0;                   // could not be run at all
  bool good() const { return false_alarms == 0 && caught == mutants && broken == 0; }
};

class MutantCheck {
 public:
  MutantCheck(KernelLab& lab, std::string only) : lab_(lab), only_(std::move(only)) {}

  absl::Status Run() {
    Collect();
    std::vector<std::function<void()>> work;
    for (auto& [problem, request] : problems_) {
      work.push_back(
          [this, &problem = problem, &request = request] { request = lab_.PrepareOf(problem.first, problem.second); });
    }
    for (Case& one : cases_) {
      work.push_back([this, &one] {
        one.request = lab_.RunOf(*one.kernel, *lab_.library().ops().Parse(one.problem.first), one.config, one.mutant);
      });
    }
    const absl::Time start = absl::Now();
    lab_.InParallel(work);
    std::printf("compiled %zu kernels in %.1f s\n", work.size(), absl::ToDoubleSeconds(absl::Now() - start));
    WorkerRunner::Options options;
    options.worker_path = KernelLab::WorkerPath();
    options.spare = true;
    auto runner = WorkerRunner::Create(options);
    if (!runner.ok()) return runner.status();
    runner_ = *std::move(runner);
    for (const auto& [problem, request] : problems_) RunProblem(problem, request);
    return absl::OkStatus();
  }

  Totals Report(std::string* json) const;

 private:
  void Collect();
  void Add(const Problem& problem, const KernelTemplate& kernel, const Config& config, const Mutant* mutant);
  void RunProblem(const Problem& problem, const absl::StatusOr<worker::v1::PrepareRequest>& request);
  void RunCase(Case* one);

  KernelLab& lab_;
  const std::string only_;
  std::vector<Case> cases_;
  std::map<Problem, absl::StatusOr<worker::v1::PrepareRequest>> problems_;
  std::set<std::string> unchanged_;
  std::unique_ptr<WorkerRunner> runner_;
};

void MutantCheck::Add(const Problem& problem, const KernelTemplate& kernel, const Config& config,
                      const Mutant* mutant) {
  // A configuration of several mutants is checked unchanged once.
  const std::string key = absl::StrCat(kernel.id(), problem.first, problem.second, ConfigToString(config));
  if (mutant == nullptr && !unchanged_.insert(key).second) return;
  Case one;
  one.problem = problem;
  one.kernel = &kernel;
  one.config = config;
  one.mutant = mutant;
  cases_.push_back(std::move(one));
  problems_.try_emplace(problem, absl::UnknownError("not made"));
}

void MutantCheck::Collect() {
  for (const CorrectCase& correct : lab_.suite().correct) {
    const auto op = lab_.library().ops().Parse(correct.op);
    if (!op.ok()) continue;
    for (const KernelTemplate* kernel : lab_.library().For(*op, lab_.device())) {
      if (!absl::StrContains(kernel->id(), only_)) continue;
      const auto configs = SpreadConfigs(*kernel, *op, lab_.device(), correct.configs);
      if (!configs.ok()) continue;
      for (const Config& config : *configs) Add({op->text, correct.mean}, *kernel, config, nullptr);
    }
  }
  for (const Mutant& mutant : lab_.suite().mutants) {
    if (!absl::StrContains(mutant.id, only_) && !absl::StrContains(mutant.template_id, only_)) continue;
    const KernelTemplate* const kernel = lab_.library().Find(mutant.template_id);
    const auto op = lab_.library().ops().Parse(mutant.op);
    if (kernel == nullptr || !op.ok() || !kernel->Supports(*op, lab_.device())) {
      std::printf("%s: not for this device\n", mutant.id.c_str());
      continue;
    }
    const auto config = ConfigWith(*kernel, *op, lab_.device(), mutant.config);
    if (!config.ok()) {
      std::printf("%s: %s\n", mutant.id.c_str(), config.status().ToString().c_str());
      continue;
    }
    Add({op->text, mutant.mean}, *kernel, *config, nullptr);
    Add({op->text, mutant.mean}, *kernel, *config, &mutant);
  }
}

void MutantCheck::RunProblem(const Problem& problem, const absl::StatusOr<worker::v1::PrepareRequest>& request) {
  std::string failure = request.ok() ? "" : std::string(request.status().message());
  if (request.ok()) {
    const auto prepared = runner_->Prepare(*request);
    if (!prepared.ok()) failure = std::string(prepared.status().message());
    if (prepared.ok() && prepared->outcome() != v1::OK) failure = prepared->message();
  }
  if (!failure.empty()) std::printf("%s can't be prepared: %s\n", problem.first.c_str(), failure.c_str());
  for (const bool changed : {false, true}) {
    for (Case& one : cases_) {
      if (one.problem != problem || (one.mutant != nullptr) != changed) continue;
      if (failure.empty()) {
        RunCase(&one);
      } else {
        one.message = absl::StrCat("not prepared: ", failure);
      }
    }
  }
}

void MutantCheck::RunCase(Case* one) {
  if (!one->request.ok()) {
    one->message = std::string(one->request.status().message());
    return;
  }
  const bool hangs = one->mutant != nullptr && one->mutant->expect.count(v1::TIMEOUT) > 0;
  if (hangs) one->request->set_timeout_ms(kHangTimeoutMs);
  const int attempts = one->mutant != nullptr && one->mutant->racecheck ? kRaceAttempts : 1;
  const absl::Time start = absl::Now();
  while (one->attempts < attempts && !one->caught()) {
    ++one->attempts;
    const auto result = runner_->Run(*one->request);
    one->outcome = result.ok() ? result->outcome() : v1::NOT_RUN;
    one->message = result.ok() ? result->message() : std::string(result.status().message());
  }
  one->wall_ms = absl::ToDoubleMilliseconds(absl::Now() - start);
}

std::string Line(const google::protobuf::Struct& object) {
  std::string line;
  if (!google::protobuf::util::MessageToJsonString(object, &line).ok()) return "";
  return line + "\n";
}

std::string CaseLine(const Case& one, bool expected) {
  google::protobuf::Struct object;
  auto& fields = *object.mutable_fields();
  fields["id"].set_string_value(one.mutant != nullptr ? one.mutant->id : "unchanged");
  fields["template"].set_string_value(one.kernel->id());
  fields["op"].set_string_value(one.problem.first);
  if (one.problem.second != 0) fields["mean"].set_number_value(one.problem.second);
  fields["config"].set_string_value(ConfigToString(one.config));
  fields["outcome"].set_string_value(v1::Outcome_Name(one.outcome));
  fields["message"].set_string_value(one.message);
  fields["wall_ms"].set_number_value(one.wall_ms);
  if (one.mutant != nullptr) {
    fields["kind"].set_string_value(one.mutant->kind);
    fields["caught"].set_bool_value(one.caught());
    fields["expected"].set_bool_value(expected);
    fields["racecheck"].set_bool_value(one.mutant->racecheck);
    fields["attempts"].set_number_value(one.attempts);
  }
  return Line(object);
}

std::string TotalsLine(const Totals& totals, const std::string& device) {
  google::protobuf::Struct object;
  auto& fields = *object.mutable_fields();
  const auto number = [&](const char* name, int value) { fields[name].set_number_value(value); };
  fields["id"].set_string_value("totals");
  fields["device"].set_string_value(device);
  number("unchanged", totals.correct);
  number("false_alarms", totals.false_alarms);
  number("mutants", totals.mutants);
  number("caught", totals.caught);
  number("races", totals.races);
  number("races_caught", totals.races_caught);
  number("caught_otherwise", totals.otherwise);
  number("not_run", totals.broken);
  return Line(object);
}

Totals MutantCheck::Report(std::string* json) const {
  Totals totals;
  for (const Case& one : cases_) {
    const bool expected = one.mutant != nullptr && one.mutant->expect.count(one.outcome) > 0;
    const char* verdict = "";
    if (one.outcome == v1::NOT_RUN) {
      ++totals.broken;
      verdict = "NOT RUN";
    } else if (one.mutant == nullptr) {
      ++totals.correct;
      totals.false_alarms += one.caught();
      if (one.caught()) verdict = "FALSE ALARM";
    } else if (one.mutant->racecheck) {
      ++totals.races;
      totals.races_caught += one.caught();
      verdict = one.caught() ? "caught" : "went well";
    } else {
      ++totals.mutants;
      totals.caught += one.caught();
      verdict = one.caught() ? "caught" : "MISSED";
    }
    if (one.mutant != nullptr && one.caught() && !expected) ++totals.otherwise;
    absl::StrAppend(json, CaseLine(one, expected));
    if (*verdict == '\0') continue;
    std::printf("%-11s %-38s %-13s %7.1f ms  %.110s%s\n", verdict,
                one.mutant != nullptr ? one.mutant->id.c_str()
                                      : absl::StrCat(one.kernel->id(), ": ", one.problem.first).c_str(),
                v1::Outcome_Name(one.outcome).c_str(), one.wall_ms, one.message.c_str(),
                one.mutant == nullptr || expected || !one.caught() ? "" : "  [not as expected]");
  }
  absl::StrAppend(json, TotalsLine(totals, lab_.device().name()));
  return totals;
}

int Main(const std::string& out, const std::string& only) {
  const absl::Time start = absl::Now();
  auto lab = KernelLab::Create({});
  if (!lab.ok()) {
    std::fprintf(stderr, "mutant_check: %s\n", lab.status().ToString().c_str());
    return 2;
  }
  MutantCheck check(**lab, only);
  const absl::Status ran = check.Run();
  if (!ran.ok()) {
    std::fprintf(stderr, "mutant_check: %s\n", ran.ToString().c_str());
    return 2;
  }
  std::string json;
  const Totals totals = check.Report(&json);
  std::printf(
      "%d unchanged kernels, %d false alarms; %d of %d mutants caught; %d of %d races seen without racecheck; "
      "%d caught otherwise than expected; %d not run; %.1f s\n",
      totals.correct, totals.false_alarms, totals.caught, totals.mutants, totals.races_caught, totals.races,
      totals.otherwise, totals.broken, absl::ToDoubleSeconds(absl::Now() - start));
  if (!out.empty()) {
    const absl::Status written = WriteFileAtomic(out, json);
    if (!written.ok()) std::fprintf(stderr, "mutant_check: %s\n", written.ToString().c_str());
    if (!written.ok()) return 2;
  }
  if (!only.empty()) return totals.good() ? 0 : 1;
  return totals.good() && totals.caught >= kWanted && totals.correct >= kWanted ? 0 : 1;
}

}  // namespace
}  // namespace rooftune

int main(int argc, char** argv) {
  std::string out, only;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 >= argc || (name != "--out" && name != "--only")) {
      std::fprintf(stderr, "usage: mutant_check [--out FILE] [--only TEXT]\n");
      return 2;
    }
    (name == "--out" ? out : only) = argv[i + 1];
  }
  return rooftune::Main(out, only);
}
