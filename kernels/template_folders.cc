#include "kernels/template_folders.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/status_macros.h"
#include "kernels/embedded_kernels.h"

namespace rooftune {
namespace {

namespace fs = std::filesystem;

constexpr int kLevels = 2;
constexpr size_t kMaxFolders = 4096;
constexpr size_t kMaxManifest = 1 << 20;
constexpr size_t kMaxSource = 4 << 20;

worker::v1::SourceFile MakeSource(std::string name, std::string text) {
  worker::v1::SourceFile file;
  file.set_name(std::move(name));
  file.set_text(std::move(text));
  return file;
}

// Puts one file's text where it belongs; other kinds of files are none of ours.
void AddFile(const std::string& name, std::string text, TemplateFolder* folder) {
  if (name == "template.txtpb") {
    folder->manifest = std::move(text);
  } else if (name == "kernel.cuh") {
    folder->kernel = std::move(text);
  } else if (name == "op.txtpb") {
    folder->op = std::move(text);
  } else if (name == "reference.cuh") {
    folder->reference = std::move(text);
  } else if (absl::EndsWith(name, ".cuh")) {
    folder->headers.push_back(MakeSource(name, std::move(text)));
  }
}

// Subfolders of `path`, and its files of interest, both sorted.
struct Listing {
  std::vector<fs::path> folders;
  std::vector<fs::path> files;
};

Listing List(const fs::path& path) {
  Listing listing;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (entry->is_directory(error)) {
      if (name[0] != '.') listing.folders.push_back(entry->path());
    } else if (absl::EndsWith(name, ".txtpb") || absl::EndsWith(name, ".cuh")) {
      listing.files.push_back(entry->path());
    }
  }
  std::sort(listing.folders.begin(), listing.folders.end());
  std::sort(listing.files.begin(), listing.files.end());
  return listing;
}

TemplateFolder ReadFolder(const fs::path& path, const Listing& listing) {
  TemplateFolder folder;
  folder.name = path.filename().string();
  folder.origin = path.string();
  for (const fs::path& file : listing.files) {
    const bool manifest = file.extension() == ".txtpb";
    auto text = ReadFile(file.string(), manifest ? kMaxManifest : kMaxSource);
    if (text.ok()) {
      AddFile(file.filename().string(), *std::move(text), &folder);
    } else if (folder.error.ok()) {
      folder.error = text.status();
    }
  }
  return folder;
}

absl::Status Scan(const fs::path& path, int levels, size_t* visited, std::vector<TemplateFolder>* folders) {
  if (++*visited > kMaxFolders) {
    return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_FOLDERS",
                 absl::StrCat(path.string(), ": more than ", kMaxFolders, " folders; name a folder of templates"));
  }
  const Listing listing = List(path);
  const bool declares = std::any_of(listing.files.begin(), listing.files.end(), [](const fs::path& file) {
    return file.filename() == "template.txtpb" || file.filename() == "op.txtpb";
  });
  if (declares) folders->push_back(ReadFolder(path, listing));
  if (levels == 0) return absl::OkStatus();
  for (const fs::path& below : listing.folders) RT_RETURN_IF_ERROR(Scan(below, levels - 1, visited, folders));
  return absl::OkStatus();
}

}  // namespace

std::vector<TemplateFolder> BuiltinFolders() {
  std::map<std::string, TemplateFolder> folders;
  for (const EmbeddedFile& file : EmbeddedKernels()) {
    const std::vector<std::string> parts = absl::StrSplit(file.path, '/');
    if (parts.size() != 4 || parts[0] != "templates") continue;
    TemplateFolder& folder = folders[parts[2]];
    folder.name = parts[2];
    folder.origin = absl::StrCat("built-in/", parts[2]);
    AddFile(parts[3], file.data, &folder);
  }
  std::vector<TemplateFolder> sorted;
  for (auto& [name, folder] : folders) sorted.push_back(std::move(folder));
  return sorted;
}

const std::vector<worker::v1::SourceFile>& CommonHeaders() {
  static const auto& headers = *[] {
    auto* common = new std::vector<worker::v1::SourceFile>;
    for (const EmbeddedFile& file : EmbeddedKernels()) {
      absl::string_view name = file.path;
      if (absl::ConsumePrefix(&name, "templates/") && absl::StartsWith(name, "common/")) {
        common->push_back(MakeSource(std::string(name), file.data));
      }
    }
    return common;
  }();
  return headers;
}

const std::string* BuiltinReference(const std::string& kind) {
  for (const EmbeddedFile& file : EmbeddedKernels()) {
    if (file.path == absl::StrCat("reference/", kind, ".cuh")) return &file.data;
  }
  return nullptr;
}

absl::StatusOr<std::vector<TemplateFolder>> ScanFolders(const std::string& dir) {
  std::error_code error;
  // Canonical, so that "." has a name and a trailing slash does not matter.
  const fs::path path = fs::canonical(dir, error);
  if (error || !fs::is_directory(path, error)) {
    return Error(absl::StatusCode::kNotFound, "NO_TEMPLATE_DIR", absl::StrCat(dir, " is not a folder"));
  }
  std::vector<TemplateFolder> folders;
  size_t visited = 0;
  RT_RETURN_IF_ERROR(Scan(path, kLevels, &visited, &folders));
  return folders;
}

}  // namespace rooftune
