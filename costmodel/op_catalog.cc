#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "costmodel/embedded.h"
#include "costmodel/op.h"
#include "base/suggest.h"
#include "costmodel/text_proto.h"

namespace rooftune {

absl::StatusOr<OpCatalog> OpCatalog::Builtin() {
  OpCatalog catalog;
  for (const EmbeddedFile& file : EmbeddedOps()) {
    manifest::v1::Op proto;
    RT_RETURN_IF_ERROR(ParseTextProto(file.data, file.path, &proto));
    RT_ASSIGN_OR_RETURN(std::unique_ptr<OpSchema> schema, OpSchema::Create(std::move(proto), "built-in"));
    RT_RETURN_IF_ERROR(catalog.Add(std::move(schema)));
  }
  return catalog;
}

absl::Status OpCatalog::Add(std::unique_ptr<OpSchema> schema) {
  const std::string kind = schema->kind();
  const OpSchema* known = Find(kind);
  if (known != nullptr) {
    return Error(
        absl::StatusCode::kAlreadyExists, "DUPLICATE_OP",
        absl::StrCat("operator ", kind, " of ", schema->origin(), " is already declared by ", known->origin()));
  }
  schemas_.emplace(kind, std::move(schema));
  return absl::OkStatus();
}

const OpSchema* OpCatalog::Find(absl::string_view kind) const {
  const auto it = schemas_.find(std::string(kind));
  return it == schemas_.end() ? nullptr : it->second.get();
}

std::vector<const OpSchema*> OpCatalog::schemas() const {
  std::vector<const OpSchema*> all;
  for (const auto& [kind, schema] : schemas_) all.push_back(schema.get());
  return all;
}

absl::StatusOr<Op> OpCatalog::Parse(absl::string_view text) const {
  const absl::string_view trimmed = absl::StripLeadingAsciiWhitespace(text);
  const absl::string_view kind = trimmed.substr(0, trimmed.find(' '));
  if (const OpSchema* schema = Find(kind)) return schema->Parse(text);
  std::vector<std::string> kinds;
  for (const auto& [known, schema] : schemas_) kinds.push_back(known);
  const std::string shown = absl::CHexEscape(kind.substr(0, 64));
  return Error(absl::StatusCode::kInvalidArgument, "UNKNOWN_OP",
               absl::StrCat("unknown operator \"", shown, "\"", DidYouMean(kind, kinds),
                            " (known: ", absl::StrJoin(kinds, ", "), ")"),
               {{"nearest", Nearest(kind, kinds)}});
}

}  // namespace rooftune
