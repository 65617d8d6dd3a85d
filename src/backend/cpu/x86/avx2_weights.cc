// Stored weights in AVX2: rows to floats, and the dot products of decoding, which never write them
// to memory. Block layouts are described in reference/dequantize.cc.

#include "backend/cpu/x86/avx2_common.h"

namespace pocketlm {
namespace {

// A decoder turns one block of kValues into groups of 32 floats:
//   Begin(block)           reads what the whole block shares
//   Decode(state, g, w)    writes group g, four vectors of 8 values
// kValues / 32 groups per block, kBytes per block. Float types have "blocks" of 32 values and a
// tail.

inline uint16_t LoadU16(const uint8_t* p) {
  uint16_t value;
  __builtin_memcpy(&value, p, sizeof(value));
  return value;
}
inline uint32_t LoadU32(const uint8_t* p) {
  uint32_t value;
  __builtin_memcpy(&value, p, sizeof(value));
  return value;
}

// The half at p in all lanes.
inline __m256 BroadcastHalf(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(LoadU16(p))));
}
// The two halves at p, each in all lanes.
inline void BroadcastHalves(const uint8_t* p, __m256* first, __m256* second) {
  const __m256 both = _mm256_cvtph_ps(_mm_set1_epi32(static_cast<int>(LoadU32(p))));
  *first = _mm256_moveldup_ps(both);
  *second = _mm256_movehdup_ps(both);
}

inline __m128i Load16Bytes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline __m256i Load32Bytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline __m128i Load8Bytes(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}

// 16 packed bytes as 32 codes: low nibbles, then high nibbles.
inline __m256i NibblesToBytes(const uint8_t* p) {
  const __m128i packed = Load16Bytes(p);
  const __m256i both =
      _mm256_inserti128_si256(_mm256_castsi128_si256(packed), _mm_srli_epi16(packed, 4), 1);
  return _mm256_and_si256(both, _mm256_set1_epi8(0xF));
}

// 0x10 in byte i where bit i is set.
inline __m256i FifthBits(uint32_t bits) {
  const __m256i which =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), which);
  const __m256i mask = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask);
  return _mm256_and_si256(set, _mm256_set1_epi8(0x10));
}

inline void SignedBytesToFloats(__m256i bytes, __m256 w[4]) {
  const __m128i low = _mm256_castsi256_si128(bytes);
  const __m128i high = _mm256_extracti128_si256(bytes, 1);
  w[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low));
  w[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(low, low)));
  w[2] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high));
  w[3] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(high, high)));
}

// 16 packed bytes as four vectors of 32-bit codes.
inline void NibblesToInts(const uint8_t* p, __m256i q[4]) {
  const __m256i packed = _mm256_broadcastsi128_si256(Load16Bytes(p));
  // Byte i to the low byte of lane i; -1 gives zero bytes.
  const __m256i first = _mm256_setr_epi32(~0xFF | 0, ~0xFF | 1, ~0xFF | 2, ~0xFF | 3, ~0xFF | 4,
                                          ~0xFF | 5, ~0xFF | 6, ~0xFF | 7);
  const __m256i second = _mm256_add_epi32(first, _mm256_set1_epi32(8));
  const __m256i a = _mm256_shuffle_epi8(packed, first);
  const __m256i b = _mm256_shuffle_epi8(packed, second);
  const __m256i mask = _mm256_set1_epi32(0xF);
  q[0] = _mm256_and_si256(a, mask);
  q[1] = _mm256_and_si256(b, mask);
  q[2] = _mm256_srli_epi32(a, 4);
  q[3] = _mm256_srli_epi32(b, 4);
}

inline void Multiply(__m256 d, __m256 w[4]) {
  for (int i = 0; i < 4; ++i) w[i] = _mm256_mul_ps(w[i], d);
}
// w·d + m, exact until the addition, so the fused form gives the bits of the separate one.
inline void MultiplyAdd(__m256 d, __m256 m, __m256 w[4]) {
  for (int i = 0; i < 4; ++i) w[i] = _mm256_fmadd_ps(w[i], d, m);
}

// What decoders of one kind of block share: sizes, and what is read once for each block.

// Values as they are, `value_bytes` each.
template <size_t value_bytes>
struct PlainBlock {
  static constexpr size_t kValues = 32, kBytes = 32 * value_bytes, kValueBytes = value_bytes;
  struct State {
    const uint8_t* block;
  };
  static State Begin(const uint8_t* block) { return {block}; }
};

// w = d * code, d first in the block.
template <size_t bytes>
struct ScaledBlock {
  static constexpr size_t kValues = 32, kBytes = bytes, kValueBytes = 0;
  struct State {
    const uint8_t* block;
    __m256 d;
  };
  static State Begin(const uint8_t* block) { return {block, BroadcastHalf(block)}; }
};

// w = d * code + m, d and m first in the block.
template <size_t bytes>
struct ScaledOffsetBlock {
  static constexpr size_t kValues = 32, kBytes = bytes, kValueBytes = 0;
  struct State {
    const uint8_t* block;
    __m256 d, m;
  };
  static State Begin(const uint8_t* block) {
    State state;
    state.block = block;
    BroadcastHalves(block, &state.d, &state.m);
    return state;
  }
};

struct F32Decoder : PlainBlock<4> {
  static void Decode(const State& state, int, __m256 w[4]) {
    for (int i = 0; i < 4; ++i) w[i] = _mm256_castsi256_ps(Load32Bytes(state.block + 32 * i));
  }
  static float DecodeOne(const uint8_t* p) {
    float value;
    __builtin_memcpy(&value, p, sizeof(value));
    return value;
  }
};

struct F16Decoder : PlainBlock<2> {
  static void Decode(const State& state, int, __m256 w[4]) {
    for (int i = 0; i < 4; ++i) w[i] = _mm256_cvtph_ps(Load16Bytes(state.block + 16 * i));
  }
  static float DecodeOne(const uint8_t* p) { return _cvtsh_ss(LoadU16(p)); }
};

struct BF16Decoder : PlainBlock<2> {
  static void Decode(const State& state, int, __m256 w[4]) {
    for (int i = 0; i < 4; ++i) {
      const __m256i wide = _mm256_cvtepu16_epi32(Load16Bytes(state.block + 16 * i));
      w[i] = _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    }
  }
  static float DecodeOne(const uint8_t* p) {
    return _mm_cvtss_f32(
        _mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(uint32_t{LoadU16(p)} << 16))));
  }
};

struct Q8_0Decoder : ScaledBlock<34> {
  static void Decode(const State& state, int, __m256 w[4]) {
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(Load8Bytes(state.block + 2 + 8 * i)));
    }
    Multiply(state.d, w);
  }
};

struct Q4_0Decoder : ScaledBlock<18> {
  static void Decode(const State& state, int, __m256 w[4]) {
    __m256i q[4];
    NibblesToInts(state.block + 2, q);
    for (int i = 0; i < 4; ++i)
      w[i] = _mm256_cvtepi32_ps(_mm256_sub_epi32(q[i], _mm256_set1_epi32(8)));
    Multiply(state.d, w);
  }
};

struct Q4_1Decoder : ScaledOffsetBlock<20> {
  static void Decode(const State& state, int, __m256 w[4]) {
    __m256i q[4];
    NibblesToInts(state.block + 4, q);
    for (int i = 0; i < 4; ++i) w[i] = _mm256_cvtepi32_ps(q[i]);
    MultiplyAdd(state.d, state.m, w);
  }
};

struct Q5_0Decoder : ScaledBlock<22> {
  static void Decode(const State& state, int, __m256 w[4]) {
    const __m256i code =
        _mm256_or_si256(NibblesToBytes(state.block + 6), FifthBits(LoadU32(state.block + 2)));
    SignedBytesToFloats(_mm256_sub_epi8(code, _mm256_set1_epi8(16)), w);
    Multiply(state.d, w);
  }
};

struct Q5_1Decoder : ScaledOffsetBlock<24> {
  static void Decode(const State& state, int, __m256 w[4]) {
    SignedBytesToFloats(
        _mm256_or_si256(NibblesToBytes(state.block + 8), FifthBits(LoadU32(state.block + 4))), w);
    MultiplyAdd(state.d, state.m, w);
  }
};

// The scale and the negated minimum of the 8 groups of a Q4_K or Q5_K block.
struct KScales {
  alignas(32) float scale[8];
  alignas(32) float minus_min[8];
};

inline void UnpackKScales(const uint8_t* block, KScales* out) {
  __m256 d, dmin;
  BroadcastHalves(block, &d, &dmin);
  const uint32_t a = LoadU32(block + 4), b = LoadU32(block + 8), c = LoadU32(block + 12);
  const uint64_t scale_low = a & 0x3F3F3F3F;
  const uint64_t scale_high = (c & 0x0F0F0F0F) | ((a >> 6 & 0x03030303) << 4);
  const uint64_t min_low = b & 0x3F3F3F3F;
  const uint64_t min_high = (c >> 4 & 0x0F0F0F0F) | ((b >> 6 & 0x03030303) << 4);
  const __m128i scales = _mm_cvtsi64_si128(static_cast<int64_t>(scale_low | scale_high << 32));
  const __m128i mins = _mm_cvtsi64_si128(static_cast<int64_t>(min_low | min_high << 32));
  _mm256_store_ps(out->scale, _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(scales))));
  const __m256 min = _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(mins)));
  _mm256_store_ps(out->minus_min, _mm256_xor_ps(min, _mm256_set1_ps(-0.0f)));
}

struct Q4_KDecoder {
  static constexpr size_t kValues = 256, kBytes = 144, kValueBytes = 0;
  struct State {
    const uint8_t* block;
    KScales scales;
  };
  static State Begin(const uint8_t* block) {
    State state;
    state.block = block;
    UnpackKScales(block, &state.scales);
    return state;
  }
  static void Decode(const State& state, int group, __m256 w[4]) {
    const uint8_t* packed = state.block + 16 + 32 * (group / 2);
    for (int i = 0; i < 4; ++i) {
      const __m256i wide = _mm256_cvtepu8_epi32(Load8Bytes(packed + 8 * i));
      const __m256i code = group % 2 == 0 ? _mm256_and_si256(wide, _mm256_set1_epi32(0xF))
                                          : _mm256_srli_epi32(wide, 4);
      w[i] = _mm256_cvtepi32_ps(code);
    }
    MultiplyAdd(_mm256_broadcast_ss(&state.scales.scale[group]),
                _mm256_broadcast_ss(&state.scales.minus_min[group]), w);
  }
};

// The low or high nibbles of 32 bytes.
inline __m256i NibbleOfBytes(__m256i packed, bool high) {
  return _mm256_and_si256(high ? _mm256_srli_epi16(packed, 4) : packed, _mm256_set1_epi8(0xF));
}

struct Q5_KDecoder {
  static constexpr size_t kValues = 256, kBytes = 176, kValueBytes = 0;
  struct State {
    const uint8_t* block;
    KScales scales;
  };
  static State Begin(const uint8_t* block) {
    State state;
    state.block = block;
    UnpackKScales(block, &state.scales);
    return state;
  }
  static void Decode(const State& state, int group, __m256 w[4]) {
    const __m256i low =
        NibbleOfBytes(Load32Bytes(state.block + 48 + 32 * (group / 2)), group % 2 != 0);
    const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << group));
    const __m256i set =
        _mm256_cmpeq_epi8(_mm256_and_si256(Load32Bytes(state.block + 16), bit), bit);
    SignedBytesToFloats(_mm256_or_si256(low, _mm256_and_si256(set, _mm256_set1_epi8(0x10))), w);
    MultiplyAdd(_mm256_broadcast_ss(&state.scales.scale[group]),
                _mm256_broadcast_ss(&state.scales.minus_min[group]), w);
  }
};

struct Q6_KDecoder {
  static constexpr size_t kValues = 256, kBytes = 210, kValueBytes = 0;
  struct State {
    const uint8_t* block;
    alignas(32) float scale[16];
  };
  static State Begin(const uint8_t* block) {
    State state;
    state.block = block;
    const __m256 d = BroadcastHalf(block + 208);
    for (int i = 0; i < 2; ++i) {
      const __m256i scales = _mm256_cvtepi8_epi32(Load8Bytes(block + 192 + 8 * i));
      _mm256_store_ps(state.scale + 8 * i, _mm256_mul_ps(d, _mm256_cvtepi32_ps(scales)));
    }
    return state;
  }
  static void Decode(const State& state, int group, __m256 w[4]) {
    const int part = group % 4;
    const __m256i packed = Load32Bytes(state.block + 64 * (group / 4) + 32 * (part % 2));
    const __m256i low = NibbleOfBytes(packed, part >= 2);
    const __m256i pairs =
        _mm256_srli_epi16(Load32Bytes(state.block + 128 + 32 * (group / 4)), 2 * part);
    const __m256i high = _mm256_slli_epi16(_mm256_and_si256(pairs, _mm256_set1_epi8(3)), 4);
    SignedBytesToFloats(_mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32)), w);
    const __m256 first = _mm256_broadcast_ss(&state.scale[2 * group]);
    const __m256 second = _mm256_broadcast_ss(&state.scale[2 * group + 1]);
    w[0] = _mm256_mul_ps(w[0], first);
    w[1] = _mm256_mul_ps(w[1], first);
    w[2] = _mm256_mul_ps(w[2], second);
    w[3] = _mm256_mul_ps(w[3], second);
  }
};

template <typename D>
void DequantizeBlocks(const uint8_t* src, size_t values, float* dst) {
  size_t i = 0;
  for (; i + D::kValues <= values; i += D::kValues, src += D::kBytes) {
    const auto state = D::Begin(src);
#pragma GCC unroll 8
    for (int group = 0; group < static_cast<int>(D::kValues / 32); ++group) {
      __m256 w[4];
      D::Decode(state, group, w);
      for (int j = 0; j < 4; ++j)
        _mm256_storeu_ps(dst + i + 32 * static_cast<size_t>(group) + 8 * j, w[j]);
    }
  }
  if constexpr (D::kValueBytes != 0) {
    for (; i < values; ++i, src += D::kValueBytes) dst[i] = D::DecodeOne(src);
  }
}

// R dot products at a time: their chains of fused multiply-adds hide each other's latency.
template <typename D, int R>
void DotRows(const uint8_t* w, size_t row_bytes, size_t cols, const float* x, float* y) {
  Lanes lanes[R];
  for (int r = 0; r < R; ++r) lanes[r] = ZeroLanes();
  size_t i = 0;
  for (; i + D::kValues <= cols; i += D::kValues, w += D::kBytes) {
    typename D::State state[R];
    for (int r = 0; r < R; ++r) state[r] = D::Begin(w + static_cast<size_t>(r) * row_bytes);
#pragma GCC unroll 8
    for (int group = 0; group < static_cast<int>(D::kValues / 32); ++group) {
      const float* x32 = x + i + 32 * static_cast<size_t>(group);
      for (int r = 0; r < R; ++r) {
        __m256 v[4];
        D::Decode(state[r], group, v);
        FusedAdd(v[0], v[1], x32, &lanes[r]);
        FusedAdd(v[2], v[3], x32 + 16, &lanes[r]);
      }
    }
  }
  if constexpr (D::kValueBytes != 0) {
    for (int r = 0; r < R && i < cols; ++r) {
      float rest[32];
      const size_t count = cols - i;
      const uint8_t* p = w + static_cast<size_t>(r) * row_bytes;
      for (size_t j = 0; j < count; ++j) rest[j] = D::DecodeOne(p + j * D::kValueBytes);
      const size_t whole = count < kLanes ? 0 : kLanes;
      if (whole != 0) FusedAdd(_mm256_loadu_ps(rest), _mm256_loadu_ps(rest + 8), x + i, &lanes[r]);
      if (whole < count) FusedAddTail(rest + whole, x + i + whole, count - whole, &lanes[r]);
    }
  }
  for (int r = 0; r < R; ++r) y[r] = ReduceLanes(lanes[r]);
}

template <typename D>
void GemvRows(const uint8_t* w, size_t rows, size_t cols, const float* x, float* y) {
  const size_t row_bytes =
      D::kValueBytes != 0 ? cols * D::kValueBytes : cols / D::kValues * D::kBytes;
  size_t n = 0;
  for (; n + 2 <= rows; n += 2) DotRows<D, 2>(w + n * row_bytes, row_bytes, cols, x, y + n);
  if (n < rows) DotRows<D, 1>(w + n * row_bytes, row_bytes, cols, x, y + n);
}

}  // namespace

namespace avx2 {

void Dequantize(DType type, const std::byte* src, size_t values, float* dst) {
  const uint8_t* p = reinterpret_cast<const uint8_t*>(src);
  switch (type) {
    case DType::kF32:
      return DequantizeBlocks<F32Decoder>(p, values, dst);
    case DType::kF16:
      return DequantizeBlocks<F16Decoder>(p, values, dst);
    case DType::kBF16:
      return DequantizeBlocks<BF16Decoder>(p, values, dst);
    case DType::kQ8_0:
      return DequantizeBlocks<Q8_0Decoder>(p, values, dst);
    case DType::kQ4_0:
      return DequantizeBlocks<Q4_0Decoder>(p, values, dst);
    case DType::kQ4_1:
      return DequantizeBlocks<Q4_1Decoder>(p, values, dst);
    case DType::kQ5_0:
      return DequantizeBlocks<Q5_0Decoder>(p, values, dst);
    case DType::kQ5_1:
      return DequantizeBlocks<Q5_1Decoder>(p, values, dst);
    case DType::kQ4_K:
      return DequantizeBlocks<Q4_KDecoder>(p, values, dst);
    case DType::kQ5_K:
      return DequantizeBlocks<Q5_KDecoder>(p, values, dst);
    case DType::kQ6_K:
      return DequantizeBlocks<Q6_KDecoder>(p, values, dst);
  }
}

void Gemv(DType type, const std::byte* w, size_t rows, size_t cols, const float* x, float* y) {
  const uint8_t* p = reinterpret_cast<const uint8_t*>(w);
  switch (type) {
    case DType::kF32:
      return GemvRows<F32Decoder>(p, rows, cols, x, y);
    case DType::kF16:
      return GemvRows<F16Decoder>(p, rows, cols, x, y);
    case DType::kBF16:
      return GemvRows<BF16Decoder>(p, rows, cols, x, y);
    case DType::kQ8_0:
      return GemvRows<Q8_0Decoder>(p, rows, cols, x, y);
    case DType::kQ4_0:
      return GemvRows<Q4_0Decoder>(p, rows, cols, x, y);
    case DType::kQ4_1:
      return GemvRows<Q4_1Decoder>(p, rows, cols, x, y);
    case DType::kQ5_0:
      return GemvRows<Q5_0Decoder>(p, rows, cols, x, y);
    case DType::kQ5_1:
      return GemvRows<Q5_1Decoder>(p, rows, cols, x, y);
    case DType::kQ4_K:
      return GemvRows<Q4_KDecoder>(p, rows, cols, x, y);
    case DType::kQ5_K:
      return GemvRows<Q5_KDecoder>(p, rows, cols, x, y);
    case DType::kQ6_K:
      return GemvRows<Q6_KDecoder>(p, rows, cols, x, y);
  }
}

}  // namespace avx2
}  // namespace pocketlm
