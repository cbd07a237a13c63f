// What a warm GetBestConfig costs over the Unix socket, beside an empty call on the same server.
//
// The server runs in a process of its own, with the store in memory: lookups are answered from the index, which is
// the same whatever the store. Interleaved asks the two in turns, so that drift of the machine meets both alike;
// its `above_ping_p50_us` is the figure to hold against the goal of 25 µs. The other two give calls a second with
// several clients. Set ROOFTUNE_ADDRESS and ROOFTUNE_BENCH_OP (an operator it has a record of) to measure a daemon.
#include <benchmark/benchmark.h>
#include <grpcpp/create_channel.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/test_daemon.h"

namespace rooftune {
namespace {

std::string address;  // "unix:…"
std::string op = "softmax rows=1024 cols=1024 dtype=bf16";
// Other shapes beside the one asked for, so that the index is not trivially small.
constexpr int kOtherRecords = 10'000;

std::unique_ptr<v1::ConfigService::Stub> Connect() {
  grpc::ChannelArguments arguments;
  // A connection for each client; channels to one address share theirs otherwise.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::ConfigService::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

void Require(const grpc::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "call failed: %s\n", status.error_message().c_str());
  std::exit(1);
}

double Microseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

double Ping(v1::ConfigService::Stub& stub) {
  grpc::ClientContext context;
  v1::PingResponse response;
  const auto start = std::chrono::steady_clock::now();
  Require(stub.Ping(&context, v1::PingRequest(), &response));
  return Microseconds(std::chrono::steady_clock::now() - start);
}

double Lookup(v1::ConfigService::Stub& stub) {
  grpc::ClientContext context;
  v1::GetBestConfigRequest request;
  request.set_op(op);
  v1::GetBestConfigResponse response;
  const auto start = std::chrono::steady_clock::now();
  Require(stub.GetBestConfig(&context, request, &response));
  return Microseconds(std::chrono::steady_clock::now() - start);
}

// What the client pays to decode the answer: the part of a lookup that no server can take away.
double DecodeMicroseconds(v1::ConfigService::Stub& stub) {
  grpc::ClientContext context;
  v1::GetBestConfigRequest request;
  request.set_op(op);
  v1::GetBestConfigResponse response;
  Require(stub.GetBestConfig(&context, request, &response));
  const std::string bytes = response.SerializeAsString();
  std::vector<double> times;
  for (int i = 0; i < 2000; ++i) {
    const auto start = std::chrono::steady_clock::now();
    v1::GetBestConfigResponse decoded;
    if (!decoded.ParseFromString(bytes)) std::exit(1);
    times.push_back(Microseconds(std::chrono::steady_clock::now() - start));
  }
  std::nth_element(times.begin(), times.begin() + 1000, times.end());
  return times[1000];
}

double Quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

void Interleaved(benchmark::State& state) {
  const auto stub = Connect();
  for (int i = 0; i < 200; ++i) {
    Ping(*stub);
    Lookup(*stub);
  }
  std::vector<double> pings, lookups;
  for (auto _ : state) {
    pings.push_back(Ping(*stub));
    lookups.push_back(Lookup(*stub));
    state.SetIterationTime(lookups.back() * 1e-6);
  }
  const double ping = Quantile(pings, 0.5), lookup = Quantile(lookups, 0.5);
  state.counters["ping_p50_us"] = ping;
  state.counters["ping_p99_us"] = Quantile(pings, 0.99);
  state.counters["lookup_p50_us"] = lookup;
  state.counters["lookup_p99_us"] = Quantile(lookups, 0.99);
  state.counters["above_ping_p50_us"] = lookup - ping;
  state.counters["client_decode_us"] = DecodeMicroseconds(*stub);
}
BENCHMARK(Interleaved)->UseManualTime()->Unit(benchmark::kMicrosecond)->MinTime(3);

template <double (*kCall)(v1::ConfigService::Stub&)>
void Throughput(benchmark::State& state) {
  const auto stub = Connect();
  kCall(*stub);
  std::vector<double> times;
  for (auto _ : state) times.push_back(kCall(*stub));
  state.SetItemsProcessed(state.iterations());
  state.counters["p50_us"] = benchmark::Counter(Quantile(times, 0.5), benchmark::Counter::kAvgThreads);
  state.counters["p99_us"] = benchmark::Counter(Quantile(times, 0.99), benchmark::Counter::kAvgThreads);
}
BENCHMARK_TEMPLATE(Throughput, Ping)->Threads(1)->Threads(8)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(Throughput, Lookup)->Threads(1)->Threads(8)->UseRealTime()->Unit(benchmark::kMicrosecond);

// Publishes a record with a recipe as a sweep leaves it, and many others.
void Serve(int ready_fd) {
  TestDaemon daemon;
  const Op parsed = *daemon.library->ops().Parse(op);
  const DevicePtr device = *daemon.core->context.devices.Resolve(kGpuId);
  v1::TuningRecord record = daemon.Record(op, kGpuKey, v1::MEASURED, 256);
  const auto planned = daemon.core->estimates.Make(parsed, *device, record.target_key(), false);
  if (planned.ok()) {
    *record.mutable_plan() = (*planned)->plan();
    *record.mutable_config() = (*planned)->config();
    *record.mutable_prediction() = (*planned)->prediction();
    *record.mutable_bounds() = (*planned)->bounds();
  }
  std::vector<v1::TuningRecord> records = {record};
  for (int i = 0; i < kOtherRecords; ++i) {
    records.push_back(
        daemon.Record(absl::StrCat("softmax rows=", i + 1, " cols=4096 dtype=fp16"), kGpuKey, v1::MEASURED, i));
  }
  daemon.Publish(records);
  const std::string line = absl::StrCat(daemon.target(), "\n");
  if (write(ready_fd, line.data(), line.size()) < 0) return;
  close(ready_fd);
  while (true) pause();
}

// Starts the server in a child, before gRPC runs in this process.
pid_t StartServer() {
  int ends[2];
  if (pipe(ends) != 0) std::exit(1);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    Serve(ends[1]);
    _exit(1);
  }
  close(ends[1]);
  char c;
  while (read(ends[0], &c, 1) == 1 && c != '\n') address += c;
  close(ends[0]);
  if (address.empty()) std::exit(1);
  return child;
}

}  // namespace
}  // namespace rooftune

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  pid_t child = 0;
  if (const char* given = std::getenv("ROOFTUNE_ADDRESS")) {
    rooftune::address = given;
    if (const char* text = std::getenv("ROOFTUNE_BENCH_OP")) rooftune::op = text;
  } else {
    child = rooftune::StartServer();
  }
  benchmark::RunSpecifiedBenchmarks();
  if (child > 0) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    // The child had no chance to remove its socket's folder.
    const std::string socket = rooftune::address.substr(5);
    unlink(socket.c_str());
    unlink((socket + ".lock").c_str());
    rmdir(socket.substr(0, socket.rfind('/')).c_str());
  }
  return 0;
}
