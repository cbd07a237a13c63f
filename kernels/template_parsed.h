// A checked manifest: every expression parsed, with lets written out.
#ifndef ROOFTUNE_KERNELS_TEMPLATE_PARSED_H_
#define ROOFTUNE_KERNELS_TEMPLATE_PARSED_H_

#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/kernel_template.h"
#include "kernels/manifest_scope.h"
#include "kernels/tensor_map.h"

namespace rooftune {

struct KernelTemplate::Parsed {
  struct Arg {
    manifest::v1::ArgSpec::KindCase kind;
    // Tensor or scalar.
    std::string name;
    Quantity value;
    // kTensorMap only.
    ParsedTensorMap map;
  };
  struct Launch {
    std::string symbol;
    Quantity when;
    // x, y, z.
    std::array<Quantity, 3> grid;
    std::array<Quantity, 3> block;
    Quantity cluster;
    Quantity shared;
    bool cooperative = false;
    std::vector<Arg> args;
  };
  struct Define {
    std::string name;
    Quantity value;
    // CHAIN attribute whose codes are listed.
    std::string list;
  };
  struct Condition {
    std::string name;
    Expression expression;
  };

  // Dims of the operator and parameters; every other name of an expression is a constant of a plan.
  std::set<std::string> dims;
  std::set<std::string> params;
  // The dims of the operator's tensors by their text there, with its lets written out.
  std::map<std::string, Expression> tensor_dims;

  Quantity arch;
  Quantity when;
  std::vector<Define> defines;
  std::vector<Launch> launches;
  Quantity workspace;
  std::vector<Condition> preconditions;
  // Fields of CostMapping by name; those the manifest leaves out are absent.
  std::map<std::string, Expression> cost;
  Quantity threads;
  Quantity shared;
  Quantity registers;
  Quantity deterministic;

  // INVALID_ARGUMENT with line and column.
  static absl::StatusOr<std::shared_ptr<const Parsed>> Make(const manifest::v1::Template& manifest,
                                                            const manifest::v1::Op& op, const Locator& at);
};

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_TEMPLATE_PARSED_H_
