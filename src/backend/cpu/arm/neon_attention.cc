// Softmax attention over one block of the cache in NEON: up to seven query heads share each load of a key or value.

#include "backend/cpu/arm/neon_common.h"
#include "backend/cpu/reference/attention.h"

namespace pocketlm {
namespace {

constexpr int kMaxHeads = 7;

// Scores of a block, then exp(score - max), then what multiplies the values.
struct Weights {
  alignas(64) float p[kMaxHeads][kAttentionBlock];
  alignas(64) float scaled[kMaxHeads][kAttentionBlock];
};

// Scores of half a tile, 8 positions: with 7 heads, their sums and what feeds them fit 32 registers.
template <int H>
struct Scores8 {
  float32x4_t quad[H][2];
};

// Eight positions' value d of float keys.
template <KvType kType>
inline void LoadKeys(const std::byte* keys, size_t d, float32x4_t (&k)[2]) {
  if constexpr (kType == KvType::kF16) {
    const uint16x8_t halves = LoadU16x8(keys + 2 * kKvTile * d);
    k[0] = LowHalves(halves);
    k[1] = HighHalves(halves);
  } else {
    const auto* floats = reinterpret_cast<const float*>(keys + 4 * kKvTile * d);
    k[0] = vld1q_f32(floats);
    k[1] = vld1q_f32(floats + 4);
  }
}

template <int H, int kLane>
inline void AddKey(const float32x4_t (&q)[H], const float32x4_t (&k)[2], Scores8<H>* s) {
#pragma GCC unroll 7
  for (int h = 0; h < H; ++h) {
    s->quad[h][0] = vfmaq_laneq_f32(s->quad[h][0], k[0], q[h], kLane);
    s->quad[h][1] = vfmaq_laneq_f32(s->quad[h][1], k[1], q[h], kLane);
  }
}

// Float keys; `keys` is the tile, from the first of the eight positions on.
template <int H, KvType kType>
void FloatScores(const AttendBlockArgs& args, size_t head, const std::byte* keys, Scores8<H>* s) {
  const size_t dim = args.head_dim;
  const float* q = args.q + head * dim;
#pragma GCC unroll 7
  for (int h = 0; h < H; ++h) s->quad[h][0] = s->quad[h][1] = vdupq_n_f32(0.0f);
  for (size_t d = 0; d < dim; d += 4) {
    float32x4_t queries[H], k[2];
#pragma GCC unroll 7
    for (int h = 0; h < H; ++h) queries[h] = vld1q_f32(q + static_cast<size_t>(h) * dim + d);
    LoadKeys<kType>(keys, d, k);
    AddKey<H, 0>(queries, k, s);
    LoadKeys<kType>(keys, d + 1, k);
    AddKey<H, 1>(queries, k, s);
    LoadKeys<kType>(keys, d + 2, k);
    AddKey<H, 2>(queries, k, s);
    LoadKeys<kType>(keys, d + 3, k);
    AddKey<H, 3>(queries, k, s);
  }
}

template <int H>
struct Dots8 {
  int32x4_t quad[H][2];
};

// Values 4·kLane … 4·kLane + 3 of the queries' 16 with those of eight keys.
template <int H, int kLane>
inline void AddCodes(const int8x16_t (&q)[H], int8x16_t low, int8x16_t high, Dots8<H>* dot) {
#pragma GCC unroll 7
  for (int h = 0; h < H; ++h) {
    dot->quad[h][0] = vdotq_laneq_s32(dot->quad[h][0], low, q[h], kLane);
    dot->quad[h][1] = vdotq_laneq_s32(dot->quad[h][1], high, q[h], kLane);
  }
}

// Four values of int8 keys, which are stored with a bias of 128.
template <int H, int kLane>
inline void AddByteKeys(const int8x16_t (&q)[H], const uint8_t* keys, Dots8<H>* dot) {
  const uint8x16_t bias = vdupq_n_u8(128);
  const int8x16_t low = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(keys + 64 * kLane), bias));
  const int8x16_t high = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(keys + 64 * kLane + 16), bias));
  AddCodes<H, kLane>(q, low, high, dot);
}

// Eight values of int4 keys, number kBlock of two; their bias is in what `dot` starts from.
template <int H, int kBlock>
inline void AddNibbleKeys(const int8x16_t (&q)[H], const uint8_t* keys, Dots8<H>* dot) {
  const uint8x16_t low = vld1q_u8(keys + 64 * kBlock), high = vld1q_u8(keys + 64 * kBlock + 16);
  const uint8x16_t mask = vdupq_n_u8(15);
  AddCodes<H, 2 * kBlock>(q, vreinterpretq_s8_u8(vandq_u8(low, mask)),
                          vreinterpretq_s8_u8(vandq_u8(high, mask)), dot);
  AddCodes<H, 2 * kBlock + 1>(q, vreinterpretq_s8_u8(vshrq_n_u8(low, 4)),
                              vreinterpretq_s8_u8(vshrq_n_u8(high, 4)), dot);
}

// Adds the products of one group of values, a multiple of 16.
template <int H, KvType kType>
void GroupDots(const int8_t* q, size_t dim, size_t group, const uint8_t* keys, Dots8<H>* dot) {
  for (size_t d = 0; d < group; d += 16) {
    int8x16_t queries[H];
#pragma GCC unroll 7
    for (int h = 0; h < H; ++h) queries[h] = vld1q_s8(q + static_cast<size_t>(h) * dim + d);
    if constexpr (kType == KvType::kI8) {
      AddByteKeys<H, 0>(queries, keys, dot);
      AddByteKeys<H, 1>(queries, keys, dot);
      AddByteKeys<H, 2>(queries, keys, dot);
      AddByteKeys<H, 3>(queries, keys, dot);
      keys += 256;
    } else {
      AddNibbleKeys<H, 0>(queries, keys, dot);
      AddNibbleKeys<H, 1>(queries, keys, dot);
      keys += 128;
    }
  }
}

// Keys of codes; `keys` and `scales` are the tile's, from the first of the eight positions on.
template <int H, KvType kType>
void CodeScores(const AttendBlockArgs& args, size_t head, const std::byte* keys,
                const uint16_t* scales, Scores8<H>* s) {
  const size_t dim = args.head_dim, group = KvGroup(dim), groups = dim / group;
  const size_t group_bytes = kKvTile * group / (kType == KvType::kI8 ? 1 : 2);
#pragma GCC unroll 7
  for (int h = 0; h < H; ++h) s->quad[h][0] = s->quad[h][1] = vdupq_n_f32(0.0f);
  for (size_t g = 0; g < groups; ++g, keys += group_bytes) {
    const size_t at = head * groups + g;
    Dots8<H> dot;
#pragma GCC unroll 7
    for (int h = 0; h < H; ++h) {
      const int32_t bias = kType == KvType::kI8 ? 0 : -8 * args.q_code_sums[at + h * groups];
      dot.quad[h][0] = dot.quad[h][1] = vdupq_n_s32(bias);
    }
    GroupDots<H, kType>(args.q_codes + head * dim + g * group, dim, group,
                        reinterpret_cast<const uint8_t*>(keys), &dot);
    const uint16x8_t halves = LoadU16x8(scales + kKvTile * g);
    const float32x4_t scale[2] = {LowHalves(halves), HighHalves(halves)};
#pragma GCC unroll 7
    for (int h = 0; h < H; ++h) {
      const float q_scale = args.q_scales[at + h * groups];
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const float32x4_t value = vmulq_n_f32(vcvtq_f32_s32(dot.quad[h][i]), q_scale);
        s->quad[h][i] = vfmaq_f32(s->quad[h][i], value, scale[i]);
      }
    }
  }
}

// The scores of positions beyond the visible ones, which share a tile with these, become -inf.
void HideInvisible(const AttendBlockArgs& args, float* p) {
  const size_t begin = args.begin / kKvTile * kKvTile;
  const size_t end = (args.end + kKvTile - 1) / kKvTile * kKvTile;
  for (size_t n = begin; n < args.begin; ++n) p[n] = -__builtin_inff();
  for (size_t n = args.end; n < end; ++n) p[n] = -__builtin_inff();
}

template <int H, KvType kType>
void Scores(const AttendBlockArgs& args, size_t head, Weights* weights) {
  const size_t dim = args.head_dim;
  const size_t tile_bytes = kKvTile * KvCodeBytes(kType, dim);
  // Bytes of a position within the rows of 16 of a tile.
  constexpr size_t kPositionBytes = kType == KvType::kF16 ? 2 : 4;
  for (size_t n = args.begin / kKvTile * kKvTile; n < args.end; n += 8) {
    const size_t tile = n / kKvTile, first = n % kKvTile;
    const std::byte* keys = args.k + tile * tile_bytes + first * kPositionBytes;
    Scores8<H> s;
    if constexpr (KvIsQuantized(kType)) {
      const uint16_t* scales = args.k_scales + tile * kKvTile * (dim / KvGroup(dim)) + first;
      CodeScores<H, kType>(args, head, keys, scales, &s);
    } else {
      FloatScores<H, kType>(args, head, keys, &s);
    }
#pragma GCC unroll 7
    for (int h = 0; h < H; ++h) {
      vst1q_f32(weights->p[h] + n, s.quad[h][0]);
      vst1q_f32(weights->p[h] + n + 4, s.quad[h][1]);
    }
  }
  for (int h = 0; h < H; ++h) HideInvisible(args, weights->p[h]);
}

// Scores become exp(score - max).
void Softmax(const AttendBlockArgs& args, float* p, float* max_out, float* sum_out) {
  const size_t begin = args.begin / kKvTile * kKvTile;
  const float32x4_t lowest = vdupq_n_f32(-__builtin_inff());
  float32x4_t max[4] = {lowest, lowest, lowest, lowest};
  for (size_t n = begin; n < args.end; n += kKvTile) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) max[i] = vmaxnmq_f32(max[i], vld1q_f32(p + n + 4 * i));
  }
  *max_out = vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(max[0], max[1]), vmaxnmq_f32(max[2], max[3])));
  const float32x4_t all = vdupq_n_f32(*max_out);
  Lanes sum = ZeroLanes();
  for (size_t n = begin; n < args.end; n += kKvTile) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const float32x4_t e = Exp4(vsubq_f32(vld1q_f32(p + n + 4 * i), all));
      vst1q_f32(p + n + 4 * i, e);
      sum.quad[i] = vaddq_f32(sum.quad[i], e);
    }
  }
  *sum_out = ReduceLanes(sum);
}

// Eight values of a position from value `d` on, a multiple of 8.
template <KvType kType>
inline void LoadValues(const std::byte* row, size_t d, float32x4_t (&v)[2]) {
  if constexpr (kType == KvType::kF32) {
    v[0] = vld1q_f32(reinterpret_cast<const float*>(row) + d);
    v[1] = vld1q_f32(reinterpret_cast<const float*>(row) + d + 4);
  } else if constexpr (kType == KvType::kF16) {
    const uint16x8_t halves = LoadU16x8(row + 2 * d);
    v[0] = LowHalves(halves);
    v[1] = HighHalves(halves);
  } else {
    int8x8_t codes;
    if constexpr (kType == KvType::kI8) {
      codes = vld1_s8(reinterpret_cast<const int8_t*>(row + d));
    } else {
      // Values of the lower half of a group of 64 lie in low nibbles, the others in high ones.
      const size_t in_group = d % 64;
      const uint8x8_t bytes =
          vld1_u8(reinterpret_cast<const uint8_t*>(row + d / 64 * 32 + in_group % 32));
      const uint8x8_t nibbles = in_group < 32 ? vand_u8(bytes, vdup_n_u8(15)) : vshr_n_u8(bytes, 4);
      codes = vsub_s8(vreinterpret_s8_u8(nibbles), vdup_n_s8(8));
    }
    const int16x8_t wide = vmovl_s8(codes);
    v[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
    v[1] = vcvtq_f32_s32(vmovl_high_s16(wide));
  }
}

// out[h][d, d + 8) of H heads.
template <int H, KvType kType>
void Values(const AttendBlockArgs& args, const float (&w)[kMaxHeads][kAttentionBlock], size_t d,
            float* out) {
  const size_t row_bytes = KvCodeBytes(kType, args.head_dim);
  float32x4_t o[H][2];
#pragma GCC unroll 7
  for (int h = 0; h < H; ++h) o[h][0] = o[h][1] = vdupq_n_f32(0.0f);
  const std::byte* row = args.v + args.begin * row_bytes;
  for (size_t n = args.begin; n < args.end; ++n, row += row_bytes) {
    float32x4_t v[2];
    LoadValues<kType>(row, d, v);
#pragma GCC unroll 7
    for (int h = 0; h < H; ++h) {
      const float weight = w[h][n];
      o[h][0] = vfmaq_n_f32(o[h][0], v[0], weight);
      o[h][1] = vfmaq_n_f32(o[h][1], v[1], weight);
    }
  }
#pragma GCC unroll 7
  for (int h = 0; h < H; ++h) {
    vst1q_f32(out + static_cast<size_t>(h) * args.head_dim + d, o[h][0]);
    vst1q_f32(out + static_cast<size_t>(h) * args.head_dim + d + 4, o[h][1]);
  }
}

// scaled = p · v_scale of one group.
void ScaleWeights(const AttendBlockArgs& args, int heads, size_t group, size_t groups,
                  Weights* weights) {
  for (size_t n = args.begin / kKvTile * kKvTile; n < args.end; n += 8) {
    const uint16_t* scales = args.v_scales + (n / kKvTile * groups + group) * kKvTile + n % kKvTile;
    const uint16x8_t halves = LoadU16x8(scales);
    const float32x4_t low = LowHalves(halves), high = HighHalves(halves);
    for (int h = 0; h < heads; ++h) {
      const float* p = weights->p[h] + n;
      vst1q_f32(weights->scaled[h] + n, vmulq_f32(vld1q_f32(p), low));
      vst1q_f32(weights->scaled[h] + n + 4, vmulq_f32(vld1q_f32(p + 4), high));
    }
  }
}

template <int H, KvType kType>
void AllValues(const AttendBlockArgs& args, Weights* weights, float* out) {
  const size_t dim = args.head_dim;
  const size_t group = KvIsQuantized(kType) ? KvGroup(dim) : dim;
  for (size_t begin = 0; begin < dim; begin += group) {
    if (KvIsQuantized(kType)) ScaleWeights(args, H, begin / group, dim / group, weights);
    const auto& w = KvIsQuantized(kType) ? weights->scaled : weights->p;
    for (size_t d = begin; d < begin + group; d += 8) Values<H, kType>(args, w, d, out);
  }
}

template <int H>
void AttendHeads(const AttendBlockArgs& args, size_t head, const AttentionState& state) {
  Weights weights;
  switch (args.k_type) {
    case KvType::kF32:
      Scores<H, KvType::kF32>(args, head, &weights);
      break;
    case KvType::kF16:
      Scores<H, KvType::kF16>(args, head, &weights);
      break;
    case KvType::kI8:
      Scores<H, KvType::kI8>(args, head, &weights);
      break;
    case KvType::kI4:
      Scores<H, KvType::kI4>(args, head, &weights);
      break;
  }
  for (int h = 0; h < H; ++h)
    Softmax(args, weights.p[h], state.max + head + h, state.sum + head + h);
  float* out = state.out + head * args.head_dim;
  switch (args.v_type) {
    case KvType::kF32:
      return AllValues<H, KvType::kF32>(args, &weights, out);
    case KvType::kF16:
      return AllValues<H, KvType::kF16>(args, &weights, out);
    case KvType::kI8:
      return AllValues<H, KvType::kI8>(args, &weights, out);
    case KvType::kI4:
      return AllValues<H, KvType::kI4>(args, &weights, out);
  }
}

// Butterflies at distances 1 and 2 of eight values: pairs of lanes apart, then together again.
inline void RotateQuads(float32x4_t* a, float32x4_t* b) {
  float32x4_t even = vuzp1q_f32(*a, *b), odd = vuzp2q_f32(*a, *b);
  float32x4_t sum = vaddq_f32(even, odd), difference = vsubq_f32(even, odd);
  const float64x2_t low = vreinterpretq_f64_f32(vzip1q_f32(sum, difference));
  const float64x2_t high = vreinterpretq_f64_f32(vzip2q_f32(sum, difference));
  even = vreinterpretq_f32_f64(vzip1q_f64(low, high));
  odd = vreinterpretq_f32_f64(vzip2q_f64(low, high));
  sum = vaddq_f32(even, odd);
  difference = vsubq_f32(even, odd);
  *a = vreinterpretq_f32_f64(
      vzip1q_f64(vreinterpretq_f64_f32(sum), vreinterpretq_f64_f32(difference)));
  *b = vreinterpretq_f32_f64(
      vzip2q_f64(vreinterpretq_f64_f32(sum), vreinterpretq_f64_f32(difference)));
}

// One group of 4·kQuads values.
template <int kQuads>
void RotateGroup(float* x, float factor) {
  float32x4_t v[kQuads];
#pragma GCC unroll 16
  for (int i = 0; i < kQuads; ++i) v[i] = vld1q_f32(x + 4 * i);
#pragma GCC unroll 8
  for (int i = 0; i < kQuads; i += 2) RotateQuads(&v[i], &v[i + 1]);
#pragma GCC unroll 4
  for (int distance = 1; distance < kQuads; distance *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < kQuads; ++i) {
      if ((i & distance) != 0) continue;
      const float32x4_t a = v[i], b = v[i + distance];
      v[i] = vaddq_f32(a, b);
      v[i + distance] = vsubq_f32(a, b);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQuads; ++i) vst1q_f32(x + 4 * i, vmulq_n_f32(v[i], factor));
}

}  // namespace

void neon::AttendBlock(const AttendBlockArgs& args, const AttentionState& state) {
  // Sizes that no real model has take the slow way.
  if (args.head_dim % (args.v_type == KvType::kI4 ? 64 : 16) != 0)
    return reference::AttendBlock(args, state);
  size_t head = 0;
  for (; head + kMaxHeads <= args.heads; head += kMaxHeads)
    AttendHeads<kMaxHeads>(args, head, state);
  switch (args.heads - head) {
    case 6:
      return AttendHeads<6>(args, head, state);
    case 5:
      return AttendHeads<5>(args, head, state);
    case 4:
      return AttendHeads<4>(args, head, state);
    case 3:
      return AttendHeads<3>(args, head, state);
    case 2:
      return AttendHeads<2>(args, head, state);
    case 1:
      return AttendHeads<1>(args, head, state);
    default:
      return;
  }
}

void neon::MergeAttention(const AttentionState& block, size_t heads, size_t head_dim,
                          const AttentionState& into) {
  for (size_t h = 0; h < heads; ++h) {
    const float max = block.max[h] > into.max[h] ? block.max[h] : into.max[h];
    const float maxima[4] = {into.max[h], block.max[h], max, max};
    const float32x4_t factors = Exp4(vsubq_f32(vld1q_f32(maxima), vdupq_n_f32(max)));
    const float c1 = vgetq_lane_f32(factors, 0), c2 = vgetq_lane_f32(factors, 1);
    const float* from = block.out + h * head_dim;
    float* to = into.out + h * head_dim;
    for (size_t d = 0; d < head_dim; d += 4) {
      const size_t count = head_dim - d;
      const float32x4_t added = vmulq_n_f32(LoadFirst(from + d, count), c2);
      StoreFirst(to + d, vfmaq_n_f32(added, LoadFirst(to + d, count), c1), count);
    }
    into.sum[h] = __builtin_fmaf(into.sum[h], c1, block.sum[h] * c2);
    into.max[h] = max;
  }
}

void neon::RotateGroups(float* x, size_t count, size_t group) {
  const float factor = 1.0f / vget_lane_f32(vsqrt_f32(vdup_n_f32(static_cast<float>(group))), 0);
  if (group == 64) {
    for (size_t i = 0; i < count; i += group) RotateGroup<16>(x + i, factor);
  } else if (group == 32) {
    for (size_t i = 0; i < count; i += group) RotateGroup<8>(x + i, factor);
  } else {
    reference::RotateGroups(x, count, group);
  }
}

}  // namespace pocketlm
