// Planted faults: kernels of the templates with one thing wrong, which verification must notice. Data:
// tests/data/mutants/mutants.json.
#ifndef ROOFTUNE_TESTS_MUTANTS_MUTANTS_H_
#define ROOFTUNE_TESTS_MUTANTS_MUTANTS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/template_library.h"

namespace rooftune {

struct Mutant {
  std::string id;
  std::string template_id;
  // What class of fault it is: "missing_sync", "off_by_one_tail", "stale_output", …
  std::string kind;
  // "kernel.cuh" (the template's) or a header as kernels include it ("common/row.cuh").
  std::string file;
  std::string find;
  // Which occurrence of `find` is replaced, from 1; 0 = the only one.
  int occurrence = 0;
  std::string replace;
  // Operator and parameters ("block=256,vec=4") for which the fault matters.
  std::string op;
  std::string config;
  // Of the generated input x, beside the operator's own.
  double mean = 0;
  // How verification may find it.
  std::set<v1::Outcome> expect;
  // A race that may happen to go well: compute-sanitizer's racecheck may be needed to find it.
  bool racecheck = false;
  // Its machine code is out of order (async_order.h): what neither verification nor racecheck finds.
  bool async_order = false;
  // What is wrong, for people.
  std::string note;
};

// An operator for which so many unchanged configurations must pass.
struct CorrectCase {
  std::string op;
  int configs = 0;
  double mean = 0;
};

struct MutantSuite {
  std::vector<Mutant> mutants;
  std::vector<CorrectCase> correct;
};

// INVALID_ARGUMENT naming the entry and field.
absl::StatusOr<MutantSuite> ParseMutants(const std::string& json);
absl::StatusOr<MutantSuite> LoadMutants(const std::string& source_dir);

// Built-in templates and those of examples/declared_op.
absl::StatusOr<std::unique_ptr<TemplateLibrary>> LoadLibraryWithExamples(const std::string& source_dir);

// Plants the fault. NOT_FOUND if the file or text is not there; FAILED_PRECONDITION if it occurs more than once and
// the mutant does not say which is meant.
absl::Status Plant(const Mutant& mutant, worker::v1::CompileRequest* request);

// The template's default with these parameters if that is a valid point, else the first valid point that has them.
// NOT_FOUND if there is none.
absl::StatusOr<Config> ConfigWith(const KernelTemplate& kernel, const Op& op, const DeviceProfile& device,
                                  const std::string& parameters);

// At most `count` valid configurations, spread evenly over the template's space; the default first.
absl::StatusOr<std::vector<Config>> SpreadConfigs(const KernelTemplate& kernel, const Op& op,
                                                  const DeviceProfile& device, int count);

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_MUTANTS_MUTANTS_H_
