// plan_dump PROFILE TEMPLATE COUNT [SPREAD]: what a sweep would try. Reads one operator a line from standard input and
// prints its points, how long planning took, the reasons that reject most, and the first COUNT points in the default
// strategy's order with their predicted times (µs). With SPREAD it prints that many points spread over the space
// instead. TEMPLATE may be "all".
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tuner/search/strategy.h"
#include "tuner/sweep/planner.h"

namespace rooftune {
namespace {

void PrintFirst(const Plan& plan, int count) {
  auto strategy = MakeStrategy(v1::MODEL, plan.points, 0);
  if (!strategy.ok()) return;
  for (int i = 0; i < count; ++i) {
    const auto next = (*strategy)->Next();
    if (!next) break;
    const SearchPoint& point = plan.points[static_cast<size_t>(*next)];
    std::printf("  %8.2f %s %s\n", point.predicted_us,
                plan.templates[static_cast<size_t>(point.template_index)]->id().c_str(),
                ConfigToString(plan.ConfigOf(point)).c_str());
  }
}

void PrintSpread(const Plan& plan, size_t count) {
  const size_t step = std::max<size_t>(1, plan.points.size() / count);
  for (size_t i = 0; i < plan.points.size(); i += step) {
    std::printf("  %s\n", ConfigToString(plan.ConfigOf(plan.points[i])).c_str());
  }
}

int Main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: plan_dump PROFILE TEMPLATE COUNT [SPREAD] < OPERATORS\n");
    return 2;
  }
  const auto library = TemplateLibrary::Load({});
  const auto catalog = ProfileCatalog::Builtin();
  const auto device = catalog.ok() ? catalog->ById(argv[1]) : catalog.status();
  if (!library.ok() || !device.ok()) {
    std::fprintf(stderr, "plan_dump: %s %s\n", library.status().ToString().c_str(), device.status().ToString().c_str());
    return 1;
  }
  std::vector<std::string> templates;
  if (std::string(argv[2]) != "all") templates.push_back(argv[2]);
  for (std::string line; std::getline(std::cin, line);) {
    const absl::Time start = absl::Now();
    const auto plan = MakePlan(**library, line, *device, nullptr, templates);
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    if (!plan.ok()) {
      std::printf("%s: %s\n", line.c_str(), plan.status().ToString().c_str());
      continue;
    }
    std::printf("%s: %zu points of %lld valid, %.2f s\n", plan->op.text.c_str(), plan->points.size(),
                static_cast<long long>(plan->valid_points), seconds);
    if (argc > 4) {
      PrintSpread(*plan, static_cast<size_t>(std::max(1, std::atoi(argv[4]))));
    } else {
      PrintFirst(*plan, std::atoi(argv[3]));
    }
  }
  return 0;
}

}  // namespace
}  // namespace rooftune

int main(int argc, char** argv) { return rooftune::Main(argc, argv); }
