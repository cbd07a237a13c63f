#include "kernels/template_library.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "kernels/reference_kernel.h"
#include "kernels/source_files.h"
#include "kernels/template_folders.h"

namespace rooftune {
namespace {

worker::v1::SourceFile MakeSource(const std::string& kind, const std::string& text) {
  worker::v1::SourceFile source;
  source.set_name(absl::StrCat(kind, "/reference.cuh"));
  source.set_text(text);
  return source;
}

// Those beside a file hide shared ones of the same name.
std::vector<worker::v1::SourceFile> WithCommon(std::vector<worker::v1::SourceFile> headers) {
  headers.insert(headers.end(), CommonHeaders().begin(), CommonHeaders().end());
  return headers;
}

absl::StatusOr<std::unique_ptr<OpSchema>> LoadOp(const TemplateFolder& folder) {
  const std::string file = absl::StrCat(folder.origin, "/op.txtpb");
  manifest::v1::Op op;
  LocationTree tree;
  RT_RETURN_IF_ERROR(ParseManifest(*folder.op, file, &op, &tree));
  const Locator at(file, tree);
  auto schema = OpSchema::Create(op, folder.origin);
  if (!schema.ok()) return LocateOpError(schema.status(), op, at);
  if (op.has_reference() != folder.reference.has_value()) {
    return at.Error(op, op.has_reference() ? "reference" : "kind",
                    op.has_reference() ? "there is no reference.cuh beside it" : "does not declare its reference.cuh");
  }
  if (op.has_reference()) RT_RETURN_IF_ERROR(CheckReference(op, at));
  return schema;
}

// A measurement rotates buffers so that inputs come from memory. What a kernel reads with L2::evict_last stays in the
// L2 whatever else is read (docs/measuring.md): at its next turn it would be timed warm.
absl::Status CheckCachePolicy(const KernelTemplate& kernel) {
  const auto check = [&](absl::string_view name, absl::string_view text) -> absl::Status {
    if (!absl::StrContains(text, "evict_last")) return absl::OkStatus();
    return Error(
        absl::StatusCode::kInvalidArgument, "PINS_CACHE",
        absl::StrCat(
            kernel.files().origin, "/", name,
            ": evict_last keeps data in the L2 from one execution to the next, which measurements can't undo"));
  };
  RT_RETURN_IF_ERROR(check("kernel.cuh", kernel.files().kernel));
  for (const worker::v1::SourceFile& header : kernel.files().headers) {
    RT_RETURN_IF_ERROR(check(header.name(), header.text()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KernelTemplate>> LoadTemplate(const TemplateFolder& folder, const OpCatalog& ops) {
  if (!folder.kernel.has_value()) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_MANIFEST",
                 absl::StrCat(folder.origin, "/kernel.cuh is missing"));
  }
  TemplateFiles files{folder.origin, *folder.manifest, *folder.kernel, WithCommon(folder.headers)};
  RT_ASSIGN_OR_RETURN(auto loaded, KernelTemplate::Create(std::move(files), ops));
  RT_RETURN_IF_ERROR(CheckCachePolicy(*loaded));
  if (loaded->id() != folder.name) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_MANIFEST",
                 absl::StrCat(folder.origin, "/template.txtpb: id '", loaded->id(),
                              "' differs from its folder's name '", folder.name, "'"));
  }
  return loaded;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TemplateLibrary>> TemplateLibrary::Load(const std::vector<std::string>& dirs) {
  std::vector<TemplateFolder> folders = BuiltinFolders();
  for (const std::string& dir : dirs) {
    RT_ASSIGN_OR_RETURN(auto found, ScanFolders(dir));
    std::move(found.begin(), found.end(), std::back_inserter(folders));
  }
  // The constructor is private, which make_unique can't call.
  std::unique_ptr<TemplateLibrary> library(new TemplateLibrary());
  RT_ASSIGN_OR_RETURN(library->ops_, OpCatalog::Builtin());
  for (const OpSchema* schema : library->ops_.schemas()) {
    const std::string* text = BuiltinReference(schema->kind());
    if (text == nullptr) continue;
    library->references_[schema->kind()] = {MakeSource(schema->kind(), *text), HeadersOf(*text, CommonHeaders())};
  }
  // All operators first: a template may be for one that another folder declares.
  for (TemplateFolder& folder : folders) {
    if (folder.error.ok()) folder.error = library->AddOp(folder);
  }
  std::map<std::string, std::unique_ptr<KernelTemplate>> templates;
  for (const TemplateFolder& folder : folders) {
    absl::Status status = folder.error;
    if (status.ok() && folder.manifest.has_value()) {
      auto loaded = LoadTemplate(folder, library->ops_);
      status = loaded.status();
      if (loaded.ok()) templates[folder.name] = *std::move(loaded);
    }
    if (!status.ok()) library->broken_.push_back({folder.name, folder.origin, std::string(status.message())});
  }
  for (auto& [id, loaded] : templates) library->templates_.push_back(std::move(loaded));
  return library;
}

absl::Status TemplateLibrary::AddOp(const TemplateFolder& folder) {
  if (!folder.op.has_value()) return absl::OkStatus();
  RT_ASSIGN_OR_RETURN(auto schema, LoadOp(folder));
  const std::string kind = schema->kind();
  RT_RETURN_IF_ERROR(ops_.Add(std::move(schema)));
  if (folder.reference.has_value()) {
    references_[kind] = {MakeSource(kind, *folder.reference), HeadersOf(*folder.reference, WithCommon(folder.headers))};
  }
  return absl::OkStatus();
}

std::vector<const KernelTemplate*> TemplateLibrary::templates() const {
  std::vector<const KernelTemplate*> all;
  for (const auto& loaded : templates_) all.push_back(loaded.get());
  return all;
}

const KernelTemplate* TemplateLibrary::Find(absl::string_view id) const {
  for (const auto& loaded : templates_) {
    if (loaded->id() == id) return loaded.get();
  }
  return nullptr;
}

std::vector<const KernelTemplate*> TemplateLibrary::For(const Op& op, const DeviceProfile& device) const {
  std::vector<const KernelTemplate*> able;
  for (const auto& loaded : templates_) {
    if (loaded->Supports(op, device)) able.push_back(loaded.get());
  }
  return able;
}

absl::StatusOr<TemplateLibrary::Reference> TemplateLibrary::ReferenceOf(const Op& op,
                                                                        const DeviceProfile& device) const {
  const OpSchema* schema = ops_.Find(op.kind);
  const auto source = references_.find(op.kind);
  if (schema == nullptr || source == references_.end() || !schema->proto().has_reference()) {
    return Error(absl::StatusCode::kNotFound, "NO_REFERENCE",
                 absl::StrCat("operator ", op.kind, " has no reference kernel; declare one in its op.txtpb"),
                 {{"op", op.kind}});
  }
  return MakeReference(*schema, op, device, source->second.source, source->second.headers);
}

}  // namespace rooftune
