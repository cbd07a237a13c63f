#include "kernels/manifest_parser.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "google/protobuf/io/tokenizer.h"

namespace rooftune {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::Status ErrorAt(const std::string& file, int line, int column, absl::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_MANIFEST",
               absl::StrCat(file, ":", line + 1, ":", column + 1, ": ", what),
               {{"line", absl::StrCat(line + 1)}, {"column", absl::StrCat(column + 1)}});
}

// Keeps the first error: later ones follow from it.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(const std::string& file) : file_(file) {}
  void AddError(int line, int column, const std::string& message) override {
    if (status_.ok()) status_ = ErrorAt(file_, line < 0 ? 0 : line, column, message);
  }
  const absl::Status& status() const { return status_; }

 private:
  const std::string file_;
  absl::Status status_;
};

// The tree counts the values of repeated fields and wants −1 for singular ones.
int TreeIndex(const FieldDescriptor* field, int index) { return field->is_repeated() ? index : -1; }

}  // namespace

Locator::Place Locator::Of(const Message& message, const std::string& field, int index) const {
  const FieldDescriptor* descriptor = message.GetDescriptor()->FindFieldByName(field);
  if (tree_ == nullptr || descriptor == nullptr) return place_;
  auto location = tree_->GetLocation(descriptor, TreeIndex(descriptor, index));
  // Values within [ ] have one place together.
  if (location.line < 0 && index > 0) location = tree_->GetLocation(descriptor, 0);
  return location.line < 0 ? place_ : Place{location.line, location.column};
}

Locator Locator::Nested(const Message& message, const std::string& field, int index) const {
  Locator nested = *this;
  nested.place_ = Of(message, field, index);
  const FieldDescriptor* descriptor = message.GetDescriptor()->FindFieldByName(field);
  nested.tree_ = tree_ == nullptr || descriptor == nullptr
                     ? nullptr
                     : tree_->GetTreeForNested(descriptor, TreeIndex(descriptor, index));
  return nested;
}

absl::Status Locator::Error(const Message& message, const std::string& field, absl::string_view what, int index) const {
  const Place place = Of(message, field, index);
  return ErrorAt(file_, place.line, place.column, what);
}

absl::Status ParseManifest(const std::string& text, const std::string& file, Message* message, LocationTree* tree) {
  FirstError error(file);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(tree);
  if (parser.ParseFromString(text, message)) return absl::OkStatus();
  return error.status().ok() ? ErrorAt(file, 0, 0, "can't be parsed") : error.status();
}

}  // namespace rooftune
