// Version of this build, from CMake's project().
#ifndef ROOFTUNE_TUNER_WORKER_VERSION_H_
#define ROOFTUNE_TUNER_WORKER_VERSION_H_

namespace rooftune {

inline constexpr char kWorkerVersion[] = ROOFTUNE_VERSION;

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_VERSION_H_
