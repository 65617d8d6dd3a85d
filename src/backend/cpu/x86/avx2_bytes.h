// Products of bytes on 256 bits, in AVX2 and, where __AVXVNNI__ is defined, with VPDPBUSD: what the files share that
// are compiled once for each of the two. Included as avx2_common.h, under the same conditions.
#pragma once

#include "backend/cpu/x86/avx2_common.h"

namespace pocketlm {
namespace {

#if defined(__AVXVNNI__)
constexpr bool kVnni = true;
// sum + Σ code · x over the four bytes of each 32-bit lane; codes are unsigned.
inline __m256i DotAdd(__m256i sum, __m256i codes, __m256i x) {
  return _mm256_dpbusd_avx_epi32(sum, codes, x);
}
#else
constexpr bool kVnni = false;
inline __m256i DotAdd(__m256i sum, __m256i, __m256i) { return sum; }  // not called
#endif

inline __m256i LoadBytes(const std::byte* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
inline void StoreBytes(std::byte* p, __m256i value) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(p), value);
}
inline __m256i LowNibbles(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
inline __m256i HighNibbles(__m256i x) { return LowNibbles(_mm256_srli_epi16(x, 4)); }
// i8 codes as unsigned bytes with bias 128.
inline __m256i Biased(__m256i x) { return _mm256_xor_si256(x, _mm256_set1_epi8(-128)); }

// Pinned to a register: one load for all uses.
inline __m256i Broadcast8(const int8_t* x) {
  long long value;
  __builtin_memcpy(&value, x, 8);
  __m256i out = _mm256_set1_epi64x(value);
  asm("" : "+x"(out));
  return out;
}
inline __m256i Broadcast4(const int8_t* x) {
  int value;
  __builtin_memcpy(&value, x, 4);
  __m256i out = _mm256_set1_epi32(value);
  asm("" : "+x"(out));
  return out;
}

// Keeps the compiler from adding in another order, which takes more registers than there are.
inline void Pin(__m256i* sum) { asm("" : "+x"(*sum)); }

// sum + Σ code · x over pairs of bytes, in 16 bits; codes are nibbles.
inline __m256i AddPairs(__m256i sum, __m256i codes, __m256i x) {
  sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x));
  Pin(&sum);
  return sum;
}

inline __m256i WidenPairs(__m256i sums16) {
  return _mm256_madd_epi16(sums16, _mm256_set1_epi16(1));
}

// sum + Σ code · x over the four bytes of each 32-bit lane; codes and x are signed, |x| ≤ 127.
inline __m256i AddSigned(__m256i sum, __m256i codes, __m256i x) {
  // |code| · |x| · 2 fits 16 bits.
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
  sum = _mm256_add_epi32(sum, WidenPairs(pairs));
  Pin(&sum);
  return sum;
}

inline __m256 LoadHalves(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}

}  // namespace
}  // namespace pocketlm
