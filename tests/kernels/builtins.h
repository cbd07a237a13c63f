// The repository's templates, operators and devices, loaded once for all tests of a binary.
#ifndef ROOFTUNE_TESTS_KERNELS_BUILTINS_H_
#define ROOFTUNE_TESTS_KERNELS_BUILTINS_H_

#include "kernels/template_library.h"
#include "tests/costmodel/builtins.h"

namespace rooftune {

inline const TemplateLibrary& Builtins() {
  static const auto& library = *TemplateLibrary::Load({})->release();
  return library;
}

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_KERNELS_BUILTINS_H_
