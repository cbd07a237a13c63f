// Compiled form of an op.txtpb; shared by the files that implement OpSchema.
#ifndef ROOFTUNE_COSTMODEL_OP_PARSED_H_
#define ROOFTUNE_COSTMODEL_OP_PARSED_H_

#include <optional>
#include <vector>

#include "costmodel/chain.h"
#include "costmodel/op.h"

namespace rooftune {

// Extent limit of a dimension whose schema gives none.
inline constexpr int64_t kDefaultDimMax = int64_t{1} << 40;
inline constexpr size_t kOpTextMax = 4096;
// Largest tensor in bytes.
inline constexpr Int128 kTensorBytesMax = Int128{1} << 62;

// Expressions in the order of the proto's fields; nullopt where the text is empty.
struct OpSchema::Parsed {
  struct Tensor {
    v1::TensorSpec::Role role = v1::TensorSpec::ROLE_UNSPECIFIED;
    std::optional<Expression> dtype;  // always set
    std::vector<Expression> dims;
    std::optional<Expression> when;
    std::optional<Expression> fill_range;
    std::optional<Expression> fill_total;
    std::optional<Expression> fill_offsets;
    // Inputs of the chain that another tensor stands for.
    std::optional<Expression> chain_skip;
    std::optional<Expression> fill_divisor;
  };
  struct WorkExprs {
    std::optional<Expression> tensor_ops, tensor_dtype, fp32_ops, sfu_ops, bytes_read, bytes_written;
  };

  // DType codes and attribute symbols by their upper-case names.
  Names constants;
  std::vector<Expression> lets;
  std::vector<Expression> constraints;
  std::vector<Tensor> tensors;
  // One a scalar.
  std::vector<std::optional<Expression>> scalar_whens;
  WorkExprs work;
  std::optional<Expression> accumulation_length;
};

// Names that a CHAIN attribute adds after its own, and lists beside its program (Chain::axes and Chain::dtypes).
inline constexpr const char* kChainNameSuffixes[] = {"_inputs",      "_fp32_ops",    "_sfu_ops",    "_broadcast_inputs",
                                                     "_fp32_inputs", "_half_inputs", "_first_axes", "_first_dtype"};

// Value of one attribute.
struct AttributeValue {
  std::string text;  // canonical
  int64_t code = 0;
  Chain chain;  // CHAIN only
};
// INVALID_ARGUMENT (BAD_VALUE) with what is allowed.
absl::StatusOr<AttributeValue> ParseAttributeValue(const manifest::v1::Attribute& attribute, absl::string_view text);

}  // namespace rooftune

#endif  // ROOFTUNE_COSTMODEL_OP_PARSED_H_
