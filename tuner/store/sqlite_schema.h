// The database's schema: numbered steps from an empty file to the newest version.
#ifndef ROOFTUNE_TUNER_STORE_SQLITE_SCHEMA_H_
#define ROOFTUNE_TUNER_STORE_SQLITE_SCHEMA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tuner/store/sqlite_db.h"

namespace rooftune {

// "rftn": tells file(1) and us whose database it is.
inline constexpr int32_t kApplicationId = 0x7266746e;

// Step i brings user_version from i to i + 1. Steps never change once released; a new one comes with a fixture of
// the old schema in tests/data.
const std::vector<std::string>& SchemaSteps();

// Says whether the file may be used with `steps`, changing nothing: FAILED_PRECONDITION (DATABASE_NEWER,
// DATABASE_FOREIGN), DATA_LOSS (DATABASE_CORRUPT).
absl::Status CheckSchema(SqliteDb& db, const std::vector<std::string>& steps);
// Applies what is missing, each step in a transaction of its own.
absl::Status Migrate(SqliteDb& db, const std::vector<std::string>& steps);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_SQLITE_SCHEMA_H_
