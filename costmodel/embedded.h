// Files compiled into the library.
#ifndef ROOFTUNE_COSTMODEL_EMBEDDED_H_
#define ROOFTUNE_COSTMODEL_EMBEDDED_H_

#include <string>
#include <vector>

#include "base/file_util.h"

namespace rooftune {

// costmodel/profiles/*.txtpb
const std::vector<EmbeddedFile>& EmbeddedProfiles();
// costmodel/ops/*.op.txtpb
const std::vector<EmbeddedFile>& EmbeddedOps();

}  // namespace rooftune

#endif  // ROOFTUNE_COSTMODEL_EMBEDDED_H_
