// Unary calls that are answered from another thread than gRPC's.
#ifndef ROOFTUNE_SERVER_UNARY_CALL_H_
#define ROOFTUNE_SERVER_UNARY_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/call.h"
#include "server/executor.h"
#include "server/grpc_status.h"

namespace rooftune {

// One call. Answers once; a client that goes away ends it at once, and an answer that comes later is dropped.
template <typename Response>
class UnaryCall {
 public:
  // `response` belongs to gRPC and lives until the call is finished. The reactor deletes itself.
  static std::pair<grpc::ServerUnaryReactor*, std::shared_ptr<UnaryCall>> Start(Response* response) {
    auto call = std::shared_ptr<UnaryCall>(new UnaryCall(response));
    auto* reactor = new Reactor(call);
    absl::MutexLock lock(&call->mutex_);
    call->reactor_ = reactor;
    return {reactor, call};
  }

  void Finish(absl::StatusOr<Response> result) {
    grpc::ServerUnaryReactor* reactor;
    {
      absl::MutexLock lock(&mutex_);
      reactor = std::exchange(reactor_, nullptr);
      if (reactor == nullptr) return;
      if (result.ok()) *response_ = *std::move(result);
    }
    reactor->Finish(ToGrpcStatus(result.status()));
  }
  const CallPtr& token() const { return token_; }

 private:
  class Reactor : public grpc::ServerUnaryReactor {
   public:
    explicit Reactor(std::shared_ptr<UnaryCall> call) : call_(std::move(call)) {}
    void OnCancel() override {
      call_->token_->Cancel();
      call_->Finish(absl::CancelledError("the client went away or its deadline passed"));
    }
    void OnDone() override {
      // Whoever still works for the call learns that it is over.
      call_->token_->Cancel();
      delete this;
    }

   private:
    const std::shared_ptr<UnaryCall> call_;
  };

  explicit UnaryCall(Response* response) : response_(response) {}
  const CallPtr token_ = std::make_shared<CallToken>();
  absl::Mutex mutex_;
  Response* const response_;
  grpc::ServerUnaryReactor* reactor_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

// Answers at once, on gRPC's thread.
template <typename Response>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Response* response,
                                 absl::StatusOr<Response> result) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (result.ok()) *response = *std::move(result);
  reactor->Finish(ToGrpcStatus(result.status()));
  return reactor;
}

// Answers with `work(request)`, run on `executor`.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* AnswerOn(Executor& executor, const Request& request, Response* response,
                                   std::function<absl::StatusOr<Response>(const Request&)> work) {
  auto [reactor, call] = UnaryCall<Response>::Start(response);
  const absl::Status posted = executor.Post([call = call, request, work = std::move(work)] {
    // Waited too long in the queue: nobody wants it any more.
    if (call->token()->cancelled()) return;
    call->Finish(work(request));
  });
  if (!posted.ok()) call->Finish(posted);
  return reactor;
}

// As AnswerOn for work that answers later, from any thread; until then it holds no thread.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* AnswerLater(Executor& executor, const Request& request, Response* response,
                                      std::function<void(const Request&, const CallPtr&, Done<Response>)> work) {
  auto [reactor, call] = UnaryCall<Response>::Start(response);
  const absl::Status posted = executor.Post([call = call, request, work = std::move(work)] {
    if (call->token()->cancelled()) return;
    work(request, call->token(), [call](absl::StatusOr<Response> result) { call->Finish(std::move(result)); });
  });
  if (!posted.ok()) call->Finish(posted);
  return reactor;
}

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_UNARY_CALL_H_
