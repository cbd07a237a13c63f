// SHA-256 digests. Keys are the first 128 bits in hex; artifact digests are whole.
#ifndef ROOFTUNE_BASE_SHA256_H_
#define ROOFTUNE_BASE_SHA256_H_

#include <string>

#include "absl/strings/string_view.h"

namespace rooftune {

// 64 lower-case hex digits.
std::string Sha256Hex(absl::string_view data);

// Collects named fields and hashes them without ambiguity: every part is preceded by its length.
class Fingerprint {
 public:
  Fingerprint& Add(absl::string_view part);
  // First 128 bits, 32 hex digits.
  std::string Key() const;
  // All 256 bits, 64 hex digits.
  std::string Digest() const;

 private:
  std::string data_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_BASE_SHA256_H_
