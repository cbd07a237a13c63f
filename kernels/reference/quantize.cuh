// Reference of quantize: x / scale in double, clamped to the range of the type and not rounded. A scale is shared by
// `group_rows` rows and `group` columns: max(max |x|, floor) / limit of them, with RT_POW2 rounded up to a power of two,
// or with RT_STATIC given. Scales lie as [rows of groups, groups of a row], or with RT_COLUMN as [groups of a row, rows
// rounded up to a multiple of 4], where what is beyond the rows is 0.
// Defines: RT_DTYPE, RT_QTYPE, RT_STATIC, RT_COLUMN, RT_POW2. Launch: 256 threads; one block a scale (RT_STATIC: one
// block 4096 elements).
#include "common/reference.cuh"
#include "common/types.cuh"

typedef RtType<RT_DTYPE> Type;
typedef Type::Store Store;
constexpr double kLimit = RT_QTYPE == RT_FP8_E4M3 ? 448 : RT_QTYPE == RT_FP8_E5M2 ? 57344 : RT_QTYPE == RT_INT8 ? 127 : 7;
constexpr double kLowest = RT_QTYPE == RT_INT8 ? -128 : RT_QTYPE == RT_INT4 ? -8 : -kLimit;

__device__ void put(double v, double* value, float* magnitude) {
  *magnitude = static_cast<float>(fabs(v));
  *value = v < kLowest ? kLowest : v > kLimit ? kLimit : v;
}

#if RT_STATIC
extern "C" __global__ void __launch_bounds__(kThreads)
    rt_reference(const Store* x, const float* scale, double* value, float* magnitude, rt_i64 rows, rt_i64 cols,
                 rt_i64 group_rows, rt_i64 group) {
  const rt_i64 stride = static_cast<rt_i64>(gridDim.x) * kThreads;
  for (rt_i64 i = static_cast<rt_i64>(blockIdx.x) * kThreads + threadIdx.x; i < rows * cols; i += stride) {
    put(static_cast<double>(Type::load(x[i])) / static_cast<double>(*scale), value + i, magnitude + i);
  }
}
#else
__device__ double scale_of(double largest) {
  const double exact = largest / kLimit;
#if RT_POW2
  if (exact == 0) return exp2(-126.0);
  int exponent = 0;
  const double mantissa = frexp(exact, &exponent);
  // 2^exponent is above `exact`, but for a power of two, which has a mantissa of a half.
  exponent = mantissa == 0.5 ? exponent - 1 : exponent;
  return ldexp(1.0, exponent < -126 ? -126 : exponent);
#else
  return exact;
#endif
}

extern "C" __global__ void __launch_bounds__(kThreads)
    rt_reference(const Store* x, float floor, double* value, float* magnitude, double* scale_value,
                 float* scale_magnitude, rt_i64 rows, rt_i64 cols, rt_i64 group_rows, rt_i64 group) {
  __shared__ double shared[kThreads];
#if RT_COLUMN
  const rt_i64 padded = (rows + 3) / 4 * 4;
  const rt_i64 first_row = blockIdx.x % padded, first_column = blockIdx.x / padded * group;
#else
  const rt_i64 groups = (cols + group - 1) / group;
  const rt_i64 first_row = blockIdx.x / groups * group_rows, first_column = blockIdx.x % groups * group;
#endif
  const rt_i64 end_column = first_column + group < cols ? first_column + group : cols;
  const rt_i64 end_row = first_row + group_rows < rows ? first_row + group_rows : rows;
  const rt_i64 width = end_column - first_column;
  const rt_i64 count = end_row > first_row ? (end_row - first_row) * width : 0;
  const auto at = [&](rt_i64 i) { return (first_row + i / width) * cols + first_column + i % width; };
  double largest = 0;
  for (rt_i64 i = threadIdx.x; i < count; i += kThreads) {
    largest = fmax(largest, fabs(static_cast<double>(Type::load(x[at(i)]))));
  }
  const double scale = count > 0 ? scale_of(fmax(max_of(largest, shared), static_cast<double>(floor))) : 0;
  if (threadIdx.x == 0) {
    scale_value[blockIdx.x] = scale;
    scale_magnitude[blockIdx.x] = static_cast<float>(scale);
  }
  for (rt_i64 i = threadIdx.x; i < count; i += kThreads) {
    const double v = scale > 0 ? static_cast<double>(Type::load(x[at(i)])) / scale : 0;
    put(v, value + at(i), magnitude + at(i));
  }
}
#endif
