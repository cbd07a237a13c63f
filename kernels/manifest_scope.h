// What expressions of a manifest may use, and their compilation: derived names are written out, so that what is
// kept depends on dims, attributes, parameters and constants alone.
#ifndef ROOFTUNE_KERNELS_MANIFEST_SCOPE_H_
#define ROOFTUNE_KERNELS_MANIFEST_SCOPE_H_

#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "expr/expression.h"
#include "kernels/manifest_parser.h"
#include "rooftune/manifest/v1/manifest.pb.h"

namespace rooftune {

// nullopt where the manifest says nothing.
using Quantity = std::optional<Expression>;

// Names in view, and the texts of those that are derived. A value type.
class ManifestScope {
 public:
  // Everything an operator's schema and a device define: dims, attributes, their constants, lets.
  static ManifestScope OfOperator(const manifest::v1::Op& op);

  bool Has(const std::string& name) const { return names_.count(name) > 0; }
  // Those that are not derived.
  std::set<std::string> PlainNames() const;
  // Adds a plain name.
  void Add(const std::string& name) { names_.insert(name); }
  // Adds a derived one; `text` is already written out.
  void Define(const std::string& name, const std::string& text);

  // Parses the string field (the `index`-th value of a repeated one) of a message and checks its names.
  // INVALID_ARGUMENT with line and column; `what` names the field for people.
  absl::StatusOr<Quantity> Compile(const Locator& at, const google::protobuf::Message& message,
                                   const std::string& field, int index = 0) const;
  // The same; empty is an error.
  absl::StatusOr<Expression> Require(const Locator& at, const google::protobuf::Message& message,
                                     const std::string& field) const;
  // With derived names written out.
  std::string Inline(const std::string& text) const;

 private:
  std::set<std::string> names_;
  std::map<std::string, std::string> definitions_;
};

// [A-Za-z_][A-Za-z0-9_]* of at most 63 characters that is no word of the expression language.
bool IsName(const std::string& text);

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_MANIFEST_SCOPE_H_
