// Listings as all backends see them: identity for page tokens, and what belongs to one.
#ifndef ROOFTUNE_TUNER_STORE_LISTING_H_
#define ROOFTUNE_TUNER_STORE_LISTING_H_

#include <optional>
#include <string>

#include "rooftune/v1/records.pb.h"
#include "tuner/store/store.h"

namespace rooftune {

// Names of listings with their filters, for page tokens.
std::string SweepListing(std::optional<v1::SweepState> state);
std::string TrialListing(const TrialFilter& filter);
std::string RecordListing(const RecordFilter& filter);

// Microseconds since the epoch; 0 if unset.
int64_t TimeMicros(const google::protobuf::Timestamp& time);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_LISTING_H_
