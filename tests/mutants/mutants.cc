#include "tests/mutants/mutants.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_util.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

const Value* Field(const Struct& object, const std::string& name) {
  const auto found = object.fields().find(name);
  return found != object.fields().end() ? &found->second : nullptr;
}

std::string Text(const Struct& object, const std::string& name) {
  const Value* const value = Field(object, name);
  return value != nullptr ? value->string_value() : "";
}

double Number(const Struct& object, const std::string& name, double otherwise) {
  const Value* const value = Field(object, name);
  return value != nullptr ? value->number_value() : otherwise;
}

absl::StatusOr<Mutant> ParseMutant(const Struct& object) {
  static const std::set<std::string> known = {"id",         "template",    "kind",   "file",   "find",
                                              "occurrence", "op",          "config", "expect", "replace",
                                              "racecheck",  "async_order", "mean",   "note"};
  Mutant mutant;
  mutant.id = Text(object, "id");
  const auto bad = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("mutant '", mutant.id, "': ", what));
  };
  for (const auto& [name, value] : object.fields()) {
    if (known.count(name) == 0) return bad(absl::StrCat("unknown field ", name));
  }
  mutant.template_id = Text(object, "template");
  mutant.kind = Text(object, "kind");
  mutant.file = Text(object, "file");
  mutant.find = Text(object, "find");
  mutant.replace = Text(object, "replace");
  mutant.op = Text(object, "op");
  mutant.config = Text(object, "config");
  mutant.note = Text(object, "note");
  mutant.mean = Number(object, "mean", 0);
  for (const std::string* text :
       {&mutant.id, &mutant.template_id, &mutant.kind, &mutant.file, &mutant.find, &mutant.op, &mutant.note}) {
    if (text->empty()) return bad("id, template, kind, file, find, op and note must not be empty");
  }
  if (const Value* const value = Field(object, "occurrence")) {
    mutant.occurrence = static_cast<int>(value->number_value());
    if (mutant.occurrence < 1) return bad("occurrence counts from 1");
  }
  if (const Value* const value = Field(object, "racecheck")) mutant.racecheck = value->bool_value();
  if (const Value* const value = Field(object, "async_order")) mutant.async_order = value->bool_value();
  if (const Value* const value = Field(object, "expect")) {
    for (const Value& item : value->list_value().values()) {
      v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
      if (!v1::Outcome_Parse(item.string_value(), &outcome) || outcome == v1::OK) {
        return bad(absl::StrCat("expect: '", item.string_value(), "' is no failure"));
      }
      mutant.expect.insert(outcome);
    }
  }
  if (mutant.expect.empty()) return bad("expect is empty");
  return mutant;
}

// Replaces one occurrence.
absl::Status Replace(const Mutant& mutant, std::string* text) {
  size_t at = text->find(mutant.find);
  for (int i = 1; i < mutant.occurrence && at != std::string::npos; ++i) at = text->find(mutant.find, at + 1);
  if (at == std::string::npos) {
    return absl::NotFoundError(absl::StrCat(mutant.id, ": ", mutant.file, " has no occurrence ",
                                            std::max(mutant.occurrence, 1), " of: ", mutant.find));
  }
  if (mutant.occurrence == 0 && text->find(mutant.find, at + 1) != std::string::npos) {
    return absl::FailedPreconditionError(
        absl::StrCat(mutant.id, ": ", mutant.file, " has it more than once: ", mutant.find));
  }
  text->replace(at, mutant.find.size(), mutant.replace);
  return absl::OkStatus();
}

absl::StatusOr<Config> ParseParameters(const std::string& text) {
  Config config;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> item = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (!absl::SimpleAtoi(item.second, &config[item.first])) {
      return absl::InvalidArgumentError(absl::StrCat("no parameter with its value: ", part));
    }
  }
  return config;
}

}  // namespace

absl::StatusOr<MutantSuite> ParseMutants(const std::string& json) {
  Struct root;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, &root);
  if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat("no JSON: ", std::string(parsed.message())));
  MutantSuite suite;
  std::set<std::string> ids;
  if (const Value* const list = Field(root, "mutant")) {
    for (const Value& value : list->list_value().values()) {
      RT_ASSIGN_OR_RETURN(Mutant mutant, ParseMutant(value.struct_value()));
      if (!ids.insert(mutant.id).second) return absl::InvalidArgumentError(absl::StrCat(mutant.id, " is there twice"));
      suite.mutants.push_back(std::move(mutant));
    }
  }
  if (const Value* const list = Field(root, "correct")) {
    for (const Value& value : list->list_value().values()) {
      const Struct& object = value.struct_value();
      suite.correct.push_back(
          {Text(object, "op"), static_cast<int>(Number(object, "configs", 1)), Number(object, "mean", 0)});
    }
  }
  return suite;
}

absl::StatusOr<MutantSuite> LoadMutants(const std::string& source_dir) {
  RT_ASSIGN_OR_RETURN(const std::string text, ReadFile(absl::StrCat(source_dir, "/tests/data/mutants/mutants.json")));
  return ParseMutants(text);
}

absl::StatusOr<std::unique_ptr<TemplateLibrary>> LoadLibraryWithExamples(const std::string& source_dir) {
  return TemplateLibrary::Load({absl::StrCat(source_dir, "/examples/declared_op")});
}

absl::Status Plant(const Mutant& mutant, worker::v1::CompileRequest* request) {
  if (mutant.file == "kernel.cuh") return Replace(mutant, request->mutable_source()->mutable_text());
  for (worker::v1::SourceFile& header : *request->mutable_header()) {
    if (header.name() == mutant.file) return Replace(mutant, header.mutable_text());
  }
  return absl::NotFoundError(absl::StrCat(mutant.id, ": ", mutant.template_id, " does not include ", mutant.file));
}

absl::StatusOr<Config> ConfigWith(const KernelTemplate& kernel, const Op& op, const DeviceProfile& device,
                                  const std::string& parameters) {
  RT_ASSIGN_OR_RETURN(const Config wanted, ParseParameters(parameters));
  RT_ASSIGN_OR_RETURN(const SearchSpace space, kernel.Space(op, device));
  RT_ASSIGN_OR_RETURN(const Config standard, kernel.DefaultConfig(op, device));
  Config config = standard;
  // Parameters that do not exist on the device (those with a `when`) are left out.
  for (const auto& [name, value] : wanted) {
    if (config.count(name) > 0) config[name] = value;
  }
  const std::string reason = space.WhyRejected(config);
  if (reason.empty()) return config;
  for (int64_t i = 0; i < space.size(); ++i) {
    Config point = space.At(i);
    const bool fits = std::all_of(wanted.begin(), wanted.end(), [&](const auto& item) {
      const auto found = point.find(item.first);
      return found == point.end() || found->second == item.second;
    });
    if (fits) return point;
  }
  return absl::NotFoundError(absl::StrCat(kernel.id(), " has no valid configuration with ", parameters, " for ",
                                          op.text, "; the default with these breaks: ", reason));
}

absl::StatusOr<std::vector<Config>> SpreadConfigs(const KernelTemplate& kernel, const Op& op,
                                                  const DeviceProfile& device, int count) {
  RT_ASSIGN_OR_RETURN(const SearchSpace space, kernel.Space(op, device));
  RT_ASSIGN_OR_RETURN(const Config standard, kernel.DefaultConfig(op, device));
  std::vector<Config> configs = {standard};
  for (int64_t i = 0; i < count && static_cast<int>(configs.size()) < count; ++i) {
    // The middles of equal parts: the first and last points of a space are its oddest.
    Config config = space.At((2 * i + 1) * space.size() / (2 * count));
    if (std::find(configs.begin(), configs.end(), config) == configs.end()) configs.push_back(std::move(config));
  }
  return configs;
}

}  // namespace rooftune
