#include "server/server_core.h"

#include "base/status_macros.h"

namespace rooftune {

ServerCore::ServerCore(const ServerDeps& deps, const ServerLimits& limits)
    : context(deps, limits),
      sweeps(context),
      estimates(context),
      configs(context, sweeps, estimates),
      kernels(context, configs, estimates),
      records(context, estimates),
      catalog(context) {}

absl::StatusOr<std::unique_ptr<ServerCore>> ServerCore::Create(const ServerDeps& deps, const ServerLimits& limits) {
  return std::unique_ptr<ServerCore>(new ServerCore(deps, limits));
}

ServerCore::~ServerCore() { Stop(); }

absl::Status ServerCore::Attach(SweepManager& manager) {
  context.sweeps = &manager;
  context.devices.Update(manager.Devices());
  // After the devices: whether a record may be served depends on its device's limits.
  return context.index.Load(context.deps.store);
}

void ServerCore::OnChange(const v1::Sweep& sweep) {
  // Whoever is told that a sweep ended asks for its result next: that must not be held back.
  if (IsTerminal(sweep.state())) context.index.Flush(context.deps.clock.Now());
  sweeps.OnChange(sweep);
}

void ServerCore::OnPublish(const std::vector<v1::TuningRecord>& published, int64_t generation) {
  context.index.Publish(published, generation);
  FlushLater();
}

void ServerCore::FlushLater() {
  // Merging parses operators: not on the lane's thread.
  const absl::Status posted = context.reads.Post([this] {
    const absl::Time now = context.deps.clock.Now();
    const absl::Time again = context.index.FlushIfDue(now);
    if (again != absl::InfiniteFuture()) context.timer.RunAfter(again - now, [this] { FlushLater(); });
  });
  // Full queue: try again when it has had time to drain.
  if (absl::IsResourceExhausted(posted)) context.timer.RunAfter(absl::Milliseconds(100), [this] { FlushLater(); });
}

void ServerCore::Stop() {
  context.hub.Close();
  context.calibrations.Stop();
  context.work.Stop();
  context.reads.Stop();
}

}  // namespace rooftune
