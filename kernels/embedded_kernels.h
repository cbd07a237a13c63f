// Files of this folder that are compiled into the binary.
#ifndef ROOFTUNE_KERNELS_EMBEDDED_KERNELS_H_
#define ROOFTUNE_KERNELS_EMBEDDED_KERNELS_H_

#include <vector>

#include "base/file_util.h"

namespace rooftune {

// "templates/<family>/<id>/template.txtpb" with its kernel.cuh and headers, "templates/common/*.cuh",
// "reference/<kind>.cuh".
const std::vector<EmbeddedFile>& EmbeddedKernels();

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_EMBEDDED_KERNELS_H_
