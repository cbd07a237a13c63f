#include "tuner/worker/nvrtc_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file_util.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// Newest first. Names of files in a folder are the same.
constexpr const char* kSonames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
// Where `pip install nvidia-cuda-nvrtc…` puts the library, below a Python's site-packages.
constexpr const char* kWheelFolders[] = {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"};

std::string Env(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::vector<std::string> Glob(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

void AddFolder(const std::string& folder, std::vector<std::string>* candidates) {
  for (const char* name : kSonames) candidates->push_back(absl::StrCat(folder, "/", name));
}

void AddWheels(std::vector<std::string>* candidates) {
  std::vector<std::string> prefixes;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (!Env(name).empty()) prefixes.push_back(Env(name));
  }
  if (!Env("HOME").empty()) prefixes.push_back(Env("HOME") + "/.local");
  prefixes.insert(prefixes.end(), {"/usr/local", "/usr"});
  for (const std::string& prefix : prefixes) {
    for (const char* packages : {"site-packages", "dist-packages"}) {
      for (const char* wheel : kWheelFolders) {
        for (const std::string& folder : Glob(absl::StrCat(prefix, "/lib/python3*/", packages, "/", wheel))) {
          AddFolder(folder, candidates);
        }
      }
    }
  }
}

std::vector<std::string> Candidates(const std::string& explicit_path) {
  std::vector<std::string> candidates;
  const std::string wanted = explicit_path.empty() ? Env("ROOFTUNE_NVRTC") : explicit_path;
  if (!wanted.empty()) {
    if (IsFolder(wanted)) {
      AddFolder(wanted, &candidates);
    } else {
      candidates.push_back(wanted);
    }
    return candidates;
  }
  candidates.assign(std::begin(kSonames), std::end(kSonames));
  for (const std::string& root : {Env("CUDA_PATH"), Env("CUDA_HOME"), std::string("/usr/local/cuda")}) {
    if (root.empty()) continue;
    AddFolder(root + "/lib64", &candidates);
    AddFolder(root + "/lib", &candidates);
  }
  if (!Env("ROOFTUNE_NVRTC_DIR").empty()) AddFolder(Env("ROOFTUNE_NVRTC_DIR"), &candidates);
  // Beside a bundle's bin, and where scripts/setup puts it for a build tree (build/PRESET/bin).
  AddFolder(ExecutableDir() + "/../lib", &candidates);
  AddFolder(absl::StrCat(ExecutableDir(), "/../../deps/cuda/", kWheelFolders[0]), &candidates);
  AddWheels(&candidates);
  return candidates;
}

absl::Status Resolve(void* handle, NvrtcApi* api) {
  std::vector<std::string> missing;
  const auto bind = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(handle, name));
    if (*function == nullptr) missing.push_back(name);
  };
  bind("nvrtcVersion", &api->version);
  bind("nvrtcGetNumSupportedArchs", &api->num_supported_archs);
  bind("nvrtcGetSupportedArchs", &api->supported_archs);
  bind("nvrtcCreateProgram", &api->create_program);
  bind("nvrtcDestroyProgram", &api->destroy_program);
  bind("nvrtcCompileProgram", &api->compile_program);
  bind("nvrtcGetCUBINSize", &api->cubin_size);
  bind("nvrtcGetCUBIN", &api->cubin);
  bind("nvrtcGetProgramLogSize", &api->log_size);
  bind("nvrtcGetProgramLog", &api->log);
  bind("nvrtcGetErrorString", &api->error_string);
  if (missing.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("lacks ", absl::StrJoin(missing, ", ")));
}

std::string PathOf(void* handle, const std::string& asked) {
  const link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name == nullptr) return asked;
  char real[PATH_MAX];
  return realpath(map->l_name, real) != nullptr ? real : map->l_name;
}

// NVRTC opens its builtins by soname only, which fails when it was itself loaded from a folder the loader does not
// search, even if they lie side by side. Once loaded by full path, the soname is found.
absl::Status LoadBuiltins(const NvrtcLibrary& library) {
  const std::string name = absl::StrCat("libnvrtc-builtins.so.", library.version);
  const std::string beside = absl::StrCat(FolderOf(library.path), "/", name);
  if (dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return absl::OkStatus();
  const std::string error = dlerror();
  if (dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("its builtins can't be loaded: ", error));
}

absl::StatusOr<NvrtcLibrary> Open(const std::string& candidate) {
  void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::UnavailableError(dlerror());
  NvrtcLibrary library;
  RT_RETURN_IF_ERROR(Resolve(handle, &library.api));
  library.path = PathOf(handle, candidate);
  int major = 0, minor = 0, count = 0;
  if (library.api.version(&major, &minor) != kNvrtcSuccess ||
      library.api.num_supported_archs(&count) != kNvrtcSuccess || count <= 0 || count > 1000) {
    return absl::UnavailableError("does not tell its version and architectures");
  }
  library.version = absl::StrCat(major, ".", minor);
  library.archs.resize(count);
  if (library.api.supported_archs(library.archs.data()) != kNvrtcSuccess) {
    return absl::UnavailableError("does not tell its architectures");
  }
  std::sort(library.archs.begin(), library.archs.end());
  RT_RETURN_IF_ERROR(LoadBuiltins(library));
  return library;
}

}  // namespace

absl::StatusOr<NvrtcLibrary> NvrtcLibrary::Load(const std::string& path) {
  std::vector<std::string> failures;
  for (const std::string& candidate : Candidates(path)) {
    absl::StatusOr<NvrtcLibrary> library = Open(candidate);
    if (library.ok()) return library;
    failures.push_back(absl::StrCat(candidate, " (", std::string(library.status().message()), ")"));
  }
  return Error(absl::StatusCode::kUnavailable, "NO_NVRTC",
               absl::StrCat("NVRTC can't be loaded; install CUDA's NVRTC 12 or 13, or name it with --nvrtc or "
                            "ROOFTUNE_NVRTC. Looked for: ",
                            absl::StrJoin(failures, "; ")));
}

}  // namespace rooftune
