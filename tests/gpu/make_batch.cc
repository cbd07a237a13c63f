// make_batch DIR [--profile ID] [--racecheck]: writes request frames for `rooftune-worker run --batch`, so that a
// kernel can be run under a tool like compute-sanitizer. DIR/TEMPLATE.frames: the small and ragged operators of
// tests/data/mutants/mutants.json, each by the template's default and one other configuration; the smallest there is,
// if a template is for large ones. Compiles for GPU 0 of this machine, or for a modelled device. --racecheck: every
// lane of a warp arrives at barriers where else one does for it, which racecheck does not follow (common/tma.cuh); and
// DIR/race-MUTANT.frames, kernels with planted races that verification may not notice.
//
// make_batch --show FILE: what the answers in FILE say; exit code 1 if one of them is not OK.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/file_util.h"
#include "base/status_macros.h"
#include "tests/gpu/kernel_lab.h"
#include "tuner/wire/frame.h"

namespace rooftune {
namespace {

// Of every operator, beside the default.
constexpr int kConfigs = 2;
// Instrumented kernels take up to a thousand times as long.
constexpr int64_t kLargestElements = 300'000;

absl::Status WriteFrames(const std::string& path, const std::vector<worker::v1::Frame>& frames) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, path);
  absl::Status status;
  uint64_t id = 0;
  for (worker::v1::Frame frame : frames) {
    frame.set_id(++id);
    if (status.ok()) status = WriteFrame(fd, frame);
  }
  close(fd);
  return status;
}

// A frame that takes a compiler to make.
struct Job {
  std::string file;
  std::function<absl::StatusOr<worker::v1::Frame>()> make;
  absl::StatusOr<worker::v1::Frame> frame = absl::UnknownError("not made");
};

// The problem and its candidates, one after the other.
void AddProblem(KernelLab& lab, const std::string& file, const KernelTemplate& kernel, const Op& op,
                const std::vector<Config>& configs, const Mutant* mutant, std::vector<Job>* jobs) {
  const auto add = [&](std::function<absl::StatusOr<worker::v1::Frame>()> make) {
    jobs->emplace_back();
    jobs->back().file = file;
    jobs->back().make = std::move(make);
  };
  add([&lab, op]() -> absl::StatusOr<worker::v1::Frame> {
    worker::v1::Frame frame;
    RT_ASSIGN_OR_RETURN(*frame.mutable_prepare(), lab.PrepareOf(op.text));
    return frame;
  });
  for (const Config& config : configs) {
    add([&lab, &kernel, op, config, mutant]() -> absl::StatusOr<worker::v1::Frame> {
      worker::v1::Frame frame;
      RT_ASSIGN_OR_RETURN(*frame.mutable_run(), lab.RunOf(kernel, op, config, mutant));
      return frame;
    });
  }
}

int64_t LargestTensor(const TemplateLibrary& library, const Op& op) {
  int64_t largest = 0;
  const auto tensors = library.ops().Find(op.kind)->Tensors(op);
  if (!tensors.ok()) return 0;
  for (const OpTensorInstance& tensor : *tensors) largest = std::max(largest, tensor.elements);
  return largest;
}

absl::Status AddTemplates(KernelLab& lab, std::vector<Job>* jobs) {
  // Operators of every template by size.
  std::map<const KernelTemplate*, std::multimap<int64_t, Op>> operators;
  for (const CorrectCase& one : lab.suite().correct) {
    RT_ASSIGN_OR_RETURN(const Op op, lab.library().ops().Parse(one.op));
    for (const KernelTemplate* kernel : lab.library().For(op, lab.device())) {
      operators[kernel].emplace(LargestTensor(lab.library(), op), op);
    }
  }
  for (const auto& [kernel, by_size] : operators) {
    int taken = 0;
    for (const auto& [elements, op] : by_size) {
      // A template for large operators alone gets its smallest.
      if (elements > kLargestElements && taken > 0) break;
      const auto configs = SpreadConfigs(*kernel, op, lab.device(), kConfigs);
      if (!configs.ok()) continue;  // not for this shape
      AddProblem(lab, kernel->id(), *kernel, op, *configs, nullptr, jobs);
      ++taken;
    }
  }
  return absl::OkStatus();
}

absl::Status AddRaces(KernelLab& lab, std::vector<Job>* jobs) {
  for (const Mutant& mutant : lab.suite().mutants) {
    if (!mutant.racecheck) continue;
    const KernelTemplate* const kernel = lab.library().Find(mutant.template_id);
    RT_ASSIGN_OR_RETURN(const Op op, lab.library().ops().Parse(mutant.op));
    if (kernel == nullptr || !kernel->Supports(op, lab.device())) continue;
    RT_ASSIGN_OR_RETURN(const Config config, ConfigWith(*kernel, op, lab.device(), mutant.config));
    AddProblem(lab, absl::StrCat("race-", mutant.id), *kernel, op, {config}, &mutant, jobs);
  }
  return absl::OkStatus();
}

absl::Status Write(const std::string& dir, const KernelLab::Options& options) {
  RT_RETURN_IF_ERROR(MakeDirs(dir, 0755));
  RT_ASSIGN_OR_RETURN(const auto lab, KernelLab::Create(options));
  std::vector<Job> jobs;
  RT_RETURN_IF_ERROR(AddTemplates(*lab, &jobs));
  if (options.every_lane_arrives) RT_RETURN_IF_ERROR(AddRaces(*lab, &jobs));
  std::vector<std::function<void()>> work;
  for (Job& job : jobs) work.push_back([&job] { job.frame = job.make(); });
  lab->InParallel(work);
  std::map<std::string, std::vector<worker::v1::Frame>> files;
  for (Job& job : jobs) {
    RT_RETURN_IF_ERROR(job.frame.status());
    files[job.file].push_back(*std::move(job.frame));
  }
  for (const auto& [name, frames] : files) {
    RT_RETURN_IF_ERROR(WriteFrames(absl::StrCat(dir, "/", name, ".frames"), frames));
    std::printf("%s: %zu requests\n", name.c_str(), frames.size());
  }
  return absl::OkStatus();
}

int Show(const std::string& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    std::fprintf(stderr, "make_batch: can't open %s\n", file.c_str());
    return 2;
  }
  int right = 0, wrong = 0;
  const auto count = [&](v1::Outcome outcome, const std::string& message) {
    ++(outcome == v1::OK ? right : wrong);
    if (outcome != v1::OK) std::printf("  %s %s\n", v1::Outcome_Name(outcome).c_str(), message.c_str());
  };
  for (auto frame = ReadFrame(fd, absl::InfiniteFuture()); frame.ok(); frame = ReadFrame(fd, absl::InfiniteFuture())) {
    if (frame->has_prepare_result()) count(frame->prepare_result().outcome(), frame->prepare_result().message());
    if (frame->has_run_result()) count(frame->run_result().outcome(), frame->run_result().message());
    if (frame->has_error()) count(v1::NOT_RUN, frame->error().message());
  }
  close(fd);
  std::printf("  %d answers OK, %d not\n", right, wrong);
  return right > 0 && wrong == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (argc == 3 && first == "--show") return Show(argv[2]);
  bool usable = !first.empty() && first[0] != '-';
  KernelLab::Options options;
  for (int i = 2; i < argc && usable; ++i) {
    const std::string option = argv[i];
    if (option == "--racecheck") {
      options.every_lane_arrives = true;
    } else if (option == "--profile" && i + 1 < argc) {
      options.profile = argv[++i];
    } else {
      usable = false;
    }
  }
  if (!usable) {
    std::fprintf(stderr, "usage: make_batch DIR [--profile ID] [--racecheck] | make_batch --show FILE\n");
    return 2;
  }
  const absl::Status status = Write(first, options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "make_batch: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace rooftune

int main(int argc, char** argv) { return rooftune::Main(argc, argv); }
