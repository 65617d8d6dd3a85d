#include "backend/cpu/reference/dequantize.h"

#include <cstdint>
#include <cstring>

#include "base/half.h"

// Block layouts: GGUF specification and the reference reader gguf-py (gguf/quants.py).

namespace pocketlm::reference {
namespace {

uint16_t LoadU16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | (p[1] << 8)); }
float LoadHalf(const uint8_t* p) { return HalfToFloat(LoadU16(p)); }
uint32_t LoadU32(const uint8_t* p) {
  return static_cast<uint32_t>(LoadU16(p)) | (static_cast<uint32_t>(LoadU16(p + 2)) << 16);
}

// d, 32 signed codes.
void BlockQ8_0(const uint8_t* block, float* dst) {
  const float d = LoadHalf(block);
  for (int i = 0; i < 32; ++i) dst[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
}

// d, 16 bytes: low nibbles are values 0–15, high nibbles 16–31; codes are offset by 8.
void BlockQ4_0(const uint8_t* block, float* dst) {
  const float d = LoadHalf(block);
  for (int i = 0; i < 16; ++i) {
    dst[i] = static_cast<float>((block[2 + i] & 0xF) - 8) * d;
    dst[i + 16] = static_cast<float>((block[2 + i] >> 4) - 8) * d;
  }
}

// d, m, then as Q4_0 with codes from 0.
void BlockQ4_1(const uint8_t* block, float* dst) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  for (int i = 0; i < 16; ++i) {
    dst[i] = static_cast<float>(block[4 + i] & 0xF) * d + m;
    dst[i + 16] = static_cast<float>(block[4 + i] >> 4) * d + m;
  }
}

// The 5-bit code of value i: nibbles as in Q4_0, fifth bits in a little-endian word.
int Code5(const uint8_t* nibbles, uint32_t high_bits, int i) {
  const int low = i < 16 ? nibbles[i] & 0xF : nibbles[i - 16] >> 4;
  return low | static_cast<int>(((high_bits >> i) & 1u) << 4);
}

// d, 32 fifth bits, nibbles; codes are offset by 16.
void BlockQ5_0(const uint8_t* block, float* dst) {
  const float d = LoadHalf(block);
  const uint32_t high = LoadU32(block + 2);
  for (int i = 0; i < 32; ++i) dst[i] = static_cast<float>(Code5(block + 6, high, i) - 16) * d;
}

// d, m, 32 fifth bits, nibbles.
void BlockQ5_1(const uint8_t* block, float* dst) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  const uint32_t high = LoadU32(block + 4);
  for (int i = 0; i < 32; ++i) dst[i] = static_cast<float>(Code5(block + 8, high, i)) * d + m;
}

// The 6-bit scale and minimum of sub-block j (0–7) in the 12 packed bytes of Q4_K and Q5_K.
void UnpackScaleMin(const uint8_t* packed, int j, float* scale, float* min) {
  int s, m;
  if (j < 4) {
    s = packed[j] & 63;
    m = packed[j + 4] & 63;
  } else {
    s = (packed[j + 4] & 0xF) | ((packed[j - 4] >> 6) << 4);
    m = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4);
  }
  *scale = static_cast<float>(s);
  *min = static_cast<float>(m);
}

// d, dmin, 12 bytes of scales, 4 × 32 bytes: low nibbles are sub-block 2j, high nibbles 2j + 1.
void BlockQ4_K(const uint8_t* block, float* dst) {
  const float d = LoadHalf(block);
  const float dmin = LoadHalf(block + 2);
  for (int j = 0; j < 8; ++j) {
    float scale, min;
    UnpackScaleMin(block + 4, j, &scale, &min);
    const float s = d * scale;
    const float m = dmin * min;
    const uint8_t* q = block + 16 + 32 * (j / 2);
    for (int i = 0; i < 32; ++i) {
      const int code = j % 2 == 0 ? q[i] & 0xF : q[i] >> 4;
      dst[32 * j + i] = static_cast<float>(code) * s - m;
    }
  }
}

// As Q4_K, with 32 bytes of fifth bits (bit j belongs to sub-block j) before the nibbles.
void BlockQ5_K(const uint8_t* block, float* dst) {
  const float d = LoadHalf(block);
  const float dmin = LoadHalf(block + 2);
  const uint8_t* high = block + 16;
  for (int j = 0; j < 8; ++j) {
    float scale, min;
    UnpackScaleMin(block + 4, j, &scale, &min);
    const float s = d * scale;
    const float m = dmin * min;
    const uint8_t* q = block + 48 + 32 * (j / 2);
    for (int i = 0; i < 32; ++i) {
      const int low = j % 2 == 0 ? q[i] & 0xF : q[i] >> 4;
      const int code = low | (((high[i] >> j) & 1) << 4);
      dst[32 * j + i] = static_cast<float>(code) * s - m;
    }
  }
}

// 128 bytes of low nibbles, 64 of upper bit pairs, 16 signed scales (one per 16 values), d; two
// halves of 128 values, each in four parts of 32. Codes are offset by 32.
void BlockQ6_K(const uint8_t* block, float* dst) {
  const float d = LoadHalf(block + 208);
  for (int j = 0; j < 8; ++j) {
    const int part = j % 4;
    const uint8_t* low = block + 64 * (j / 4) + 32 * (part % 2);
    const uint8_t* high = block + 128 + 32 * (j / 4);
    for (int i = 0; i < 32; ++i) {
      const float s = d * static_cast<float>(static_cast<int8_t>(block[192 + 2 * j + i / 16]));
      const int code =
          (part < 2 ? low[i] & 0xF : low[i] >> 4) | (((high[i] >> (2 * part)) & 3) << 4);
      dst[32 * j + i] = static_cast<float>(code - 32) * s;
    }
  }
}

template <void (*kBlock)(const uint8_t*, float*)>
void Blocks(DType type, const uint8_t* src, size_t values, float* dst) {
  const DTypeInfo& info = GetDTypeInfo(type);
  for (size_t i = 0; i < values; i += info.block_values, src += info.block_bytes)
    kBlock(src, dst + i);
}

}  // namespace

void Dequantize(DType type, const std::byte* src, size_t values, float* dst) {
  const uint8_t* p = reinterpret_cast<const uint8_t*>(src);
  switch (type) {
    case DType::kF32:
      std::memcpy(dst, p, values * sizeof(float));
      break;
    case DType::kF16:
      for (size_t i = 0; i < values; ++i) dst[i] = LoadHalf(p + 2 * i);
      break;
    case DType::kBF16:
      for (size_t i = 0; i < values; ++i) dst[i] = BFloat16ToFloat(LoadU16(p + 2 * i));
      break;
    case DType::kQ8_0:
      return Blocks<BlockQ8_0>(type, p, values, dst);
    case DType::kQ4_0:
      return Blocks<BlockQ4_0>(type, p, values, dst);
    case DType::kQ4_1:
      return Blocks<BlockQ4_1>(type, p, values, dst);
    case DType::kQ5_0:
      return Blocks<BlockQ5_0>(type, p, values, dst);
    case DType::kQ5_1:
      return Blocks<BlockQ5_1>(type, p, values, dst);
    case DType::kQ4_K:
      return Blocks<BlockQ4_K>(type, p, values, dst);
    case DType::kQ5_K:
      return Blocks<BlockQ5_K>(type, p, values, dst);
    case DType::kQ6_K:
      return Blocks<BlockQ6_K>(type, p, values, dst);
  }
}

}  // namespace pocketlm::reference
