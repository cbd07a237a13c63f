#include "tuner/worker/run_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace rooftune {

absl::StatusOr<DynamicLibrary> DynamicLibrary::Open(const std::vector<std::string>& names) {
  std::string reason = "no name given";
  for (const std::string& name : names) {
    if (name.empty()) continue;
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const text = dlerror();
      reason = text != nullptr ? text : absl::StrCat(name, ": unknown error");
      continue;
    }
    link_map* map = nullptr;
    std::string path = name;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name != nullptr && *map->l_name != 0) {
      path = map->l_name;
    }
    return DynamicLibrary(handle, path);
  }
  return Error(absl::StatusCode::kUnavailable, "NO_LIBRARY", reason);
}

void* DynamicLibrary::Find(const char* symbol) const { return dlsym(handle_, symbol); }

std::string EnvironmentOr(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace rooftune
