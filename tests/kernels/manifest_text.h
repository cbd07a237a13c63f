// Templates made of a manifest's text, for tests of manifests.
#ifndef ROOFTUNE_TESTS_KERNELS_MANIFEST_TEXT_H_
#define ROOFTUNE_TESTS_KERNELS_MANIFEST_TEXT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/kernel_template.h"
#include "tests/costmodel/builtins.h"

namespace rooftune {

inline absl::StatusOr<std::unique_ptr<KernelTemplate>> Load(const std::string& manifest) {
  return KernelTemplate::Create({"dir/toy", manifest, "// kernel", {}}, Catalog());
}

// `text` with its first `from` replaced.
inline std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_KERNELS_MANIFEST_TEXT_H_
