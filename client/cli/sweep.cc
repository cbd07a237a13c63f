// tune and sweep.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"

namespace rooftune::cli {
namespace {

std::string Outcomes(const v1::SweepProgress& progress) {
  std::vector<std::string> parts;
  for (const auto& [outcome, count] : progress.outcome()) parts.push_back(absl::StrCat(outcome, " ", count));
  std::sort(parts.begin(), parts.end());
  return absl::StrJoin(parts, ", ");
}

std::string ProgressLine(const v1::Sweep& sweep) {
  const auto& p = sweep.progress();
  std::string line = absl::StrCat(v1::SweepState_Name(sweep.state()), "  ", p.finished(), "/", p.planned());
  if (p.best_us() > 0) {
    absl::StrAppend(&line, "  best ", TimeText(p.best_us()), sweep.evidence() < v1::MEASURED ? " predicted" : "", " ",
                    p.best_template(), " ", ConfigText(p.best_config()));
  }
  if (!p.outcome().empty()) absl::StrAppend(&line, "  (", Outcomes(p), ")");
  if (p.eta_s() >= 1 && sweep.state() == v1::RUNNING)
    absl::StrAppend(&line, absl::StrFormat("  %.0f s left", p.eta_s()));
  return line;
}

// Shows progress on stderr: one live line on a terminal, else a line at every change of state and now and then.
class Progress {
 public:
  void Show(const v1::Sweep& sweep) {
    if (sweep.state() == v1::SWEEP_STATE_UNSPECIFIED) return;  // no answer yet
    const absl::Time now = absl::Now();
    if (live_) {
      std::fprintf(stderr, "\r\033[K%s", Clip(ProgressLine(sweep), Columns()).c_str());
    } else if (sweep.state() != last_ || now - printed_ > kLineEvery) {
      std::fprintf(stderr, "%s\n", ProgressLine(sweep).c_str());
      printed_ = now;
    }
    last_ = sweep.state();
  }
  ~Progress() {
    if (live_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  static constexpr absl::Duration kLineEvery = absl::Seconds(15);
  // Longer lines would wrap, and \r does not go back over a wrap.
  static size_t Columns() {
    winsize size = {};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col - 1u : 100u;
  }

  const bool live_ = IsTerminal(STDERR_FILENO);
  v1::SweepState last_ = v1::SWEEP_STATE_UNSPECIFIED;
  absl::Time printed_ = absl::InfinitePast();
};

void PrintBaseline(const v1::Sweep& sweep, const v1::Baseline& baseline) {
  std::string text = baseline.message();
  if (baseline.measurement().median_us() > 0) {
    text = MeasurementText(baseline.measurement());
    // A ratio needs two times of the same GPU.
    if (sweep.evidence() >= v1::MEASURED && sweep.progress().best_us() > 0) {
      absl::StrAppendFormat(&text, ": best is %.2fx", baseline.measurement().median_us() / sweep.progress().best_us());
    }
  }
  std::printf("baseline    %s %s\n", baseline.name().c_str(), text.c_str());
}

void PrintSweep(const v1::Sweep& sweep) {
  const auto& p = sweep.progress();
  std::printf("sweep       %s  %s\n", sweep.name().c_str(), v1::SweepState_Name(sweep.state()).c_str());
  std::printf("operator    %s\n", sweep.spec().op().c_str());
  std::printf("device      %s (%s)\n", sweep.spec().device().c_str(), sweep.device_key().c_str());
  std::printf("space       %lld points, %lld valid\n", static_cast<long long>(p.space_points()),
              static_cast<long long>(p.valid_points()));
  std::printf("trials      %d of %d: %s\n", p.finished(), p.planned(), Outcomes(p).c_str());
  if (p.best_us() > 0) {
    std::printf("best        %s%s  %s %s\n", TimeText(p.best_us()).c_str(),
                sweep.evidence() < v1::MEASURED ? " (predicted, never ran)" : "", p.best_template().c_str(),
                ConfigText(p.best_config()).c_str());
  }
  for (const auto& baseline : sweep.baseline()) PrintBaseline(sweep, baseline);
  std::printf("bounds      floor %s, attainable %s, limited by %s\n", TimeText(sweep.bounds().floor_us()).c_str(),
              TimeText(sweep.bounds().attainable_us()).c_str(), v1::Bound_Name(sweep.bounds().bound()).c_str());
  std::printf("evidence    %s\n", v1::EvidenceLevel_Name(sweep.evidence()).c_str());
  std::vector<std::string> spent;
  for (const auto& [what, seconds] : p.spent_s()) spent.push_back(absl::StrFormat("%s %.2f s", what, seconds));
  std::sort(spent.begin(), spent.end());
  if (!spent.empty()) std::printf("time spent  %s\n", absl::StrJoin(spent, ", ").c_str());
  for (const auto& record : sweep.record()) std::printf("record      %s\n", record.c_str());
  if (!sweep.message().empty()) std::printf("note        %s\n", sweep.message().c_str());
}

// Ctrl-C: the sweep does not need us, unless the daemon is ours.
absl::Status Detached(const Context& context, const std::string& name) {
  if (!context.local) {
    std::fprintf(stderr,
                 "rooftune: %s goes on; `rooftune sweep watch %s` looks again, `rooftune sweep cancel %s` ends it\n",
                 name.c_str(), name.c_str(), name.c_str());
  } else if (!context.data_dir.empty()) {
    std::fprintf(stderr, "rooftune: stopped; `rooftune --local --data-dir %s sweep resume %s` continues\n",
                 context.data_dir.c_str(), name.c_str());
  } else {
    std::fprintf(stderr, "rooftune: stopped; `rooftune --local sweep resume %s` continues\n", name.c_str());
  }
  return absl::CancelledError("detached");
}

// Watches to the end; a sweep that failed is an error with its own text.
absl::Status Follow(Context& context, const std::string& given) {
  const std::string name = ResourceName("sweeps/", given);
  CatchInterrupt();
  absl::StatusOr<v1::Sweep> last;
  {
    Progress progress;
    last = context.client->WatchSweep(name, [&](const v1::Sweep& sweep) {
      progress.Show(sweep);
      return !Interrupted();
    });
  }
  // A private daemon that Ctrl-C ended too ends the call in its own way.
  if (!last.ok() && Interrupted()) return Detached(context, name);
  RT_RETURN_IF_ERROR(last.status());
  if (context.json) {
    PrintJson(*last);
  } else {
    PrintSweep(*last);
  }
  if (last->state() == v1::FAILED) {
    return Error(absl::StatusCode::kFailedPrecondition, "SWEEP_FAILED", last->message());
  }
  if (last->state() == v1::CANCELLED) {
    return Error(
        absl::StatusCode::kAborted, "SWEEP_CANCELLED",
        absl::StrCat(name, " was cancelled; what it measured is kept. `rooftune sweep resume ", name, "` continues"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Tune(Context& context, const TuneOptions& options) {
  v1::CreateSweepRequest request;
  v1::SweepSpec& spec = *request.mutable_spec();
  RT_ASSIGN_OR_RETURN(const std::string op, OpText(options.words));
  spec.set_op(op);
  spec.set_device(context.device);
  for (const std::string& id : options.templates) spec.add_template_id(id);
  RT_ASSIGN_OR_RETURN(const int strategy, EnumValue(v1::StrategyKind_descriptor(), options.strategy, "--strategy"));
  spec.set_strategy(static_cast<v1::StrategyKind>(strategy));
  RT_ASSIGN_OR_RETURN(const int l2, EnumValue(v1::L2State_descriptor(), options.l2, "--l2"));
  spec.set_l2(static_cast<v1::L2State>(l2));
  RT_ASSIGN_OR_RETURN(const int clock, EnumValue(v1::ClockState_descriptor(), options.clock, "--clock"));
  spec.set_clock(static_cast<v1::ClockState>(clock));
  RT_ASSIGN_OR_RETURN(const int objective, EnumValue(v1::Objective_descriptor(), options.objective, "--objective"));
  // Unspecified is the same and lets old daemons understand it.
  if (objective != v1::TIME) spec.set_objective(static_cast<v1::Objective>(objective));
  spec.set_max_trials(options.max_trials);
  spec.set_top_predicted(options.top_predicted);
  spec.set_time_budget_s(options.time_budget_s);
  spec.set_seed(options.seed);
  spec.set_compile_timeout_ms(options.compile_timeout_ms);
  spec.set_run_timeout_ms(options.run_timeout_ms);
  spec.set_max_spill_bytes(options.max_spill_bytes);
  spec.set_no_baselines(options.no_baselines);
  spec.set_no_vendor(options.no_vendor);
  request.set_request_id(options.request_id);
  request.set_validate_only(options.dry_run);
  v1::Sweep planned;
  RT_ASSIGN_OR_RETURN(const std::string name, context.client->CreateSweep(request, &planned));
  if (options.dry_run) {
    if (context.json) {
      PrintJson(planned);
      return absl::OkStatus();
    }
    const auto& p = planned.progress();
    std::printf("%s: %lld points, %lld valid\n", planned.spec().op().c_str(), static_cast<long long>(p.space_points()),
                static_cast<long long>(p.valid_points()));
    for (const auto& [reason, count] : p.pruned())
      std::printf("  %lld pruned: %s\n", static_cast<long long>(count), reason.c_str());
    return absl::OkStatus();
  }
  if (options.detach) {
    std::printf("%s\n", name.c_str());
    return absl::OkStatus();
  }
  return Follow(context, name);
}

absl::Status SweepList(Context& context, const ListOptions& options) {
  v1::ListSweepsRequest request;
  request.set_page_size(options.limit);
  RT_ASSIGN_OR_RETURN(const int state, EnumValue(v1::SweepState_descriptor(), options.state, "--state"));
  request.set_state(static_cast<v1::SweepState>(state));
  RT_ASSIGN_OR_RETURN(const auto response, context.client->ListSweeps(request));
  if (context.json) {
    PrintJson(response);
    return absl::OkStatus();
  }
  std::vector<std::vector<std::string>> rows = {{"SWEEP", "STATE", "TRIALS", "BEST", "EVIDENCE", "DEVICE", "OPERATOR"}};
  for (const auto& sweep : response.sweep()) {
    rows.push_back({sweep.name(), v1::SweepState_Name(sweep.state()),
                    absl::StrCat(sweep.progress().finished(), "/", sweep.progress().planned()),
                    TimeText(sweep.progress().best_us()),
                    sweep.evidence() == 0 ? "-" : v1::EvidenceLevel_Name(sweep.evidence()), sweep.spec().device(),
                    sweep.spec().op()});
  }
  PrintTable(rows);
  if (!response.next_page_token().empty()) std::fprintf(stderr, "rooftune: there are more; raise --limit\n");
  return absl::OkStatus();
}

absl::Status SweepShow(Context& context, const std::string& name) {
  RT_ASSIGN_OR_RETURN(const auto sweep, context.client->GetSweep(ResourceName("sweeps/", name)));
  if (context.json) {
    PrintJson(sweep);
  } else {
    PrintSweep(sweep);
  }
  return absl::OkStatus();
}

absl::Status SweepWatch(Context& context, const std::string& name) { return Follow(context, name); }

absl::Status SweepCancel(Context& context, const std::string& name) {
  RT_ASSIGN_OR_RETURN(const auto sweep, context.client->CancelSweep(ResourceName("sweeps/", name)));
  if (context.json) {
    PrintJson(sweep);
  } else {
    std::printf("%s %s: %d trials kept\n", sweep.name().c_str(), v1::SweepState_Name(sweep.state()).c_str(),
                sweep.progress().finished());
  }
  return absl::OkStatus();
}

absl::Status SweepResume(Context& context, const std::string& name, bool detach) {
  RT_RETURN_IF_ERROR(context.client->ResumeSweep(ResourceName("sweeps/", name)));
  if (detach) return absl::OkStatus();
  return Follow(context, name);
}

}  // namespace rooftune::cli
