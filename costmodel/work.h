// What an operator must do, exactly: operations per pipe and compulsory bytes.
#ifndef ROOFTUNE_COSTMODEL_WORK_H_
#define ROOFTUNE_COSTMODEL_WORK_H_

#include <string>
#include <vector>

#include "base/int128.h"
#include "rooftune/v1/types.pb.h"

namespace rooftune {

// Operations on one pipe; a fused multiply-add counts 2.
struct PipeOps {
  std::string pipe;  // "tensor", "fp32" or "sfu"
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;  // operand type on the tensor pipe
  Int128 ops = 0;
};

struct Work {
  std::vector<PipeOps> pipe_ops;
  // Every input read once, every output written once.
  Int128 bytes_read = 0;
  Int128 bytes_written = 0;
  // All tensors together.
  Int128 footprint_bytes = 0;

  Int128 bytes() const { return bytes_read + bytes_written; }
  Int128 total_ops() const;
  v1::Work ToProto() const;
};

}  // namespace rooftune

#endif  // ROOFTUNE_COSTMODEL_WORK_H_
