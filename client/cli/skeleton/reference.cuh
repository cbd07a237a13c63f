// What @NAME@ must give: the definition, element by element, in double from the stored inputs. Keep it naive and apart
// from the kernel: it is the judge, and a mistake that both share would go unseen.
//
// For every output element it writes the value, not rounded to the output's type, and the magnitude that rounding
// errors scale with: the sum of the absolute terms. For y = x·scale + shift that is |x·scale| + |shift|: when the two
// cancel, y is small but its error is not.
#include "common/types.cuh"

typedef RtType<RT_DTYPE> Type;

extern "C" __global__ void __launch_bounds__(256)
    rt_reference(const Type::Store* x, const Type::Store* scale, const Type::Store* shift, double* value,
                 float* magnitude, rt_i64 rows, rt_i64 cols) {
  const rt_i64 i = static_cast<rt_i64>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= rows * cols) return;
  const rt_i64 column = i % cols;
  const double product = static_cast<double>(Type::load(x[i])) * Type::load(scale[column]);
  const double addend = Type::load(shift[column]);
  value[i] = product + addend;
  magnitude[i] = static_cast<float>(fabs(product) + fabs(addend));
}
