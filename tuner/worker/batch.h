// Runs a role on frames from a file: replays requests without a daemon.
#ifndef ROOFTUNE_TUNER_WORKER_BATCH_H_
#define ROOFTUNE_TUNER_WORKER_BATCH_H_

#include <functional>
#include <string>

namespace rooftune {

// Feeds every frame of `file` to `role`, which serves on the descriptor it is given, and writes the frames it
// answers to `out_fd`. Returns the role's exit code; 2 if `file` can't be opened, 1 if it holds no whole frames.
int RunBatch(const std::string& file, int out_fd, const std::function<int(int fd)>& role);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_BATCH_H_
