// Stores whose writes fail as a script says: for `fake:` devices and tests, also from outside.
#ifndef ROOFTUNE_TUNER_STORE_FAULTY_STORE_H_
#define ROOFTUNE_TUNER_STORE_FAULTY_STORE_H_

#include <memory>
#include <vector>

#include "rooftune/device/v1/fake.pb.h"
#include "tuner/store/artifact_store.h"
#include "tuner/store/store.h"

namespace rooftune {

// Each store counts its own writes from 1, those that failed included. A write that fails is RESOURCE_EXHAUSTED
// (DISK_FULL) and changes nothing; reads never fail. Faults of the other kind are passed over. Counters:
// "store_writes" and "store_faults", "artifact_faults".
std::unique_ptr<Store> MakeFaultyStore(std::unique_ptr<Store> store, std::vector<device::v1::StoreFault> faults);
std::unique_ptr<ArtifactStore> MakeFaultyArtifacts(std::unique_ptr<ArtifactStore> artifacts,
                                                   std::vector<device::v1::StoreFault> faults);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_FAULTY_STORE_H_
