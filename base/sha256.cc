#include "base/sha256.h"

#include <openssl/sha.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace rooftune {

std::string Sha256Hex(absl::string_view data) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(), digest);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

Fingerprint& Fingerprint::Add(absl::string_view part) {
  absl::StrAppend(&data_, part.size(), ":", part, ";");
  return *this;
}

std::string Fingerprint::Key() const { return Sha256Hex(data_).substr(0, 32); }

std::string Fingerprint::Digest() const { return Sha256Hex(data_); }

}  // namespace rooftune
