// Reference of rotary position embedding, by its definition, in double.
// Defines: RT_DTYPE, RT_STYLE (0 half, 1 interleaved). Launch: 256 threads, one thread a pair.
#include "common/types.cuh"

typedef RtType<RT_DTYPE> Type;
typedef Type::Store Store;

extern "C" __global__ void __launch_bounds__(256)
    rt_reference(const Store* q, const Store* k, const float* cos, const float* sin, double* q_value,
                 float* q_magnitude, double* k_value, float* k_magnitude, rt_i64 tokens, rt_i64 heads_q,
                 rt_i64 heads_kv, rt_i64 head_dim) {
  const rt_i64 half = head_dim / 2, heads = heads_q + heads_kv;
  const rt_i64 id = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (id >= tokens * heads * half) return;
  const rt_i64 pair = id % half, head = id / half % heads, token = id / (half * heads);
  const bool is_k = head >= heads_q;
  const rt_i64 first = (is_k ? token * heads_kv + head - heads_q : token * heads_q + head) * head_dim;
  const rt_i64 at_a = first + (RT_STYLE == 1 ? 2 * pair : pair);
  const rt_i64 at_b = RT_STYLE == 1 ? at_a + 1 : at_a + half;
  const Store* const in = is_k ? k : q;
  double* const value = is_k ? k_value : q_value;
  float* const magnitude = is_k ? k_magnitude : q_magnitude;
  const double a = Type::load(in[at_a]), b = Type::load(in[at_b]);
  const double c = cos[token * half + pair], s = sin[token * half + pair];
  value[at_a] = a * c - b * s;
  value[at_b] = b * c + a * s;
  magnitude[at_a] = static_cast<float>(fabs(a * c) + fabs(b * s));
  magnitude[at_b] = static_cast<float>(fabs(b * c) + fabs(a * s));
}
