// Sources and headers that a compile gets by name.
#ifndef ROOFTUNE_KERNELS_SOURCE_FILES_H_
#define ROOFTUNE_KERNELS_SOURCE_FILES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

// The headers that `text` includes by `#include "name"`, directly or through another, in the order of their names.
// Others would only make compile keys change that need not. Names that are not available are left to the compiler.
std::vector<worker::v1::SourceFile> HeadersOf(absl::string_view text,
                                              const std::vector<worker::v1::SourceFile>& available);

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_SOURCE_FILES_H_
