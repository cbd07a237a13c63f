// Reference of dequantize: y = q · scale in double. A scale is shared by `group_rows` rows and `group` columns; scales
// lie as [rows of groups, groups of a row], or with RT_COLUMN as [groups of a row, rows rounded up to a multiple of 4].
// Defines: RT_QTYPE, RT_COLUMN. Launch: 256 threads, one thread an element.
#include "common/types.cuh"

__device__ double quantized(const void* q, rt_i64 i) {
#if RT_QTYPE == RT_INT4
  return RtType<RT_INT4>::load(static_cast<const rt_u8*>(q)[i / 2], static_cast<int>(i % 2));
#else
  return RtType<RT_QTYPE>::load(static_cast<const RtType<RT_QTYPE>::Store*>(q)[i]);
#endif
}

extern "C" __global__ void __launch_bounds__(256)
    rt_reference(const void* q, const float* scales, double* value, float* magnitude, rt_i64 rows, rt_i64 cols,
                 rt_i64 group_rows, rt_i64 group) {
  const rt_i64 i = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * cols) return;
  const rt_i64 row = i / cols / group_rows, column = i % cols / group;
#if RT_COLUMN
  const double scale = scales[column * ((rows + 3) / 4 * 4) + row];
#else
  const double scale = scales[row * ((cols + group - 1) / group) + column];
#endif
  value[i] = quantized(q, i) * scale;
  magnitude[i] = static_cast<float>(fabs(value[i]));
}
