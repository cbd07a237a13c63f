#include "costmodel/text_proto.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace rooftune {
namespace {

// Keeps the first error: later ones follow from it.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text_.empty()) text_ = absl::StrCat(line + 1, ":", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

absl::Status ParseTextProto(const std::string& text, const std::string& origin, google::protobuf::Message* message) {
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (parser.ParseFromString(text, message)) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, "BAD_TEXT_PROTO", absl::StrCat(origin, ":", error.text()));
}

}  // namespace rooftune
