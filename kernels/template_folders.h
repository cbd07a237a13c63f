// Finds the folders that declare templates and operators, in the binary and on disk.
#ifndef ROOFTUNE_KERNELS_TEMPLATE_FOLDERS_H_
#define ROOFTUNE_KERNELS_TEMPLATE_FOLDERS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

// Texts of one folder; what it does not hold is absent.
struct TemplateFolder {
  std::string name;                      // its own, without parents
  std::string origin;                    // path, or "built-in/<name>"
  std::optional<std::string> manifest;   // template.txtpb
  std::optional<std::string> kernel;     // kernel.cuh
  std::optional<std::string> op;         // op.txtpb
  std::optional<std::string> reference;  // reference.cuh
  // Other *.cuh files beside them, by file name.
  std::vector<worker::v1::SourceFile> headers;
  // What could not be read.
  absl::Status error;
};

// The built-in templates, sorted by name.
std::vector<TemplateFolder> BuiltinFolders();
// Shared headers as "common/<file>".
const std::vector<worker::v1::SourceFile>& CommonHeaders();
// The built-in reference kernel of an operator kind; nullptr if it has none.
const std::string* BuiltinReference(const std::string& kind);

// Folders with template.txtpb or op.txtpb: `dir` itself and at most two levels below, sorted by path. Files that
// can't be read or are too large are that folder's error. NOT_FOUND if `dir` is not a folder; RESOURCE_EXHAUSTED
// past 4096 folders.
absl::StatusOr<std::vector<TemplateFolder>> ScanFolders(const std::string& dir);

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_TEMPLATE_FOLDERS_H_
