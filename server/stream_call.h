// Server streams that are fed from other threads than gRPC's.
#ifndef ROOFTUNE_SERVER_STREAM_CALL_H_
#define ROOFTUNE_SERVER_STREAM_CALL_H_

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/call.h"
#include "server/grpc_status.h"

namespace rooftune {

// One stream. Messages are written one at a time: Write, then `on_written` tells when the next may follow. Thread-safe;
// calls after the end are dropped.
template <typename Message>
class StreamCall {
 public:
  // The reactor deletes itself. `on_written` must not block; it owns nothing of the stream.
  static std::pair<grpc::ServerWriteReactor<Message>*, std::shared_ptr<StreamCall>> Start() {
    auto call = std::shared_ptr<StreamCall>(new StreamCall());
    auto* reactor = new Reactor(call);
    absl::MutexLock lock(&call->mutex_);
    call->reactor_ = reactor;
    return {reactor, call};
  }

  void Write(Message message, std::function<void(bool ok)> on_written) {
    absl::MutexLock lock(&mutex_);
    if (reactor_ == nullptr) return;
    message_ = std::move(message);
    on_written_ = std::move(on_written);
    // Under the lock: Finish on another thread must not overtake it. gRPC reports completion later, never here.
    reactor_->StartWrite(&message_);
  }
  void Finish(const absl::Status& status) {
    Reactor* reactor;
    {
      absl::MutexLock lock(&mutex_);
      reactor = std::exchange(reactor_, nullptr);
    }
    if (reactor != nullptr) reactor->Finish(ToGrpcStatus(status));
  }
  const CallPtr& token() const { return token_; }

 private:
  class Reactor : public grpc::ServerWriteReactor<Message> {
   public:
    explicit Reactor(std::shared_ptr<StreamCall> call) : call_(std::move(call)) {}
    void OnWriteDone(bool ok) override {
      std::function<void(bool)> on_written;
      {
        absl::MutexLock lock(&call_->mutex_);
        on_written.swap(call_->on_written_);
      }
      if (on_written) on_written(ok);
    }
    void OnCancel() override {
      call_->token_->Cancel();
      call_->Finish(absl::CancelledError("the client went away or its deadline passed"));
    }
    void OnDone() override {
      call_->token_->Cancel();
      {
        // Breaks the cycle of a writer that owns its stream.
        absl::MutexLock lock(&call_->mutex_);
        call_->on_written_ = nullptr;
      }
      delete this;
    }

   private:
    const std::shared_ptr<StreamCall> call_;
  };

  StreamCall() = default;
  const CallPtr token_ = std::make_shared<CallToken>();
  absl::Mutex mutex_;
  Message message_ ABSL_GUARDED_BY(mutex_);
  std::function<void(bool)> on_written_ ABSL_GUARDED_BY(mutex_);
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_STREAM_CALL_H_
