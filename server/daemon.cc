#include "server/daemon.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_util.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tuner/store/faulty_store.h"
#include "tuner/store/sqlite_store.h"

namespace rooftune {

std::string DaemonVersion() { return absl::StrCat("rooftune ", ROOFTUNE_VERSION); }

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const DaemonFlags& flags) {
  GrpcServer::Options options;
  for (const std::string& text : flags.listen) {
    RT_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text, flags.allow_remote));
    RT_RETURN_IF_ERROR(CheckFree(address));
    if (address.is_unix()) {
      RT_ASSIGN_OR_RETURN(SocketLock lock, SocketLock::Acquire(address.path));
      options.locks.push_back(std::move(lock));
    } else if (flags.allow_remote) {
      LogWarning("listening on ", address.Target(), " without encryption or authentication (--allow-remote)");
    }
    options.listen.push_back(address);
  }
  auto daemon = std::unique_ptr<Daemon>(new Daemon(flags));
  RT_RETURN_IF_ERROR(daemon->OpenData(flags));
  RT_RETURN_IF_ERROR(daemon->LoadCatalogs(flags));
  RT_RETURN_IF_ERROR(daemon->StartSweeps(flags));
  RT_ASSIGN_OR_RETURN(daemon->server_, GrpcServer::Start(*daemon->core_, std::move(options)));
  return daemon;
}

absl::Status Daemon::OpenData(const DaemonFlags& flags) {
  RT_ASSIGN_OR_RETURN(const ScriptedWorld world, ReadScriptedWorld(flags.device));
  RT_RETURN_IF_ERROR(MakeDirs(flags.data_dir, 0700));
  RT_ASSIGN_OR_RETURN(store_, SqliteStore::Open(absl::StrCat(flags.data_dir, "/rooftune.db")));
  ArtifactStore::Options options;
  options.max_bytes = flags.artifact_limit_bytes;
  options.in_use = [store = store_.get()] { return store->ServedArtifacts(ConfigIndex::kKeptGenerations); };
  RT_ASSIGN_OR_RETURN(artifacts_, ArtifactStore::OpenDirectory(absl::StrCat(flags.data_dir, "/artifacts"), options));
  if (!world.store_faults.empty()) {
    LogWarning("writes will fail as the script of a fake device says");
    store_ = MakeFaultyStore(std::move(store_), world.store_faults);
    artifacts_ = MakeFaultyArtifacts(std::move(artifacts_), world.store_faults);
  }
  if (world.virtual_time) {
    LogWarning("time is virtual, as the script of a fake device says");
    clock_ = &skipping_clock_;
  }
  return absl::OkStatus();
}

absl::Status Daemon::LoadCatalogs(const DaemonFlags& flags) {
  RT_ASSIGN_OR_RETURN(catalog_, ProfileCatalog::Builtin());
  for (const std::string& dir : flags.profile_dir) RT_RETURN_IF_ERROR(catalog_->AddDir(dir));
  RT_ASSIGN_OR_RETURN(library_, TemplateLibrary::Load(flags.template_dir));
  for (const BrokenTemplate& broken : library_->broken()) LogWarning("template not loaded: ", broken.error);
  return absl::OkStatus();
}

absl::Status Daemon::StartSweeps(const DaemonFlags& flags) {
  BackendFactoryOptions options;
  options.worker_path = flags.worker;
  options.version = DaemonVersion();
  options.policy = flags.policy;
  options.store = store_.get();
  options.virtual_clock = &skipping_clock_;
  RT_ASSIGN_OR_RETURN(devices_, MakeBackends(flags.device, *catalog_, options));
  for (const std::string& note : devices_.notes) LogInfo(note);
  const ServerDeps deps{*library_, *catalog_, *store_, *artifacts_, *devices_.compiler, *clock_};
  RT_ASSIGN_OR_RETURN(core_, ServerCore::Create(deps));
  SweepManager::Options sweeps;
  sweeps.on_change = [core = core_.get()](const v1::Sweep& sweep) { core->OnChange(sweep); };
  sweeps.on_publish = [core = core_.get()](const std::vector<v1::TuningRecord>& records, int64_t generation) {
    core->OnPublish(records, generation);
  };
  const SweepManager::Deps manager{*library_, *store_, *artifacts_, *clock_};
  RT_ASSIGN_OR_RETURN(manager_, SweepManager::Create(manager, std::move(devices_.backends), std::move(sweeps)));
  return core_->Attach(*manager_);
}

void Daemon::Drain() {
  if (drained_) return;
  drained_ = true;
  if (server_ != nullptr) server_->SetNotServing();
  if (core_ != nullptr) core_->BeginDrain();
  if (manager_ != nullptr) manager_->Shutdown();
  if (server_ != nullptr) server_->Shutdown(drain_timeout_);
  if (core_ != nullptr) core_->Stop();
}

Daemon::~Daemon() { Drain(); }

}  // namespace rooftune
