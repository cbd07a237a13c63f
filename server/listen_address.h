// Where the daemon listens: checked before gRPC sees it, which accepts much that can't work.
#ifndef ROOFTUNE_SERVER_LISTEN_ADDRESS_H_
#define ROOFTUNE_SERVER_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rooftune {

struct ListenAddress {
  // Set for Unix sockets.
  std::string path;
  // Set for TCP; IPv6 without brackets. Port 0 = any free one.
  std::string host;
  int port = 0;

  bool is_unix() const { return !path.empty(); }
  // As gRPC takes it: "unix:/…", "127.0.0.1:7070", "[::1]:7070".
  std::string Target() const;
};

// "unix:PATH" or "HOST:PORT". INVALID_ARGUMENT (BAD_ADDRESS): no port, a port outside 0…65535 (gRPC takes it
// modulo 65536), a socket path longer than the 107 bytes that the kernel takes.
// FAILED_PRECONDITION (REMOTE_NOT_ALLOWED) for a host that is not loopback, unless `allow_remote`.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text, bool allow_remote);

// Tries to bind the TCP address (also port 0) and lets it go again: a clear error before any work has started.
// ALREADY_EXISTS (ADDRESS_IN_USE), INVALID_ARGUMENT (BAD_ADDRESS) for a host that is not of this machine. OK for
// Unix sockets.
absl::Status CheckFree(const ListenAddress& address);

// "$XDG_RUNTIME_DIR/rooftune/rooftune.sock", or below /tmp/rooftune-UID.
std::string DefaultSocketPath();

// Exclusive right to a Unix socket's path, held by a lock file beside it that ends with the process.
class SocketLock {
 public:
  SocketLock() = default;
  ~SocketLock();
  SocketLock(SocketLock&& other) noexcept : fd_(other.fd_), path_(std::move(other.path_)) { other.fd_ = -1; }
  SocketLock& operator=(SocketLock&&) = delete;
  SocketLock(const SocketLock&) = delete;
  SocketLock& operator=(const SocketLock&) = delete;

  // Makes the folder (0700), takes the lock, removes a socket that a dead daemon left. ALREADY_EXISTS
  // (ADDRESS_IN_USE) if a live one holds it; FAILED_PRECONDITION (UNSAFE_SOCKET_DIR) for a folder that others may
  // write or that belongs to somebody else, or a path that is something other than a socket.
  static absl::StatusOr<SocketLock> Acquire(const std::string& socket_path);
  // Removes the socket.
  void RemoveSocket() const;

 private:
  int fd_ = -1;
  std::string path_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_LISTEN_ADDRESS_H_
