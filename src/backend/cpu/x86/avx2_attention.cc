// Softmax attention of one row in AVX2. Up to four query heads share each load of a key or value.

#include "backend/cpu/x86/avx2_common.h"

namespace pocketlm {
namespace {

constexpr int kMaxHeads = 4;

template <bool kHalf>
inline size_t ValueBytes() {
  return kHalf ? 2 : 4;
}

template <bool kHalf>
inline __m256 Load8(const std::byte* p) {
  if constexpr (kHalf) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  } else {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
}

template <bool kHalf>
inline float LoadOne(const std::byte* p) {
  if constexpr (kHalf) {
    uint16_t half;
    __builtin_memcpy(&half, p, sizeof(half));
    return _cvtsh_ss(half);
  } else {
    float value;
    __builtin_memcpy(&value, p, sizeof(value));
    return value;
  }
}

// What one block of positions contributes for up to kMaxHeads heads.
struct Block {
  alignas(32) float p[kMaxHeads][kAttentionBlock];  // scores, then exp(score - max)
  float max[kMaxHeads];
  float sum[kMaxHeads];
};

// p[h][n] = dot(q[h], k[n]) * scale for `count` keys.
template <int H, bool kHalf>
void Scores(const float* q, size_t dim, const std::byte* k, size_t count, float scale,
            Block* block) {
  for (size_t n = 0; n < count; ++n, k += dim * ValueBytes<kHalf>()) {
    Lanes lanes[H];
    for (int h = 0; h < H; ++h) lanes[h] = ZeroLanes();
    size_t i = 0;
    for (; i + kLanes <= dim; i += kLanes) {
      const __m256 low = Load8<kHalf>(k + i * ValueBytes<kHalf>());
      const __m256 high = Load8<kHalf>(k + (i + 8) * ValueBytes<kHalf>());
      for (int h = 0; h < H; ++h)
        FusedAdd(low, high, q + static_cast<size_t>(h) * dim + i, &lanes[h]);
    }
    if (i < dim) {
      float rest[kLanes];
      for (size_t j = 0; i + j < dim; ++j)
        rest[j] = LoadOne<kHalf>(k + (i + j) * ValueBytes<kHalf>());
      for (int h = 0; h < H; ++h)
        FusedAddTail(rest, q + static_cast<size_t>(h) * dim + i, dim - i, &lanes[h]);
    }
    for (int h = 0; h < H; ++h) block->p[h][n] = ReduceLanes(lanes[h]) * scale;
  }
}

// As SoftmaxBlock of the reference. Rounds `count` up to 16 with -inf scores, which become zeros.
void Softmax(float* p, size_t count, float* max_out, float* sum_out) {
  const size_t padded = (count + kLanes - 1) / kLanes * kLanes;
  for (size_t n = count; n < padded; ++n) p[n] = -__builtin_inff();
  __m256 max8 = _mm256_load_ps(p);
  for (size_t n = 8; n < padded; n += 8) max8 = _mm256_max_ps(_mm256_load_ps(p + n), max8);
  __m128 max4 = _mm_max_ps(_mm256_castps256_ps128(max8), _mm256_extractf128_ps(max8, 1));
  max4 = _mm_max_ps(max4, _mm_movehl_ps(max4, max4));
  max4 = _mm_max_ps(max4, _mm_movehdup_ps(max4));
  const float max = _mm_cvtss_f32(max4);
  const __m256 broadcast = _mm256_set1_ps(max);
  Lanes lanes = ZeroLanes();
  for (size_t n = 0; n < padded; n += kLanes) {
    const __m256 low = Exp8(_mm256_sub_ps(_mm256_load_ps(p + n), broadcast));
    const __m256 high = Exp8(_mm256_sub_ps(_mm256_load_ps(p + n + 8), broadcast));
    _mm256_store_ps(p + n, low);
    _mm256_store_ps(p + n + 8, high);
    lanes.low = _mm256_add_ps(lanes.low, low);
    lanes.high = _mm256_add_ps(lanes.high, high);
  }
  *max_out = max;
  *sum_out = ReduceLanes(lanes);
}

// The running softmax of a head and how the next block enters it.
struct Running {
  bool first = true;
  float max[kMaxHeads];
  float sum[kMaxHeads];
  float old_factor[kMaxHeads];
  float new_factor[kMaxHeads];
};

void Merge(const Block& block, int heads, Running* run) {
  for (int h = 0; h < heads; ++h) {
    const float max = run->first || block.max[h] > run->max[h] ? block.max[h] : run->max[h];
    if (!run->first) {
      const __m256 factors =
          Exp8(_mm256_setr_ps(run->max[h] - max, block.max[h] - max, 0, 0, 0, 0, 0, 0));
      const __m128 low = _mm256_castps256_ps128(factors);
      run->old_factor[h] = _mm_cvtss_f32(low);
      run->new_factor[h] = _mm_cvtss_f32(_mm_movehdup_ps(low));
      const __m128 scaled = _mm_set_ss(block.sum[h] * run->new_factor[h]);
      run->sum[h] = _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(run->sum[h]), low, scaled));
    } else {
      run->sum[h] = block.sum[h];
    }
    run->max[h] = max;
  }
}

inline __m256 MergeOutput(__m256 o, const float* out, const Running& run, int h) {
  if (run.first) return o;
  const __m256 added = _mm256_mul_ps(o, _mm256_set1_ps(run.new_factor[h]));
  return _mm256_fmadd_ps(_mm256_loadu_ps(out), _mm256_set1_ps(run.old_factor[h]), added);
}

// out[h][d, d + 8·D) of H heads takes in the block.
template <int H, int D, bool kHalf>
void Values(const Block& block, const std::byte* v, size_t dim, size_t count, size_t d,
            const Running& run, float* out) {
  __m256 o[H][D];
  for (int h = 0; h < H; ++h) {
    for (int j = 0; j < D; ++j) o[h][j] = _mm256_setzero_ps();
  }
  const std::byte* p = v + d * ValueBytes<kHalf>();
  for (size_t n = 0; n < count; ++n, p += dim * ValueBytes<kHalf>()) {
    for (int j = 0; j < D; ++j) {
      const __m256 value = Load8<kHalf>(p + 8 * static_cast<size_t>(j) * ValueBytes<kHalf>());
      for (int h = 0; h < H; ++h)
        o[h][j] = _mm256_fmadd_ps(_mm256_broadcast_ss(&block.p[h][n]), value, o[h][j]);
    }
  }
  for (int h = 0; h < H; ++h) {
    for (int j = 0; j < D; ++j) {
      float* to = out + static_cast<size_t>(h) * dim + d + 8 * static_cast<size_t>(j);
      _mm256_storeu_ps(to, MergeOutput(o[h][j], to, run, h));
    }
  }
}

// The last dim mod 8 outputs.
template <bool kHalf>
void ValueTail(const Block& block, const std::byte* v, size_t dim, size_t count, int heads,
               size_t d, const Running& run, float* out) {
  for (; d < dim; ++d) {
    for (int h = 0; h < heads; ++h) {
      __m128 o = _mm_setzero_ps();
      for (size_t n = 0; n < count; ++n) {
        const __m128 value = _mm_set_ss(LoadOne<kHalf>(v + (n * dim + d) * ValueBytes<kHalf>()));
        o = _mm_fmadd_ss(_mm_set_ss(block.p[h][n]), value, o);
      }
      float* to = out + static_cast<size_t>(h) * dim + d;
      if (!run.first) {
        o = _mm_fmadd_ss(_mm_set_ss(*to), _mm_set_ss(run.old_factor[h]),
                         _mm_mul_ss(o, _mm_set_ss(run.new_factor[h])));
      }
      *to = _mm_cvtss_f32(o);
    }
  }
}

template <int H, bool kHalf>
void AllValues(const Block& block, const std::byte* v, size_t dim, size_t count, const Running& run,
               float* out) {
  constexpr int kWide = 8 / H < 2 ? 2 : 8 / H;  // about 8 chains hide the latency
  size_t d = 0;
  for (; d + 8 * kWide <= dim; d += 8 * kWide)
    Values<H, kWide, kHalf>(block, v, dim, count, d, run, out);
  for (; d + 8 <= dim; d += 8) Values<H, 1, kHalf>(block, v, dim, count, d, run, out);
  ValueTail<kHalf>(block, v, dim, count, H, d, run, out);
}

template <int H, bool kKeyHalf, bool kValueHalf>
void AttendHeads(const AttendArgs& args, const float* q, float* out) {
  Running run;
  Block block;
  const size_t dim = args.head_dim;
  for (size_t begin = args.begin; begin < args.end;) {
    const size_t end = Min(args.end, (begin / kAttentionBlock + 1) * kAttentionBlock);
    const size_t count = end - begin;
    Scores<H, kKeyHalf>(q, dim, args.k + begin * dim * ValueBytes<kKeyHalf>(), count, args.scale,
                        &block);
    for (int h = 0; h < H; ++h) Softmax(block.p[h], count, &block.max[h], &block.sum[h]);
    Merge(block, H, &run);
    AllValues<H, kValueHalf>(block, args.v + begin * dim * ValueBytes<kValueHalf>(), dim, count,
                             run, out);
    run.first = false;
    begin = end;
  }
  for (size_t h = 0; h < H; ++h) {
    for (size_t d = 0; d < dim; ++d) out[h * dim + d] /= run.sum[h];
  }
}

template <bool kKeyHalf, bool kValueHalf>
void AttendAll(const AttendArgs& args) {
  size_t h = 0;
  const auto at = [&](auto* p) { return p + h * args.head_dim; };
  for (; h + 4 <= args.heads; h += 4)
    AttendHeads<4, kKeyHalf, kValueHalf>(args, at(args.q), at(args.out));
  switch (args.heads - h) {
    case 3:
      return AttendHeads<3, kKeyHalf, kValueHalf>(args, at(args.q), at(args.out));
    case 2:
      return AttendHeads<2, kKeyHalf, kValueHalf>(args, at(args.q), at(args.out));
    case 1:
      return AttendHeads<1, kKeyHalf, kValueHalf>(args, at(args.q), at(args.out));
    default:
      return;
  }
}

}  // namespace

void avx2::Attend(const AttendArgs& args) {
  if (args.k_is_half)
    return args.v_is_half ? AttendAll<true, true>(args) : AttendAll<true, false>(args);
  return args.v_is_half ? AttendAll<false, true>(args) : AttendAll<false, false>(args);
}

}  // namespace pocketlm
