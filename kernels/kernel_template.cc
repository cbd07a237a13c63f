#include "kernels/kernel_template.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "base/suggest.h"
#include "kernels/source_files.h"
#include "kernels/template_parsed.h"

namespace rooftune {
namespace {

std::string Revision(const TemplateFiles& files) {
  Fingerprint revision;
  revision.Add("template").Add(files.manifest).Add(files.kernel);
  for (const auto& header : files.headers) revision.Add(header.name()).Add(header.text());
  return revision.Key();
}

std::string RejectionText(const SearchSpace& space) {
  return absl::StrJoin(space.rejected(), ", ", absl::PairFormatter(": "));
}

}  // namespace

absl::StatusOr<std::unique_ptr<KernelTemplate>> KernelTemplate::Create(TemplateFiles files, const OpCatalog& catalog) {
  const std::string file = absl::StrCat(files.origin, "/template.txtpb");
  manifest::v1::Template manifest;
  LocationTree tree;
  RT_RETURN_IF_ERROR(ParseManifest(files.manifest, file, &manifest, &tree));
  const Locator at(file, tree);
  const OpSchema* schema = catalog.Find(manifest.op());
  if (schema == nullptr) {
    std::vector<std::string> kinds;
    for (const OpSchema* known : catalog.schemas()) kinds.push_back(known->kind());
    return at.Error(manifest, "op",
                    absl::StrCat("unknown operator '", manifest.op(), "'", DidYouMean(manifest.op(), kinds)));
  }
  RT_ASSIGN_OR_RETURN(auto parsed, Parsed::Make(manifest, schema->proto(), at));
  if (files.kernel.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_MANIFEST",
                 absl::StrCat(files.origin, "/kernel.cuh is empty"));
  }
  files.headers = HeadersOf(files.kernel, files.headers);
  std::string revision = Revision(files);
  // The constructor is private, which make_unique can't call.
  return std::unique_ptr<KernelTemplate>(
      new KernelTemplate(std::move(files), std::move(manifest), schema, std::move(revision), std::move(parsed)));
}

KernelTemplate::KernelTemplate(TemplateFiles files, manifest::v1::Template manifest, const OpSchema* schema,
                               std::string revision, std::shared_ptr<const Parsed> parsed)
    : files_(std::move(files)),
      manifest_(std::move(manifest)),
      schema_(schema),
      revision_(std::move(revision)),
      parsed_(std::move(parsed)) {}

bool KernelTemplate::Supports(const Op& op, const DeviceProfile& device) const {
  if (op.kind != manifest_.op()) return false;
  Names names = DeviceNames(device);
  if (parsed_->arch.has_value() && parsed_->arch->Eval(names).value_or(0) == 0) return false;
  names.insert(op.names.begin(), op.names.end());
  return !parsed_->when.has_value() || parsed_->when->Eval(names).value_or(0) != 0;
}

SearchSpaceSpec KernelTemplate::SpaceSpec(const Op& op, const DeviceProfile& device) const {
  SearchSpaceSpec spec;
  spec.params.assign(manifest_.param().begin(), manifest_.param().end());
  spec.lets.assign(manifest_.let().begin(), manifest_.let().end());
  spec.constraints.assign(manifest_.constraint().begin(), manifest_.constraint().end());
  spec.fixed = op.names;
  for (const auto& [name, value] : DeviceNames(device)) spec.fixed.emplace(name, value);
  return spec;
}

std::string KernelTemplate::WhyRejected(const Op& op, const Config& config, const DeviceProfile& device) const {
  if (!Supports(op, device)) return absl::StrCat("template ", id(), " does not support ", op.text, " on this device");
  const absl::StatusOr<std::string> why = SearchSpace::WhyRejected(SpaceSpec(op, device), config);
  return why.ok() ? *why : std::string(why.status().message());
}

absl::StatusOr<SearchSpace> KernelTemplate::Space(const Op& op, const DeviceProfile& device) const {
  auto space = SearchSpace::Create(SpaceSpec(op, device));
  if (!space.ok()) return Annotate(space.status(), absl::StrCat("template ", id()));
  return space;
}

absl::StatusOr<Config> KernelTemplate::DefaultConfig(const Op& op, const DeviceProfile& device) const {
  RT_ASSIGN_OR_RETURN(const SearchSpace space, Space(op, device));
  Config declared;
  for (const auto& value : manifest_.default_config()) declared[value.name()] = value.value();
  const int64_t nearest = space.Nearest(declared);
  if (nearest >= 0) return space.At(nearest);
  return Error(absl::StatusCode::kNotFound, "EMPTY_SPACE",
               absl::StrCat("template ", id(), " has no valid configuration for ", op.text,
                            "; rejected points by constraint: ", RejectionText(space)),
               {{"template", id()}, {"op", op.text}});
}

}  // namespace rooftune
