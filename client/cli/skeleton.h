// Files of `rooftune templates new`, with @NAME@ for the new name.
#ifndef ROOFTUNE_CLIENT_CLI_SKELETON_H_
#define ROOFTUNE_CLIENT_CLI_SKELETON_H_

#include <vector>

#include "base/file_util.h"

namespace rooftune {

const std::vector<EmbeddedFile>& SkeletonFiles();

}  // namespace rooftune

#endif  // ROOFTUNE_CLIENT_CLI_SKELETON_H_
