// A daemon in the test's own process: canned answers on a Unix socket in a temporary folder.
#ifndef ROOFTUNE_TESTS_CLIENT_FAKE_DAEMON_H_
#define ROOFTUNE_TESTS_CLIENT_FAKE_DAEMON_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "google/longrunning/operations_proto.pb.h"
#include "rooftune/v1/service.pb.h"
#include "tests/support/temp_dir.h"

namespace rooftune {

// What the fake answers. Set before the calls that see it.
struct Canned {
  // Every method fails with this, if it is an error: reason and facts as ErrorInfo.
  absl::Status error;
  // The error has no ErrorInfo, as gRPC's own errors.
  bool bare_error = false;
  v1::GetBestConfigResponse best;
  v1::BatchGetBestConfigsResponse batch;
  v1::TuningRecord record;
  std::string binary;
  v1::EstimateResponse estimate;
  google::longrunning::Operation created;
  // What WatchSweep sends; with `watch_hangs` it then stays silent until the caller goes away.
  std::vector<v1::Sweep> watch;
  bool watch_hangs = false;
  v1::Sweep sweep;
  v1::ListSweepsResponse sweeps;
  v1::Trial tried;
  v1::RaceConfigsResponse raced;
  v1::ReplayTrialResponse replayed;
  v1::ListTrialsResponse trials;
  v1::ListRecordsResponse records;
  std::vector<v1::ExportLine> lines;
  v1::ImportEvidenceResponse imported;
  v1::ListDevicesResponse devices;
  google::longrunning::Operation calibrating, calibrated;
  v1::ListTemplatesResponse templates;
  v1::TemplateInfo info;
  v1::CheckTemplateResponse check;
};

class FakeDaemon {
 public:
  // Listens on `address`, or on a socket in its own folder.
  explicit FakeDaemon(const std::string& address = "");
  ~FakeDaemon();

  const std::string& address() const { return address_; }
  const std::string& dir() const { return dir_.path(); }

  Canned canned;
  // Set once WatchSweep has sent everything and is silent.
  absl::Notification watching;
  // Set once a silent WatchSweep has seen that its caller is gone.
  absl::Notification gone;

  // The last request of a method, as text ("" if it was never called), and how often it was called.
  std::string Request(const std::string& method) const;
  int Calls(const std::string& method) const;
  void Note(const std::string& method, const google::protobuf::Message& request);

 private:
  struct Services;

  const TempDir dir_;
  std::string address_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::vector<std::string>> requests_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Services> services_;
};

// Answers with plausible content in every field that the command line shows.
void FillCanned(Canned& canned);

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_CLIENT_FAKE_DAEMON_H_
