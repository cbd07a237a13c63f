#include "server/config_service.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "server/stream_call.h"
#include "server/unary_call.h"

namespace rooftune {
namespace {

constexpr size_t kChunkBytes = 256 * 1024;

using KernelStream = StreamCall<v1::GetKernelResponse>;

// Sends a kernel's record, then its binary from an offset, chunk by chunk.
class KernelSender : public std::enable_shared_from_this<KernelSender> {
 public:
  KernelSender(std::shared_ptr<KernelStream> stream, Kernel kernel, size_t offset)
      : stream_(std::move(stream)), kernel_(std::move(kernel)), offset_(offset) {}

  void Start() {
    v1::GetKernelResponse first;
    *first.mutable_record() = kernel_.record;
    Send(std::move(first));
  }

 private:
  void Send(v1::GetKernelResponse message) {
    stream_->Write(std::move(message), [self = shared_from_this()](bool ok) {
      if (ok)
        self->Next();
      else
        self->stream_->Finish(absl::CancelledError("the client went away"));
    });
  }
  void Next() {
    if (offset_ >= kernel_.binary->size()) return stream_->Finish(absl::OkStatus());
    const size_t size = std::min(kChunkBytes, kernel_.binary->size() - offset_);
    v1::GetKernelResponse chunk;
    chunk.set_chunk(kernel_.binary->data() + offset_, size);
    offset_ += size;
    Send(std::move(chunk));
  }

  const std::shared_ptr<KernelStream> stream_;
  const Kernel kernel_;
  size_t offset_;
};

bool Decode(const grpc::ByteBuffer& bytes, v1::GetBestConfigRequest* request) {
  grpc::Slice slice;
  if (!bytes.TrySingleSlice(&slice).ok() && !bytes.DumpToSingleSlice(&slice).ok()) return false;
  return request->ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
}

grpc::ByteBuffer Encode(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

grpc::ServerUnaryReactor* ConfigServiceImpl::GetBestConfig(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* response) {
  v1::GetBestConfigRequest asked;
  if (!Decode(*request, &asked)) {
    return Answer<grpc::ByteBuffer>(context, response,
                                    Error(absl::StatusCode::kInvalidArgument, "BAD_REQUEST",
                                          "the request is not a serialized rooftune.v1.GetBestConfigRequest"));
  }
  auto known = core_.configs.TryGetBestConfig(asked);
  if (known.has_value()) {
    if (!known->ok()) return Answer<grpc::ByteBuffer>(context, response, known->status());
    return Answer<grpc::ByteBuffer>(context, response, Encode((*known)->Encode()));
  }
  auto [reactor, call] = UnaryCall<grpc::ByteBuffer>::Start(response);
  core_.configs.GetBestConfig(asked, /*will_compile=*/false, call->token(),
                              [call = call](const absl::StatusOr<v1::GetBestConfigResponse>& result) {
                                if (result.ok())
                                  call->Finish(Encode(result->SerializeAsString()));
                                else
                                  call->Finish(result.status());
                              });
  return reactor;
}

grpc::ServerUnaryReactor* ConfigServiceImpl::BatchGetBestConfigs(grpc::CallbackServerContext*,
                                                                 const v1::BatchGetBestConfigsRequest* request,
                                                                 v1::BatchGetBestConfigsResponse* response) {
  auto [reactor, call] = UnaryCall<v1::BatchGetBestConfigsResponse>::Start(response);
  core_.configs.BatchGetBestConfigs(*request, call->token(),
                                    [call = call](auto result) { call->Finish(std::move(result)); });
  return reactor;
}

grpc::ServerWriteReactor<v1::GetKernelResponse>* ConfigServiceImpl::GetKernel(grpc::CallbackServerContext*,
                                                                              const v1::GetKernelRequest* request) {
  auto [reactor, stream] = KernelStream::Start();
  core_.kernels.GetKernel(
      *request, stream->token(), [stream = stream, offset = request->offset()](absl::StatusOr<Kernel> kernel) {
        if (!kernel.ok()) return stream->Finish(kernel.status());
        std::make_shared<KernelSender>(stream, *std::move(kernel), static_cast<size_t>(offset))->Start();
      });
  return reactor;
}

grpc::ServerUnaryReactor* ConfigServiceImpl::Ping(grpc::CallbackServerContext* context, const v1::PingRequest*,
                                                  v1::PingResponse* response) {
  return Answer<v1::PingResponse>(context, response, v1::PingResponse());
}

}  // namespace rooftune
