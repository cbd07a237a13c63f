#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/log.h"
#include "tuner/wire/frame.h"
#include "tuner/worker/nvrtc.h"
#include "tuner/worker/roles.h"
#include "tuner/worker/sandbox.h"
#include "tuner/worker/version.h"

namespace rooftune {
namespace {

using worker::v1::Frame;

void SetError(const absl::Status& status, Frame* reply) {
  reply->mutable_error()->set_code(static_cast<int>(status.code()));
  reply->mutable_error()->set_message(std::string(status.message()));
}

Frame Reply(const absl::StatusOr<NvrtcLibrary>& library, const Frame& request) {
  Frame reply;
  reply.set_id(request.id());
  if (request.has_probe()) {
    *reply.mutable_probe_result()->add_library() = DescribeNvrtc(library);
  } else if (!request.has_compile()) {
    SetError(absl::UnimplementedError("the compile role answers compile and probe requests only"), &reply);
  } else if (!library.ok()) {
    SetError(library.status(), &reply);
  } else {
    auto result = CompileWithNvrtc(*library, request.compile());
    if (result.ok()) {
      *reply.mutable_compile_result() = *std::move(result);
    } else {
      SetError(result.status(), &reply);
    }
  }
  return reply;
}

absl::Status SayHello(int fd) {
  Frame frame;
  auto* hello = frame.mutable_hello();
  hello->set_protocol(kWorkerProtocol);
  hello->set_build(kWorkerVersion);
  hello->set_role("compile");
  hello->set_pid(getpid());
  return WriteFrame(fd, frame);
}

absl::Status ServeOne(int fd, const absl::StatusOr<NvrtcLibrary>& library) {
  const auto request = ReadFrame(fd, absl::InfiniteFuture());
  if (!request.ok()) return request.status();
  Frame begin;
  begin.set_id(request->id());
  begin.mutable_begin()->set_id(request->id());
  const absl::Status begun = WriteFrame(fd, begin);
  return begun.ok() ? WriteFrame(fd, Reply(library, *request)) : begun;
}

}  // namespace

int ServeCompile(int fd, const std::string& nvrtc_path) {
  const absl::StatusOr<NvrtcLibrary> library = NvrtcLibrary::Load(nvrtc_path);
  const std::string folder = library.ok() ? library->path.substr(0, library->path.rfind('/')) : "";
  const std::string sandbox = EnterCompileSandbox(folder);
  LogInfo("compile role: ", library.ok() ? absl::StrCat("NVRTC ", library->version, " at ", library->path) : "no NVRTC",
          "; ", sandbox);
  absl::Status status = SayHello(fd);
  while (status.ok()) status = ServeOne(fd, library);
  // The daemon closing the socket is how this role ends.
  if (status.code() == absl::StatusCode::kUnavailable) return 0;
  LogError("compile role: ", std::string(status.message()));
  return 1;
}

}  // namespace rooftune
