// Manifests (template.txtpb, op.txtpb) with errors that say line and column, also of what is wrong in meaning.
#ifndef ROOFTUNE_KERNELS_MANIFEST_PARSER_H_
#define ROOFTUNE_KERNELS_MANIFEST_PARSER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"

namespace rooftune {

using LocationTree = google::protobuf::TextFormat::ParseInfoTree;

// Where a message of a manifest stands. Borrows the tree.
class Locator {
 public:
  Locator(const std::string& file, const LocationTree& tree) : file_(file), tree_(&tree) {}

  // Of the `index`-th message in a repeated field (0 for a singular one).
  Locator Nested(const google::protobuf::Message& message, const std::string& field, int index = 0) const;
  // INVALID_ARGUMENT (BAD_MANIFEST): "FILE:LINE:COLUMN: what", at the field's `index`-th value if it is there, else
  // at the message itself.
  absl::Status Error(const google::protobuf::Message& message, const std::string& field, absl::string_view what,
                     int index = 0) const;

 private:
  // Zero-based, of the message.
  struct Place {
    int line = 0;
    int column = 0;
  };
  Place Of(const google::protobuf::Message& message, const std::string& field, int index) const;

  std::string file_;
  const LocationTree* tree_;  // null below something that has none
  Place place_;
};

// INVALID_ARGUMENT (BAD_MANIFEST): "FILE:LINE:COLUMN: what" for the first thing that does not parse; unknown fields
// are errors. `tree` receives where everything stands.
absl::Status ParseManifest(const std::string& text, const std::string& file, google::protobuf::Message* message,
                           LocationTree* tree);

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_MANIFEST_PARSER_H_
