// The command line of rooftune. CLI11 is slow to compile, so it stays in this file.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "base/suggest.h"
#include "client/cli/cli.h"
#include "client/cli/local_daemon.h"

#ifndef ROOFTUNE_VERSION
#define ROOFTUNE_VERSION "unknown"
#endif

namespace rooftune::cli {
namespace {

using Command = std::function<absl::Status(Context&)>;

constexpr char kOpHelp[] = "operator, e.g. gemm m=1024 n=1024 k=1024 dtype=bf16";

struct Arguments {
  TuneOptions tune;
  TryOptions attempt;
  QueryOptions query;
  ListOptions list;
  std::vector<std::string> words, names, archs;
  std::string name, suite, file, dir = ".";
  int top = 5;
  bool all = false, detach = false;
};

// Who made the kernel: options of best and fetch.
void AddProvider(CLI::App& command, QueryOptions& query) {
  command.add_flag("--templates-only", query.templates_only, "no call of cuBLASLt: the best kernel of a template");
  command.add_option("--cublaslt-version", query.cublaslt_version,
                     "version of your cuBLASLt, e.g. 130100: no records of another")
      ->check(CLI::NonNegativeNumber);
}

void AddQueries(CLI::App& app, Arguments& a, Command& run) {
  auto* estimate =
      app.add_subcommand("estimate", "What the cost model says: work, bounds, best predicted configurations");
  estimate->add_option("op", a.words, kOpHelp);
  estimate->add_option("--top", a.top, "configurations to show")->check(CLI::Range(1, 100))->capture_default_str();
  estimate->callback([&] { run = [&](Context& c) { return Estimate(c, a.words, a.top); }; });

  auto* best = app.add_subcommand("best", "The best known configuration; the cost model's choice if there is none");
  best->add_option("op", a.query.words, kOpHelp);
  best->add_option("--min-evidence", a.query.min_evidence, "estimated, compiled, verified or measured");
  best->add_option("--miss", a.query.miss, "without a record: fail, estimate, tune_async or wait")
      ->capture_default_str();
  best->add_flag("--allow-nearest", a.query.allow_nearest, "accept a record of another shape");
  best->add_flag("--deterministic", a.query.deterministic, "only kernels that give equal bits for equal inputs");
  AddProvider(*best, a.query);
  best->add_option("--objective", a.query.objective, "tuned for time, energy or energy_delay")->capture_default_str();
  best->add_option("--timeout", a.query.wait_s, "seconds to wait with --miss wait")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str();
  best->callback([&] { run = [&](Context& c) { return Best(c, a.query); }; });

  auto* fetch = app.add_subcommand("fetch", "Write the best binary and its launch recipe to a folder");
  fetch->add_option("op", a.query.words, kOpHelp);
  fetch->add_option("--record", a.query.record, "a record's name instead of an operator");
  fetch->add_option("-o,--out", a.query.out, "folder for DIGEST.cubin and recipe.json")->capture_default_str();
  fetch->add_option("--min-evidence", a.query.min_evidence,
                    "weakest evidence to accept (verified; compiled on modelled devices)");
  AddProvider(*fetch, a.query);
  fetch->add_option("--objective", a.query.objective, "tuned for time, energy or energy_delay")->capture_default_str();
  fetch->callback([&] {
    a.query.miss = "fail";
    run = [&](Context& c) { return Fetch(c, a.query); };
  });
}

void AddSweeps(CLI::App& app, Arguments& a, Command& run) {
  auto* tune = app.add_subcommand("tune", "Search for the best configuration of an operator");
  tune->add_option("op", a.tune.words, kOpHelp);
  tune->add_option("--max-trials", a.tune.max_trials, "candidates to compile at most (64)");
  tune->add_option("--top-predicted", a.tune.top_predicted, "only the best predicted, this many, whatever the strategy");
  tune->add_option("--time-budget", a.tune.time_budget_s, "seconds at most");
  tune->add_option("--strategy", a.tune.strategy, "model, random or exhaustive")->capture_default_str();
  tune->add_option("--template", a.tune.templates, "only this template (repeatable)")->allow_extra_args(false);
  tune->add_option("--seed", a.tune.seed, "seed of inputs and random order");
  tune->add_option("--l2", a.tune.l2, "cold or warm")->capture_default_str();
  tune->add_option("--clock", a.tune.clock, "cool or sustained")->capture_default_str();
  tune->add_option("--objective", a.tune.objective, "time, energy or energy_delay: what the winner is chosen by")
      ->capture_default_str();
  tune->add_option("--compile-timeout-ms", a.tune.compile_timeout_ms, "limit of one compile");
  tune->add_option("--run-timeout-ms", a.tune.run_timeout_ms, "limit of one candidate on the GPU");
  tune->add_option("--max-spill-bytes", a.tune.max_spill_bytes, "accept candidates that spill up to this; -1 = any");
  tune->add_option("--request-id", a.tune.request_id, "repeating it returns the first sweep");
  tune->add_flag("--no-baselines", a.tune.no_baselines, "do not measure the vendor's kernel or a copy beside");
  tune->add_flag("--no-vendor", a.tune.no_vendor, "templates only: do not try the algorithms of cuBLASLt");
  tune->add_flag("--detach", a.tune.detach, "print the sweep's name and return");
  tune->add_flag("--dry-run", a.tune.dry_run, "only show the search space");
  tune->callback([&] { run = [&](Context& c) { return Tune(c, a.tune); }; });

  auto* attempt = app.add_subcommand("try", "Compile, verify and time given configurations; nothing is stored");
  attempt->add_option("op", a.attempt.words, kOpHelp);
  attempt->add_option("--config", a.attempt.configs, "[TEMPLATE:]name=value,…; what is left out has its default (repeatable: raced)")
      ->allow_extra_args(false);
  attempt->add_option("--template", a.attempt.template_id, "template of configurations that name none");
  attempt->add_option("--seed", a.attempt.seed, "seed of inputs");
  attempt->add_option("--l2", a.attempt.l2, "cold or warm")->capture_default_str();
  attempt->add_option("--clock", a.attempt.clock, "cool or sustained")->capture_default_str();
  attempt->add_option("--objective", a.attempt.objective, "energy or energy_delay: measure a launch's energy, too")
      ->capture_default_str();
  attempt->callback([&] { run = [&](Context& c) { return Try(c, a.attempt); }; });

  auto* sweep = app.add_subcommand("sweep", "Look after sweeps")->require_subcommand(1);
  auto* list = sweep->add_subcommand("list", "Sweeps, newest first");
  list->add_option("--state", a.list.state, "queued, planning, running, confirming, done, failed or cancelled");
  list->add_option("--limit", a.list.limit, "rows")->check(CLI::Range(1, 1000))->capture_default_str();
  list->callback([&] { run = [&](Context& c) { return SweepList(c, a.list); }; });
  const auto named = [&](const char* name, const char* help, absl::Status (*action)(Context&, const std::string&)) {
    auto* command = sweep->add_subcommand(name, help);
    command->add_option("sweep", a.name, "name, with or without sweeps/")->required();
    command->callback([&a, &run, action] { run = [&a, action](Context& c) { return action(c, a.name); }; });
  };
  named("show", "One sweep", SweepShow);
  named("watch", "Follow a sweep to its end", SweepWatch);
  named("cancel", "Stop a sweep; what was measured is kept", SweepCancel);
  auto* resume = sweep->add_subcommand("resume", "Continue a sweep that was cancelled, failed or cut off");
  resume->add_option("sweep", a.name, "name, with or without sweeps/")->required();
  resume->add_flag("--detach", a.detach, "do not wait");
  resume->callback([&] { run = [&](Context& c) { return SweepResume(c, a.name, a.detach); }; });
}

void AddRecords(CLI::App& app, Arguments& a, Command& run) {
  auto* records = app.add_subcommand("records", "What is served")->require_subcommand(1);
  auto* list = records->add_subcommand("list", "Records");
  list->add_option("--op", a.list.op, "an operator's text, or a kind");
  list->add_option("--min-evidence", a.list.min_evidence, "weakest evidence to show");
  list->add_flag("--all", a.list.all, "also superseded ones");
  list->add_option("--limit", a.list.limit, "rows")->check(CLI::Range(1, 1000))->capture_default_str();
  list->callback([&] { run = [&](Context& c) { return RecordsList(c, a.list); }; });
  auto* show = records->add_subcommand("show", "One record, whole, as JSON");
  show->add_option("record", a.name, "name, with or without records/")->required();
  show->callback([&] { run = [&](Context& c) { return RecordsShow(c, a.name); }; });

  auto* trials = app.add_subcommand("trials", "Candidates and what became of them");
  trials->add_option("sweep", a.list.name, "name of a sweep (all if left out)");
  trials->add_option("--outcome", a.list.outcome, "only this outcome, e.g. wrong_result");
  trials->add_option("--limit", a.list.limit, "rows")->check(CLI::Range(1, 1000))->capture_default_str();
  trials->callback([&] { run = [&](Context& c) { return TrialsList(c, a.list); }; });

  auto* trial = app.add_subcommand("trial", "One candidate of a sweep")->require_subcommand(1);
  auto* replay = trial->add_subcommand("replay", "Measure it again; exit code 6 if it does not agree");
  replay->add_option("trial", a.name, "SWEEP/trials/INDEX, with or without sweeps/ before it")->required();
  replay->callback([&] { run = [&](Context& c) { return TrialReplay(c, a.name); }; });

  auto* exporting = app.add_subcommand("export", "Write sweeps with all trials as an evidence file");
  exporting->add_option("sweeps", a.names, "names of sweeps (all that ended if left out)");
  exporting->add_option("--suite", a.suite, "name of the suite, e.g. gemm_bf16");
  exporting->add_option("-o,--out", a.file, "FILE.jsonl or FILE.jsonl.gz; - = standard output")->required();
  exporting->callback([&] { run = [&](Context& c) { return Export(c, a.names, a.suite, a.file); }; });
  auto* importing = app.add_subcommand("import", "Take an evidence file in; all or nothing");
  importing->add_option("file", a.file, "FILE.jsonl or FILE.jsonl.gz")->required();
  importing->callback([&] { run = [&](Context& c) { return Import(c, a.file); }; });
}

void AddInventory(CLI::App& app, Arguments& a, Command& run) {
  auto* templates = app.add_subcommand("templates", "Kernel templates and operators")->require_subcommand(1);
  templates->add_subcommand("list", "All, with an example of each operator")->callback([&] { run = TemplatesList; });
  auto* show = templates->add_subcommand("show", "A template's manifest");
  show->add_option("id", a.name, "template")->required();
  show->callback([&] { run = [&](Context& c) { return TemplatesShow(c, a.name); }; });
  auto* check =
      templates->add_subcommand("check", "Compile a template's default configuration for several architectures");
  check->add_option("id", a.name, "template")->required();
  check->add_option("op", a.words, "operator to check with (the kind's example if left out)");
  check->add_option("--arch", a.archs, "sm_80, sm_90, … (repeatable)")->allow_extra_args(false);
  check->callback([&] { run = [&](Context& c) { return TemplatesCheck(c, a.name, a.archs, a.words); }; });
  auto* create = templates->add_subcommand("new", "Write a working operator of your own to start from");
  create->add_option("name", a.name, "lower-case name")->required();
  create->add_option("--dir", a.dir, "folder to put it into")->capture_default_str();
  create->callback([&] { run = [&](Context& c) { return TemplatesNew(c, a.name, a.dir); }; });

  auto* devices = app.add_subcommand("devices", "GPUs of the daemon and modelled ones")->require_subcommand(1);
  auto* list = devices->add_subcommand("list", "Devices");
  list->add_flag("--all", a.all, "also every GPU that is only modelled");
  list->callback([&] { run = [&](Context& c) { return DevicesList(c, a.all); }; });
  auto* device = devices->add_subcommand("show", "Limits, peaks and measured ceilings");
  device->add_option("device", a.name, "cuda:0, model:h100-sxm, …")->required();
  device->callback([&] { run = [&](Context& c) { return DevicesShow(c, a.name); }; });
  auto* calibrate = devices->add_subcommand("calibrate", "Measure the card's ceilings (under a minute)");
  calibrate->add_option("device", a.name, "cuda:N (the first if left out)");
  calibrate->callback([&] { run = [&](Context& c) { return DevicesCalibrate(c, a.name); }; });
  app.add_subcommand("doctor", "What works on this machine, and what to do about what does not")->callback([&] {
    run = Doctor;
  });
}

// What the words of the command line lack, and where to read on.
absl::Status UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string name = "rooftune";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  std::vector<std::string> commands;
  for (const CLI::App* known : command->get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(known->get_name());
  }
  const std::vector<std::string> rest = app.remaining(/*recurse=*/true);
  std::string text = error.what();
  if (!commands.empty() && !rest.empty() && !absl::StartsWith(rest[0], "-")) {
    text = absl::StrCat("no command `", name, " ", rest[0], "`", DidYouMean(rest[0], commands));
  } else if (!commands.empty()) {
    text = absl::StrCat("a command is missing: ", absl::StrJoin(commands, ", "));
  }
  return Error(absl::StatusCode::kInvalidArgument, "USAGE", absl::StrCat(text, " (see `", name, " --help`)"));
}

// Addresses that gRPC would take for a name to look up.
absl::Status CheckAddress(const std::string& address) {
  if (absl::StartsWith(address, "unix:") || address.find(':') != std::string::npos) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, "BAD_ADDRESS",
               absl::StrCat("address ", address, ": no port; use unix:PATH or HOST:PORT"));
}

absl::Status Run(Context& context, const Command& command, bool needs_daemon) {
  std::unique_ptr<LocalDaemon> local;
  if (context.local && needs_daemon) {
    CatchInterrupt();
    auto started = LocalDaemon::Start(context.device, context.data_dir, context.template_dirs);
    if (!started.ok()) return started.status();
    local = *std::move(started);
    context.address = local->address();
  }
  if (local != nullptr) {
    // It has no other device, and names it in its own way ("auto").
    context.device.clear();
    EndWithInterrupt(local->pid());
  }
  Client::Options options;
  options.address = context.address.empty() ? DefaultAddress() : context.address;
  RT_RETURN_IF_ERROR(CheckAddress(options.address));
  context.client = Client::Create(options);
  const absl::Status status = command(context);
  context.client.reset();
  EndWithInterrupt(0);
  return status;
}

// Says what is wrong and makes the exit code of it.
ExitCode Report(const absl::Status& status) {
  if (Interrupted() && !status.ok()) return kInterrupted;
  const absl::Status flushed = FlushOutput();
  const absl::Status& shown = status.ok() ? flushed : status;
  if (shown.ok()) return kOk;
  std::fprintf(stderr, "rooftune: %s [%s]\n", std::string(shown.message()).c_str(), ErrorReason(shown).c_str());
  const auto facts = ErrorMetadata(shown);
  for (const auto& [key, value] : facts) std::fprintf(stderr, "  %s: %s\n", key.c_str(), value.c_str());
  return ExitCodeOf(shown);
}

int Main(int argc, char** argv) {
  CLI::App app("Tune GPU kernels and ask for the best ones. Talks to rooftuned.", "rooftune");
  app.set_version_flag("--version", "rooftune " ROOFTUNE_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // --json and --device may stand after the command too
  app.footer(
      "Exit codes: 0 ok, 1 error, 2 usage, 3 not found or not tuned, 4 denied, 5 no daemon, 6 precondition "
      "(no GPU, weak evidence, failed sweep), 8 pending, 130 interrupted.");
  Context context;
  app.add_option("--address", context.address, "daemon, unix:PATH or HOST:PORT ($ROOFTUNE_ADDRESS)");
  app.add_option("--device", context.device, "cuda:0, model:h200-sxm, … (the daemon's first if left out)");
  app.add_flag("--json", context.json, "JSON for programs");
  app.add_flag("--local", context.local, "start a private daemon for this command");
  app.add_option("--data-dir", context.data_dir, "data folder of the private daemon");
  app.add_option("--template-dir", context.template_dirs, "template folder of the private daemon (repeatable)")
      ->allow_extra_args(false);
  Arguments arguments;
  Command command;
  AddQueries(app, arguments, command);
  AddSweeps(app, arguments, command);
  AddRecords(app, arguments, command);
  AddInventory(app, arguments, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error) == 0 ? kOk : kUsage;  // --help, --version
    return Report(UsageError(app, error));
  }
  if (!context.local && (!context.data_dir.empty() || !context.template_dirs.empty())) {
    return Report(Error(absl::StatusCode::kInvalidArgument, "USAGE",
                        "--data-dir and --template-dir are for --local; a running daemon has its own"));
  }
  const bool needs_daemon = !app.got_subcommand("templates") || !app.get_subcommand("templates")->got_subcommand("new");
  return Report(Run(context, command, needs_daemon));
}

}  // namespace
}  // namespace rooftune::cli

int main(int argc, char** argv) { return rooftune::cli::Main(argc, argv); }
