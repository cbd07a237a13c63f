// Errors: every method's carry an ErrorInfo, and every reason of the sources is documented.
#include <google/longrunning/operations_proto.pb.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/test_daemon.h"

namespace rooftune {
namespace {

std::string ReadAll(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::filesystem::path Source() {
  const char* dir = std::getenv("ROOFTUNE_SOURCE_DIR");
  return dir == nullptr ? "." : dir;
}

// Reasons in the first column of the table of docs/errors.md.
std::set<std::string> Documented() {
  std::set<std::string> reasons;
  const std::string text = ReadAll(Source() / "docs/errors.md");
  const std::regex row("\\| `([A-Z0-9_]+)` \\|");
  for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it) reasons.insert((*it)[1]);
  return reasons;
}

TEST(Errors, EveryReasonOfTheSourcesIsDocumented) {
  const std::set<std::string> documented = Documented();
  ASSERT_GT(documented.size(), 50u) << "docs/errors.md was not read";
  const std::regex use("Error\\(\\s*absl::StatusCode::k\\w+,\\s*\"([A-Z0-9_]+)\"");
  std::set<std::string> used;
  for (const char* folder : {"base", "expr", "costmodel", "kernels", "tuner", "server"}) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(Source() / folder)) {
      if (file.path().extension() != ".cc" && file.path().extension() != ".h") continue;
      const std::string text = ReadAll(file.path());
      for (std::sregex_iterator it(text.begin(), text.end(), use), end; it != end; ++it) {
        used.insert((*it)[1]);
        EXPECT_TRUE(documented.count((*it)[1])) << (*it)[1] << " of " << file.path() << " is not in docs/errors.md";
      }
    }
  }
  EXPECT_GT(used.size(), 50u);
}

// Sends bytes to a method and returns the status.
grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& bytes) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  SetDeadline(context);
  grpc::CompletionQueue queue;
  void* tag;
  bool ok;
  auto stream = stub.PrepareCall(&context, method, &queue);
  stream->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const grpc::Slice slice(bytes);
  stream->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  queue.Next(&tag, &ok);
  grpc::ByteBuffer answer;
  do {
    stream->Read(&answer, nullptr);
    queue.Next(&tag, &ok);
  } while (ok);
  grpc::Status status;
  stream->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  return status;
}

// Fills every string field, also in messages inside, with nonsense.
void FillNonsense(google::protobuf::Message* message, int depth) {
  const auto* descriptor = message->GetDescriptor();
  const auto* reflection = message->GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    if (field->is_map() || (field->containing_oneof() != nullptr && field->index_in_oneof() > 0)) continue;
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      if (field->is_repeated())
        reflection->AddString(message, field, "non sense");
      else
        reflection->SetString(message, field, "non sense");
    } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT32 && !field->is_repeated()) {
      reflection->SetInt32(message, field, -5);
    } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE && !field->is_repeated() &&
               depth < 3) {
      FillNonsense(reflection->MutableMessage(message, field), depth + 1);
    }
  }
}

// Methods that nonsense can't make fail: their request has nothing to be wrong.
const std::set<std::string>& Harmless() {
  static const auto& harmless = *new std::set<std::string>{
      "/rooftune.v1.ConfigService/Ping", "/rooftune.v1.DeviceService/ListDevices",
      "/rooftune.v1.TemplateService/ListTemplates", "/rooftune.v1.ConfigService/BatchGetBestConfigs",
      // One line, the run: an empty but good evidence file.
      "/rooftune.v1.RecordService/ImportEvidence"};
  return harmless;
}

TEST(Errors, EveryMethodAnswersNonsenseWithADocumentedReason) {
  TestDaemon daemon;
  const auto channel = daemon.Connect();
  const std::set<std::string> documented = Documented();
  std::vector<const google::protobuf::FileDescriptor*> files = {v1::GetBestConfigRequest::descriptor()->file(),
                                                                google::longrunning::Operation::descriptor()->file()};
  google::protobuf::DynamicMessageFactory factory;
  int methods = 0;
  for (const auto* file : files) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        const auto* method = file->service(s)->method(m);
        const std::string path = absl::StrCat("/", method->service()->full_name(), "/", method->name());
        std::unique_ptr<google::protobuf::Message> request(factory.GetPrototype(method->input_type())->New());
        FillNonsense(request.get(), 0);
        const grpc::Status status = RawCall(channel, path, request->SerializeAsString());
        ++methods;
        if (Harmless().count(path)) {
          EXPECT_TRUE(status.ok()) << path << ": " << status.error_message();
          continue;
        }
        EXPECT_FALSE(status.ok()) << path;
        const SeenError error = See(status);
        EXPECT_EQ(error.domain, "rooftune") << path << ": " << status.error_message();
        EXPECT_TRUE(documented.count(error.reason)) << path << ": " << error.reason;
        EXPECT_FALSE(error.message.empty()) << path;
      }
    }
  }
  EXPECT_GE(methods, 27);
}

}  // namespace
}  // namespace rooftune
