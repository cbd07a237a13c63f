// The repository's templates and device profiles, loaded once for all tests of a binary.
#ifndef ROOFTUNE_TESTS_KERNELS_BUILTINS_H_
#define ROOFTUNE_TESTS_KERNELS_BUILTINS_H_

#include <string>

#include "kernels/template_library.h"

namespace rooftune {

inline const TemplateLibrary& Builtins() {
  static const auto& library = *TemplateLibrary::Load({})->release();
  return library;
}

inline DeviceProfile Profile(const std::string& id) {
  static const auto& catalog = *new ProfileCatalog(*ProfileCatalog::Builtin());
  return *catalog.ById(id);
}

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_KERNELS_BUILTINS_H_
