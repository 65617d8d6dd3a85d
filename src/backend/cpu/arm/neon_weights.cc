// Stored weights in NEON: rows to floats, and the dot products of decoding. Block layouts are described in
// reference/dequantize.cc.

#include "backend/cpu/arm/neon_common.h"
#include "backend/cpu/reference/dequantize.h"

namespace pocketlm {
namespace {

// 32 values as eight vectors.
struct Floats32 {
  float32x4_t quad[8];
};

inline float LoadHalf(const uint8_t* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
}

inline void BytesToFloats(int8x16_t codes, float32x4_t* quad) {
  const int16x8_t low = vmovl_s8(vget_low_s8(codes)), high = vmovl_high_s8(codes);
  quad[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
  quad[1] = vcvtq_f32_s32(vmovl_high_s16(low));
  quad[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
  quad[3] = vcvtq_f32_s32(vmovl_high_s16(high));
}

// 16 packed bytes, less `bias`: low nibbles, then high nibbles.
inline Floats32 NibblesToFloats(const uint8_t* p, int8_t bias) {
  const uint8x16_t packed = vld1q_u8(p);
  const int8x16_t offset = vdupq_n_s8(bias);
  const int8x16_t low = vreinterpretq_s8_u8(vandq_u8(packed, vdupq_n_u8(15)));
  const int8x16_t high = vreinterpretq_s8_u8(vshrq_n_u8(packed, 4));
  Floats32 w;
  BytesToFloats(vsubq_s8(low, offset), w.quad);
  BytesToFloats(vsubq_s8(high, offset), w.quad + 4);
  return w;
}

inline void Multiply(float d, Floats32* w) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) w->quad[i] = vmulq_n_f32(w->quad[i], d);
}

// Decoders of 32 values that take kBytes. kValueBytes is the size of a value of the plain types, whose rows may end
// anywhere; 0 for blocks.

struct F32Decoder {
  static constexpr size_t kBytes = 128, kValueBytes = 4;
  static Floats32 Decode(const uint8_t* p) {
    Floats32 w;
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) w.quad[i] = vreinterpretq_f32_u8(vld1q_u8(p + 16 * i));
    return w;
  }
};

struct F16Decoder {
  static constexpr size_t kBytes = 64, kValueBytes = 2;
  static Floats32 Decode(const uint8_t* p) {
    Floats32 w;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const uint16x8_t halves = vreinterpretq_u16_u8(vld1q_u8(p + 16 * i));
      w.quad[2 * i] = LowHalves(halves);
      w.quad[2 * i + 1] = HighHalves(halves);
    }
    return w;
  }
};

struct BF16Decoder {
  static constexpr size_t kBytes = 64, kValueBytes = 2;
  static Floats32 Decode(const uint8_t* p) {
    Floats32 w;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const uint16x8_t words = vreinterpretq_u16_u8(vld1q_u8(p + 16 * i));
      w.quad[2 * i] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(words), 16));
      w.quad[2 * i + 1] = vreinterpretq_f32_u32(vshll_high_n_u16(words, 16));
    }
    return w;
  }
};

struct Q8_0Decoder {
  static constexpr size_t kBytes = 34, kValueBytes = 0;
  static Floats32 Decode(const uint8_t* p) {
    Floats32 w;
    BytesToFloats(vreinterpretq_s8_u8(vld1q_u8(p + 2)), w.quad);
    BytesToFloats(vreinterpretq_s8_u8(vld1q_u8(p + 18)), w.quad + 4);
    Multiply(LoadHalf(p), &w);
    return w;
  }
};

struct Q4_0Decoder {
  static constexpr size_t kBytes = 18, kValueBytes = 0;
  static Floats32 Decode(const uint8_t* p) {
    Floats32 w = NibblesToFloats(p + 2, 8);
    Multiply(LoadHalf(p), &w);
    return w;
  }
};

struct Q4_1Decoder {
  static constexpr size_t kBytes = 20, kValueBytes = 0;
  // Exact until the addition, so the fused form gives the bits of the separate one.
  static Floats32 Decode(const uint8_t* p) {
    Floats32 w = NibblesToFloats(p + 4, 0);
    const float d = LoadHalf(p);
    const float32x4_t m = vdupq_n_f32(LoadHalf(p + 2));
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) w.quad[i] = vfmaq_n_f32(m, w.quad[i], d);
    return w;
  }
};

inline void FusedAdd32(const Floats32& w, const float* x, Lanes* lanes) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    lanes->quad[i % 4] = vfmaq_f32(lanes->quad[i % 4], w.quad[i], vld1q_f32(x + 4 * i));
}

// R dot products at a time: their chains of fused multiply-adds hide each other's latency.
template <typename D, int R>
void DotRows(DType type, const uint8_t* w, size_t row_bytes, size_t cols, const float* x,
             float* y) {
  Lanes lanes[R];
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) lanes[r] = ZeroLanes();
  size_t i = 0;
  for (; i + 32 <= cols; i += 32, w += D::kBytes) {
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r)
      FusedAdd32(D::Decode(w + static_cast<size_t>(r) * row_bytes), x + i, &lanes[r]);
  }
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) {
    if (i < cols) {
      float rest[32];
      const size_t count = cols - i, whole = count / kLanes * kLanes;
      reference::Dequantize(
          type, reinterpret_cast<const std::byte*>(w + static_cast<size_t>(r) * row_bytes), count,
          rest);
      if (whole != 0) FusedAdd(rest, x + i, &lanes[r]);
      FusedAddTail(rest + whole, x + i + whole, count - whole, &lanes[r]);
    }
    y[r] = ReduceLanes(lanes[r]);
  }
}

template <typename D>
void GemvRows(DType type, const std::byte* w, size_t rows, size_t cols, const float* x, float* y) {
  const size_t row_bytes = D::kValueBytes != 0 ? cols * D::kValueBytes : cols / 32 * D::kBytes;
  const auto* p = reinterpret_cast<const uint8_t*>(w);
  size_t n = 0;
  for (; n + 2 <= rows; n += 2) DotRows<D, 2>(type, p + n * row_bytes, row_bytes, cols, x, y + n);
  if (n < rows) DotRows<D, 1>(type, p + n * row_bytes, row_bytes, cols, x, y + n);
}

// Bytes of 256 values of the types below.
constexpr size_t BytesOf256(DType type) {
  switch (type) {
    case DType::kQ4_K:
      return 144;
    case DType::kQ5_1:
      return 192;
    case DType::kQ6_K:
      return 210;
    default:  // Q5_0, Q5_K
      return 176;
  }
}

// Types of 256 values and of five bits: through memory.
void GemvThroughMemory(DType type, const std::byte* w, size_t rows, size_t cols, const float* x,
                       float* y) {
  constexpr size_t kChunk = 256;  // a multiple of every block
  for (size_t n = 0; n < rows; ++n) {
    Lanes lanes = ZeroLanes();
    for (size_t i = 0; i < cols; i += kChunk) {
      float values[kChunk];
      const size_t count = Min(kChunk, cols - i);
      reference::Dequantize(type, w, count, values);
      for (size_t j = 0; j < count; j += kLanes) FusedAdd(values + j, x + i + j, &lanes);
      w += count * BytesOf256(type) / kChunk;
    }
    y[n] = ReduceLanes(lanes);
  }
}

template <typename D>
void DequantizeRow(DType type, const std::byte* src, size_t values, float* dst) {
  const auto* p = reinterpret_cast<const uint8_t*>(src);
  size_t i = 0;
  for (; i + 32 <= values; i += 32, p += D::kBytes) {
    const Floats32 w = D::Decode(p);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) vst1q_f32(dst + i + 4 * j, w.quad[j]);
  }
  if (i < values)
    reference::Dequantize(type, reinterpret_cast<const std::byte*>(p), values - i, dst + i);
}

}  // namespace

void neon::Dequantize(DType type, const std::byte* src, size_t values, float* dst) {
  switch (type) {
    case DType::kF32:
      return DequantizeRow<F32Decoder>(type, src, values, dst);
    case DType::kF16:
      return DequantizeRow<F16Decoder>(type, src, values, dst);
    case DType::kBF16:
      return DequantizeRow<BF16Decoder>(type, src, values, dst);
    case DType::kQ8_0:
      return DequantizeRow<Q8_0Decoder>(type, src, values, dst);
    case DType::kQ4_0:
      return DequantizeRow<Q4_0Decoder>(type, src, values, dst);
    case DType::kQ4_1:
      return DequantizeRow<Q4_1Decoder>(type, src, values, dst);
    default:
      return reference::Dequantize(type, src, values, dst);
  }
}

void neon::Gemv(DType type, const std::byte* w, size_t rows, size_t cols, const float* x,
                float* y) {
  switch (type) {
    case DType::kF32:
      return GemvRows<F32Decoder>(type, w, rows, cols, x, y);
    case DType::kF16:
      return GemvRows<F16Decoder>(type, w, rows, cols, x, y);
    case DType::kBF16:
      return GemvRows<BF16Decoder>(type, w, rows, cols, x, y);
    case DType::kQ8_0:
      return GemvRows<Q8_0Decoder>(type, w, rows, cols, x, y);
    case DType::kQ4_0:
      return GemvRows<Q4_0Decoder>(type, w, rows, cols, x, y);
    case DType::kQ4_1:
      return GemvRows<Q4_1Decoder>(type, w, rows, cols, x, y);
    default:
      return GemvThroughMemory(type, w, rows, cols, x, y);
  }
}

}  // namespace pocketlm
