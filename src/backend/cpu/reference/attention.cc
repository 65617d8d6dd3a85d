#include "backend/cpu/reference/attention.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/reference/numerics.h"
#include "base/half.h"

namespace pocketlm::reference {
namespace {

float LoadHalf(const std::byte* plane, size_t index) {
  uint16_t half;
  std::memcpy(&half, plane + 2 * index, sizeof(half));
  return HalfToFloat(half);
}

float LoadFloat(const std::byte* plane, size_t index) {
  float value;
  std::memcpy(&value, plane + 4 * index, sizeof(value));
  return value;
}

// The key of position n as floats (float types) or codes.
float KeyValue(const AttendBlockArgs& args, size_t n, size_t d) {
  const size_t tile = n / kKvTile, lane = n % kKvTile;
  switch (args.k_type) {
    case KvType::kF32:
      return LoadFloat(args.k, (tile * args.head_dim + d) * kKvTile + lane);
    case KvType::kF16:
      return LoadHalf(args.k, (tile * args.head_dim + d) * kKvTile + lane);
    case KvType::kI8: {
      const std::byte* codes = args.k + tile * args.head_dim * kKvTile;
      return static_cast<float>(static_cast<int>(codes[(d / 4 * kKvTile + lane) * 4 + d % 4]) -
                                128);
    }
    default: {
      const std::byte* codes = args.k + tile * args.head_dim / 2 * kKvTile;
      const int byte = static_cast<int>(codes[(d / 8 * kKvTile + lane) * 4 + d % 4]);
      return static_cast<float>((d % 8 < 4 ? byte & 15 : byte >> 4) - 8);
    }
  }
}

float ValueValue(const AttendBlockArgs& args, size_t n, size_t d) {
  const size_t dim = args.head_dim;
  switch (args.v_type) {
    case KvType::kF32:
      return LoadFloat(args.v, n * dim + d);
    case KvType::kF16:
      return LoadHalf(args.v, n * dim + d);
    case KvType::kI8:
      return static_cast<float>(static_cast<int8_t>(args.v[n * dim + d]));
    default: {
      const size_t group = KvGroup(dim), half = group / 2, i = d % group;
      const int byte = static_cast<int>(args.v[(n * dim + d - i) / 2 + i % half]);
      return static_cast<float>((i < half ? byte & 15 : byte >> 4) - 8);
    }
  }
}

// The scale of position n's group.
float ScaleOf(const uint16_t* scales, size_t groups, size_t n, size_t group) {
  return HalfToFloat(scales[(n / kKvTile * groups + group) * kKvTile + n % kKvTile]);
}

float Score(const AttendBlockArgs& args, size_t head, size_t n) {
  const size_t dim = args.head_dim;
  float s = 0.0f;
  if (!KvIsQuantized(args.k_type)) {
    for (size_t d = 0; d < dim; ++d)
      s = FusedMultiplyAdd(args.q[head * dim + d], KeyValue(args, n, d), s);
    return s;
  }
  const size_t group = KvGroup(dim), groups = dim / group;
  for (size_t g = 0; g < groups; ++g) {
    int32_t dot = 0;
    for (size_t d = g * group; d < (g + 1) * group; ++d)
      dot += args.q_codes[head * dim + d] * static_cast<int32_t>(KeyValue(args, n, d));
    s = FusedMultiplyAdd(static_cast<float>(dot) * args.q_scales[head * groups + g],
                         ScaleOf(args.k_scales, groups, n, g), s);
  }
  return s;
}

// Scores of the visible positions become exp(score - max); returns the maximum.
float SoftmaxBlock(float* p, size_t begin, size_t end, float* sum) {
  float max = -std::numeric_limits<float>::infinity();
  for (size_t n = begin; n < end; ++n) max = p[n] > max ? p[n] : max;
  float lanes[kLanes] = {};
  for (size_t n = begin; n < end; ++n) {
    p[n] = Exp(p[n] - max);
    lanes[n % kLanes] += p[n];
  }
  *sum = ReduceLanes(lanes);
  return max;
}

}  // namespace

void AttendBlock(const AttendBlockArgs& args, const AttentionState& state) {
  const size_t dim = args.head_dim, group = KvGroup(dim), groups = dim / group;
  for (size_t h = 0; h < args.heads; ++h) {
    float p[kAttentionBlock];
    for (size_t n = args.begin; n < args.end; ++n) p[n] = Score(args, h, n);
    state.max[h] = SoftmaxBlock(p, args.begin, args.end, &state.sum[h]);
    for (size_t d = 0; d < dim; ++d) {
      float o = 0.0f;
      for (size_t n = args.begin; n < args.end; ++n) {
        const float weight =
            KvIsQuantized(args.v_type) ? p[n] * ScaleOf(args.v_scales, groups, n, d / group) : p[n];
        o = FusedMultiplyAdd(weight, ValueValue(args, n, d), o);
      }
      state.out[h * dim + d] = o;
    }
  }
}

void MergeAttention(const AttentionState& block, size_t heads, size_t head_dim,
                    const AttentionState& into) {
  for (size_t h = 0; h < heads; ++h) {
    const float max = block.max[h] > into.max[h] ? block.max[h] : into.max[h];
    const float c1 = Exp(into.max[h] - max);
    const float c2 = Exp(block.max[h] - max);
    for (size_t d = h * head_dim; d < (h + 1) * head_dim; ++d)
      into.out[d] = FusedMultiplyAdd(into.out[d], c1, block.out[d] * c2);
    into.sum[h] = FusedMultiplyAdd(into.sum[h], c1, block.sum[h] * c2);
    into.max[h] = max;
  }
}

void RotateGroups(float* x, size_t count, size_t group) {
  const float factor = 1.0f / std::sqrt(static_cast<float>(group));
  for (size_t begin = 0; begin < count; begin += group) {
    float* v = x + begin;
    for (size_t distance = 1; distance < group; distance *= 2) {
      for (size_t i = 0; i < group; i += 2 * distance) {
        for (size_t j = i; j < i + distance; ++j) {
          const float a = v[j], b = v[j + distance];
          v[j] = a + b;
          v[j + distance] = a - b;
        }
      }
    }
    for (size_t i = 0; i < group; ++i) v[i] *= factor;
  }
}

}  // namespace pocketlm::reference
