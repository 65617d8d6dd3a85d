// Softmax attention over one block of the cache in AVX-512: up to seven query heads share each load of a key or
// value.

#include "backend/cpu/reference/attention.h"
#include "backend/cpu/x86/avx512_common.h"

namespace pocketlm {
namespace {

constexpr int kMaxHeads = 7;

// Scores of a block, then exp(score - max), then what multiplies the values.
struct Weights {
  alignas(64) float p[kMaxHeads][kAttentionBlock];
  alignas(64) float scaled[kMaxHeads][kAttentionBlock];
};

inline __m512i LowNibbles(__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
inline __m512i HighNibbles(__m512i x) { return LowNibbles(_mm512_srli_epi16(x, 4)); }

inline __m512i Broadcast4(const int8_t* x) {
  int value;
  __builtin_memcpy(&value, x, 4);
  return _mm512_set1_epi32(value);
}

// Asks for `bytes` from p on, which the next phase reads: attention alternates between keys and values, and the
// processor's own prefetching follows only the stream in use.
inline void Prefetch(const std::byte* p, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T1);
}

// Scores of 16 positions against float keys.
template <int H, KvType kType>
void FloatScores(const AttendBlockArgs& args, size_t head, const std::byte* tile, __m512 (&s)[H]) {
  const float* q = args.q + head * args.head_dim;
  for (int h = 0; h < H; ++h) s[h] = _mm512_setzero_ps();
  for (size_t d = 0; d < args.head_dim; ++d) {
    const __m512 k =
        kType == KvType::kF16 ? LoadHalves(tile + 32 * d) : _mm512_load_ps(tile + 64 * d);
#pragma GCC unroll 7
    for (int h = 0; h < H; ++h)
      s[h] = _mm512_fmadd_ps(_mm512_set1_ps(q[h * args.head_dim + d]), k, s[h]);
  }
}

// Scores of 16 positions against keys of codes.
template <int H, KvType kType>
void CodeScores(const AttendBlockArgs& args, size_t head, const std::byte* tile,
                const uint16_t* tile_scales, __m512 (&s)[H]) {
  constexpr int kBias = kType == KvType::kI8 ? 128 : 8;
  const size_t dim = args.head_dim, group = KvGroup(dim), groups = dim / group;
  for (int h = 0; h < H; ++h) s[h] = _mm512_setzero_ps();
  for (size_t g = 0; g < groups; ++g) {
    const int8_t* q = args.q_codes + head * dim + g * group;
    const size_t at = head * groups + g;
    __m512i dot[H];
#pragma GCC unroll 7
    for (int h = 0; h < H; ++h)
      dot[h] = _mm512_set1_epi32(-kBias * args.q_code_sums[at + h * groups]);
    for (size_t d = 0; d < group; d += kType == KvType::kI8 ? 4 : 8) {
      const __m512i k = _mm512_load_si512(tile);
      tile += 64;
      if constexpr (kType == KvType::kI8) {
#pragma GCC unroll 7
        for (int h = 0; h < H; ++h)
          dot[h] = _mm512_dpbusd_epi32(dot[h], k, Broadcast4(q + h * dim + d));
      } else {
        const __m512i low = LowNibbles(k), high = HighNibbles(k);
#pragma GCC unroll 7
        for (int h = 0; h < H; ++h) {
          dot[h] = _mm512_dpbusd_epi32(dot[h], low, Broadcast4(q + h * dim + d));
          dot[h] = _mm512_dpbusd_epi32(dot[h], high, Broadcast4(q + h * dim + d + 4));
        }
      }
    }
    const __m512 scale = LoadHalves(tile_scales + 16 * g);
#pragma GCC unroll 7
    for (int h = 0; h < H; ++h) {
      const __m512 value =
          _mm512_mul_ps(_mm512_cvtepi32_ps(dot[h]), _mm512_set1_ps(args.q_scales[at + h * groups]));
      s[h] = _mm512_fmadd_ps(value, scale, s[h]);
    }
  }
}

// The lanes of tile `tile` that are visible.
inline __mmask16 VisibleLanes(const AttendBlockArgs& args, size_t tile) {
  const size_t first = tile * kKvTile;
  const __mmask16 before = args.begin > first ? FirstLanes(args.begin - first) : __mmask16{0};
  return FirstLanes(args.end - first) & static_cast<__mmask16>(~before);
}

template <int H, KvType kType>
void Scores(const AttendBlockArgs& args, size_t head, Weights* weights) {
  const size_t dim = args.head_dim;
  const size_t tile_bytes = kKvTile * KvCodeBytes(kType, dim);
  const __m512 hidden = _mm512_set1_ps(-__builtin_inff());
  const size_t value_bytes = kKvTile * KvCodeBytes(args.v_type, dim);
  for (size_t tile = args.begin / kKvTile; tile * kKvTile < args.end; ++tile) {
    const std::byte* codes = args.k + tile * tile_bytes;
    if (head == 0) Prefetch(args.v + tile * value_bytes, value_bytes);
    __m512 s[H];
    if constexpr (KvIsQuantized(kType)) {
      CodeScores<H, kType>(args, head, codes, args.k_scales + tile * 16 * (dim / KvGroup(dim)), s);
    } else {
      FloatScores<H, kType>(args, head, codes, s);
    }
    const __mmask16 lanes = VisibleLanes(args, tile);
#pragma GCC unroll 7
    for (int h = 0; h < H; ++h)
      _mm512_store_ps(weights->p[h] + tile * kKvTile, _mm512_mask_mov_ps(hidden, lanes, s[h]));
  }
}

// Scores become exp(score - max).
void Softmax(const AttendBlockArgs& args, float* p, float* max_out, float* sum_out) {
  const size_t begin = args.begin / kKvTile * kKvTile;
  __m512 max = _mm512_set1_ps(-__builtin_inff());
  for (size_t n = begin; n < args.end; n += kKvTile)
    max = _mm512_max_ps(_mm512_load_ps(p + n), max);
  *max_out = _mm512_reduce_max_ps(max);
  max = _mm512_set1_ps(*max_out);
  __m512 sum = _mm512_setzero_ps();
  for (size_t n = begin; n < args.end; n += kKvTile) {
    const __m512 e = Exp16(_mm512_sub_ps(_mm512_load_ps(p + n), max));
    _mm512_store_ps(p + n, e);
    sum = _mm512_add_ps(sum, e);
  }
  *sum_out = ReduceLanes(sum);
}

// 16 values of a position from value `d` on.
template <KvType kType>
inline __m512 LoadValues(const std::byte* row, size_t d) {
  if constexpr (kType == KvType::kF32) return _mm512_loadu_ps(row + 4 * d);
  if constexpr (kType == KvType::kF16) return LoadHalves(row + 2 * d);
  if constexpr (kType == KvType::kI8) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + d));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
  }
  // Values of the lower half of a group of 64 lie in low nibbles, the others in high ones.
  const size_t in_group = d % 64;
  const __m128i bytes =
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + d / 64 * 32 + in_group % 32));
  const __m128i nibbles =
      _mm_and_si128(in_group < 32 ? bytes : _mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_sub_epi8(nibbles, _mm_set1_epi8(8))));
}

// out[h][d, d + 16·D) of H heads.
template <int H, int D, KvType kType>
void Values(const AttendBlockArgs& args, const float (&w)[kMaxHeads][kAttentionBlock], size_t d,
            float* out) {
  const size_t row_bytes = KvCodeBytes(kType, args.head_dim);
  __m512 o[H][D];
#pragma GCC unroll 7
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int j = 0; j < D; ++j) o[h][j] = _mm512_setzero_ps();
  }
  const size_t key_bytes = KvCodeBytes(args.k_type, args.head_dim);
  const std::byte* next_keys = args.k + kAttentionBlock * key_bytes;
  const std::byte* row = args.v + args.begin * row_bytes;
  for (size_t n = args.begin; n < args.end; ++n, row += row_bytes) {
    if (d == 0) Prefetch(next_keys + n * key_bytes, key_bytes);
    __m512 v[D];
#pragma GCC unroll 4
    for (int j = 0; j < D; ++j) v[j] = LoadValues<kType>(row, d + 16 * static_cast<size_t>(j));
#pragma GCC unroll 7
    for (int h = 0; h < H; ++h) {
      const __m512 weight = _mm512_set1_ps(w[h][n]);
#pragma GCC unroll 4
      for (int j = 0; j < D; ++j) o[h][j] = _mm512_fmadd_ps(weight, v[j], o[h][j]);
    }
  }
#pragma GCC unroll 7
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int j = 0; j < D; ++j)
      _mm512_storeu_ps(out + static_cast<size_t>(h) * args.head_dim + d + 16 * j, o[h][j]);
  }
}

// scaled = p · v_scale of one group.
void ScaleWeights(const AttendBlockArgs& args, int heads, size_t group, size_t groups,
                  Weights* weights) {
  for (size_t tile = args.begin / kKvTile; tile * kKvTile < args.end; ++tile) {
    const __m512 scale = LoadHalves(args.v_scales + (tile * groups + group) * kKvTile);
    for (int h = 0; h < heads; ++h) {
      const __m512 p = _mm512_load_ps(weights->p[h] + tile * kKvTile);
      _mm512_store_ps(weights->scaled[h] + tile * kKvTile, _mm512_mul_ps(p, scale));
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
    size_t d = begin;
    for (; d + 32 <= begin + group; d += 32) Values<H, 2, kType>(args, w, d, out);
    for (; d + 16 <= begin + group; d += 16) Values<H, 1, kType>(args, w, d, out);
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

}  // namespace

void avx512::AttendBlock(const AttendBlockArgs& args, const AttentionState& state) {
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

void avx512::MergeAttention(const AttentionState& block, size_t heads, size_t head_dim,
                            const AttentionState& into) {
  for (size_t h = 0; h < heads; ++h) {
    const float max = block.max[h] > into.max[h] ? block.max[h] : into.max[h];
    const __m512 factors = Exp16(_mm512_sub_ps(
        _mm512_mask_mov_ps(_mm512_set1_ps(into.max[h]), 2, _mm512_set1_ps(block.max[h])),
        _mm512_set1_ps(max)));
    const __m128 low = _mm512_castps512_ps128(factors);
    const __m512 c1 = _mm512_broadcastss_ps(low);
    const __m512 c2 = _mm512_broadcastss_ps(_mm_movehdup_ps(low));
    for (size_t d = 0; d < head_dim; d += 16) {
      const __mmask16 lanes = FirstLanes(head_dim - d);
      float* to = into.out + h * head_dim + d;
      const __m512 added =
          _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, block.out + h * head_dim + d), c2);
      _mm512_mask_storeu_ps(to, lanes,
                            _mm512_fmadd_ps(_mm512_maskz_loadu_ps(lanes, to), c1, added));
    }
    const __m128 sum = _mm_fmadd_ss(_mm_set_ss(into.sum[h]), low,
                                    _mm_mul_ss(_mm_set_ss(block.sum[h]), _mm_movehdup_ps(low)));
    into.sum[h] = _mm_cvtss_f32(sum);
    into.max[h] = max;
  }
}

void avx512::RotateGroups(float* x, size_t count, size_t group) {
  if (group != 64) return reference::RotateGroups(x, count, group);
  const __m512 factor = _mm512_set1_ps(0.125f);
  // Butterflies at distance 1, 2, 4, 8 swap lanes within a register; a + b goes to the lower lane, a - b, computed
  // as partner - own, to the upper one.
  for (size_t begin = 0; begin < count; begin += 64, x += 64) {
    __m512 v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm512_loadu_ps(x + 16 * i);
      __m512 other = _mm512_permute_ps(v[i], 0xB1);
      v[i] = _mm512_mask_sub_ps(_mm512_add_ps(v[i], other), 0xAAAA, other, v[i]);
      other = _mm512_permute_ps(v[i], 0x4E);
      v[i] = _mm512_mask_sub_ps(_mm512_add_ps(v[i], other), 0xCCCC, other, v[i]);
      other = _mm512_shuffle_f32x4(v[i], v[i], 0xB1);
      v[i] = _mm512_mask_sub_ps(_mm512_add_ps(v[i], other), 0xF0F0, other, v[i]);
      other = _mm512_shuffle_f32x4(v[i], v[i], 0x4E);
      v[i] = _mm512_mask_sub_ps(_mm512_add_ps(v[i], other), 0xFF00, other, v[i]);
    }
    const __m512 s0 = _mm512_add_ps(v[0], v[1]), d0 = _mm512_sub_ps(v[0], v[1]);
    const __m512 s1 = _mm512_add_ps(v[2], v[3]), d1 = _mm512_sub_ps(v[2], v[3]);
    _mm512_storeu_ps(x, _mm512_mul_ps(_mm512_add_ps(s0, s1), factor));
    _mm512_storeu_ps(x + 16, _mm512_mul_ps(_mm512_add_ps(d0, d1), factor));
    _mm512_storeu_ps(x + 32, _mm512_mul_ps(_mm512_sub_ps(s0, s1), factor));
    _mm512_storeu_ps(x + 48, _mm512_mul_ps(_mm512_sub_ps(d0, d1), factor));
  }
}

}  // namespace pocketlm
