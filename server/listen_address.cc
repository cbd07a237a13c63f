#include "server/listen_address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

absl::Status Bad(absl::string_view text, absl::string_view why) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_ADDRESS",
               absl::StrCat("--listen ", text, ": ", why, "; use unix:PATH or HOST:PORT"));
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6) != 0;
  return false;
}

absl::Status CheckSocketDir(const std::string& dir) {
  struct stat info;
  if (lstat(dir.c_str(), &info) != 0) return ErrnoStatus(errno, dir);
  const bool writable_by_others = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (info.st_mode & S_ISVTX) == 0;
  if (!S_ISLNK(info.st_mode) && (info.st_uid == getuid() || info.st_uid == 0) && !writable_by_others) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kFailedPrecondition, "UNSAFE_SOCKET_DIR",
               absl::StrCat(dir,
                            " is a link, belongs to somebody else or may be written by others, who could put a "
                            "socket of their own there; choose another folder with --listen unix:PATH"));
}

}  // namespace

std::string ListenAddress::Target() const {
  if (is_unix()) return absl::StrCat("unix:", path);
  return absl::StrCat(absl::StrContains(host, ':') ? absl::StrCat("[", host, "]") : host, ":", port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text, bool allow_remote) {
  ListenAddress address;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    absl::ConsumePrefix(&rest, "//");
    if (rest.empty()) return Bad(text, "no path");
    std::error_code error;
    address.path = std::filesystem::absolute(std::string(rest), error).string();
    constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
    if (address.path.size() > kMaxPath) {
      return Bad(text, absl::StrCat("the path has ", address.path.size(), " bytes, the kernel takes ", kMaxPath));
    }
    return address;
  }
  const size_t colon = rest.rfind(':');
  if (colon == absl::string_view::npos) return Bad(text, "no port");
  absl::string_view host = rest.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]")) return Bad(text, "no closing ]");
  } else if (absl::StrContains(host, ':')) {
    return Bad(text, "IPv6 addresses need brackets");
  }
  if (host.empty()) return Bad(text, "no host");
  const absl::string_view port = rest.substr(colon + 1);
  if (port.empty() || port[0] == '+' || port[0] == '-' || !absl::SimpleAtoi(port, &address.port) || address.port < 0 ||
      address.port > 65535) {
    return Bad(text, absl::StrCat("\"", port, "\" is not a port (0 to 65535)"));
  }
  address.host = std::string(host);
  if (allow_remote || IsLoopback(address.host)) return address;
  return Error(
      absl::StatusCode::kFailedPrecondition, "REMOTE_NOT_ALLOWED",
      absl::StrCat("--listen ", text,
                   " is not a loopback address: TCP is neither encrypted nor authenticated, so "
                   "everybody who reaches the port could tune, cancel and import. Use a Unix socket or 127.0.0.1, or "
                   "add --allow-remote if the network is trusted"));
}

absl::Status CheckFree(const ListenAddress& address) {
  if (address.is_unix()) return absl::OkStatus();
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (failed != 0) return Bad(address.Target(), gai_strerror(failed));
  absl::Status status;
  for (const addrinfo* a = found; a != nullptr && status.ok(); a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;  // e.g. a kernel without IPv6
    // As gRPC does: connections of a predecessor in TIME_WAIT are no obstacle.
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0) {
      const int error = errno;
      if (error == EADDRINUSE) {
        status = Error(absl::StatusCode::kAlreadyExists, "ADDRESS_IN_USE",
                       absl::StrCat("another process listens on ", address.Target(), "; choose another --listen"));
      } else {
        status = Bad(address.Target(), ErrnoStatus(error, "bind").message());
      }
    }
    close(fd);
  }
  freeaddrinfo(found);
  return status;
}

std::string DefaultSocketPath() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/') return absl::StrCat(runtime, "/rooftune/rooftune.sock");
  return absl::StrCat("/tmp/rooftune-", getuid(), "/rooftune.sock");
}

SocketLock::~SocketLock() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<SocketLock> SocketLock::Acquire(const std::string& socket_path) {
  const std::string dir = std::filesystem::path(socket_path).parent_path().string();
  RT_RETURN_IF_ERROR(MakeDirs(dir, 0700));
  RT_RETURN_IF_ERROR(CheckSocketDir(dir));
  SocketLock lock;
  lock.path_ = socket_path;
  const std::string lock_path = absl::StrCat(socket_path, ".lock");
  lock.fd_ = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock.fd_ < 0) return ErrnoStatus(errno, absl::StrCat("open ", lock_path));
  if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    return Error(
        absl::StatusCode::kAlreadyExists, "ADDRESS_IN_USE",
        absl::StrCat("another rooftuned listens on unix:", socket_path, "; stop it or choose another --listen"));
  }
  struct stat info;
  if (lstat(socket_path.c_str(), &info) == 0) {
    // Nobody holds the lock, so nobody listens.
    if (!S_ISSOCK(info.st_mode)) {
      return Error(absl::StatusCode::kFailedPrecondition, "UNSAFE_SOCKET_DIR",
                   absl::StrCat(socket_path, " exists and is not a socket; choose another --listen"));
    }
    unlink(socket_path.c_str());
  }
  return lock;
}

void SocketLock::RemoveSocket() const { unlink(path_.c_str()); }

}  // namespace rooftune
