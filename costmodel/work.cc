#include "costmodel/work.h"

namespace rooftune {

Int128 Work::total_ops() const {
  Int128 total = 0;
  for (const PipeOps& pipe : pipe_ops) total += pipe.ops;
  return total;
}

v1::Work Work::ToProto() const {
  v1::Work proto;
  for (const PipeOps& pipe : pipe_ops) {
    v1::Work::PipeOps* out = proto.add_pipe_ops();
    out->set_pipe(pipe.pipe);
    out->set_dtype(pipe.dtype);
    out->set_ops(Int128ToString(pipe.ops));
  }
  proto.set_bytes_read(Int128ToString(bytes_read));
  proto.set_bytes_written(Int128ToString(bytes_written));
  proto.set_footprint_bytes(Int128ToString(footprint_bytes));
  return proto;
}

}  // namespace rooftune
