// Operators: one text form, `gemm m=4096 n=4096 k=4096 dtype=bf16`, parsed against a schema that is data
// (`op.txtpb`). The canonical text (schema order, defaults omitted) is key, log line and evidence.
#ifndef ROOFTUNE_COSTMODEL_OP_H_
#define ROOFTUNE_COSTMODEL_OP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "costmodel/work.h"
#include "expr/expression.h"
#include "rooftune/manifest/v1/manifest.pb.h"
#include "rooftune/v1/launch_plan.pb.h"

namespace rooftune {

// A valid operator instance. Made by OpSchema::Parse only.
struct Op {
  std::string kind;
  // Canonical text.
  std::string text;
  // What expressions see: dims, attributes as integers (symbols and dtypes by their codes, a chain as its
  // number of inputs), what a chain adds (ChainNames), lets, the dtype constants FP32, FP16, BF16, … and the
  // attributes' symbols as LAYOUT_NT, ACT_RELU, …
  Names names;
  // Dims only, in schema order.
  std::vector<std::pair<std::string, int64_t>> dims;
  // Attribute texts by name, defaults filled in, e.g. {"dtype", "bf16"}, {"chain", "relu(add(a,b))"}.
  std::map<std::string, std::string> attributes;
  // Code lists of CHAIN attributes for `-DRT_CHAIN=…`: `chain` is the postfix program, `chain_axes` and `chain_dtypes`
  // have one entry an input; see costmodel/chain.h.
  std::map<std::string, std::vector<int64_t>> lists;
};

// A tensor of an instance.
struct OpTensorInstance {
  v1::TensorSpec spec;  // dims with value and expression
  int64_t elements = 0;
  int64_t bytes = 0;
  double fill_mean = 0;
  double fill_stddev = 1;
  // A tensor of indices in [0, fill_range); 0 = filled by mean and deviation.
  int64_t fill_range = 0;
  // No index comes twice, and about one in `fill_skip` (0 = none) is -1 instead.
  bool fill_distinct = false;
  int64_t fill_skip = 0;
  // Sizes of groups that add up to this, or where they begin (0 = neither).
  int64_t fill_total = 0;
  bool fill_offsets = false;
};

// One operator kind. Immutable.
class OpSchema {
 public:
  // INVALID_ARGUMENT with the field at fault.
  static absl::StatusOr<std::unique_ptr<OpSchema>> Create(manifest::v1::Op proto, std::string origin);

  const std::string& kind() const { return proto_.kind(); }
  const manifest::v1::Op& proto() const { return proto_; }
  // "built-in" or the folder it came from.
  const std::string& origin() const { return origin_; }
  // "gemm m= n= k= [batch=1] [dtype=bf16] …"
  std::string Usage() const;

  // `text` includes the kind: words `name=value` in any order, separated by blanks (blanks within parentheses
  // belong to the word). INVALID_ARGUMENT (reasons UNKNOWN_ATTRIBUTE, MISSING_DIM, MISSING_ATTRIBUTE, BAD_VALUE,
  // DUPLICATE, CONSTRAINT) naming the word at fault and what is allowed, with a suggestion for a misspelling.
  absl::StatusOr<Op> Parse(absl::string_view text) const;

  // Tensors that exist for this instance, in declared order. INVALID_ARGUMENT if a size overflows 2^62 bytes.
  absl::StatusOr<std::vector<OpTensorInstance>> Tensors(const Op& op) const;
  std::vector<v1::ScalarSpec> Scalars(const Op& op) const;
  absl::StatusOr<Work> ComputeWork(const Op& op) const;
  // Terms accumulated per output element.
  absl::StatusOr<int64_t> AccumulationLength(const Op& op) const;

 private:
  struct Parsed;  // compiled expressions
  friend class OpSchemaCompiler;
  friend class OpParser;
  OpSchema(manifest::v1::Op proto, std::string origin, std::shared_ptr<const Parsed> parsed);

  const manifest::v1::Op proto_;
  const std::string origin_;
  const std::shared_ptr<const Parsed> parsed_;
};

// All operator kinds. Immutable after Add() calls; built-ins are embedded in the binary.
class OpCatalog {
 public:
  // The built-in kinds (costmodel/ops/*.op.txtpb).
  static absl::StatusOr<OpCatalog> Builtin();

  // ALREADY_EXISTS if the kind is known from another folder.
  absl::Status Add(std::unique_ptr<OpSchema> schema);
  // nullptr if unknown.
  const OpSchema* Find(absl::string_view kind) const;
  std::vector<const OpSchema*> schemas() const;

  // Finds the kind (first word) and parses. INVALID_ARGUMENT (UNKNOWN_OP) with the nearest known kind.
  absl::StatusOr<Op> Parse(absl::string_view text) const;

 private:
  std::map<std::string, std::shared_ptr<const OpSchema>> schemas_;
};

// What a CHAIN attribute of this name adds to the names: the numbers of its inputs, of its simple and special
// operations an element, of inputs that lack axes, that are fp32 and that are 16 bits wide by their own word, and
// axes and dtype of its first input.
std::vector<std::string> ChainNames(const std::string& chain);
// Lists that it adds beside its program.
std::vector<std::string> ChainLists(const std::string& chain);

// Bits of one element; 0 for an unknown type.
int64_t DTypeBits(v1::DType dtype);
// Bytes of one element, rounded up: 1 for INT4, of which two share a byte.
int64_t DTypeBytes(v1::DType dtype);
// "bf16" ↔ BF16. Name is empty and code DTYPE_UNSPECIFIED for unknown.
std::string DTypeName(v1::DType dtype);
v1::DType ParseDType(absl::string_view name);

}  // namespace rooftune

#endif  // ROOFTUNE_COSTMODEL_OP_H_
