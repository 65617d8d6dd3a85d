// A hostile file costs no more than a small multiple of its own size: counted, by an operator new that
// keeps the sum of live bytes and its peak.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>

#include "base/json.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "support/byte_builder.h"
#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"
#include "support/test_support.h"

namespace {
std::atomic<size_t> live_bytes{0};
std::atomic<size_t> peak_bytes{0};
constexpr size_t kPrefix = 16;  // holds the size; keeps the alignment of malloc
}  // namespace

void* operator new(size_t size) {
  void* block = std::malloc(size + kPrefix);
  if (block == nullptr) throw std::bad_alloc();
  *static_cast<size_t*>(block) = size;
  const size_t now = live_bytes += size;
  size_t peak = peak_bytes;
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
  }
  return static_cast<char*>(block) + kPrefix;
}

void operator delete(void* pointer) noexcept {
  if (pointer == nullptr) return;
  void* block = static_cast<char*>(pointer) - kPrefix;
  live_bytes -= *static_cast<size_t*>(block);
  std::free(block);
}
void operator delete(void* pointer, size_t) noexcept { operator delete(pointer); }

namespace pocketlm {
namespace {

using testing::AlignedBytes;
using testing::ByteBuilder;

// Peak of heap bytes that `action` adds to what is there.
template <typename Action>
size_t PeakOf(Action action) {
  const size_t before = live_bytes;
  peak_bytes = before;
  action();
  return peak_bytes - before;
}

constexpr size_t kSmall = 16 << 10;  // messages and the like
constexpr size_t kMiB = 1 << 20;

size_t GgufPeak(const std::string& file) {
  const AlignedBytes bytes(file);
  return PeakOf([&] { (void)GgufFile::Parse(bytes.span()).ok(); });
}

size_t SafetensorsPeak(const std::string& file) {
  const AlignedBytes bytes(file);
  return PeakOf([&] { (void)SafetensorsFile::Parse(bytes.span()).ok(); });
}

size_t JsonPeak(const std::string& text) {
  return PeakOf([&] { (void)ParseJson(text).ok(); });
}

std::string Repeat(std::string_view unit, size_t total_bytes) {
  std::string out;
  while (out.size() < total_bytes) out += unit;
  return out;
}

TEST(MemoryTest, TheCounterCounts) {
  EXPECT_GE(PeakOf([] { std::vector<char> block(3 * kMiB); }), 3 * kMiB);
  EXPECT_LT(PeakOf([] {}), 1u);
}

TEST(MemoryTest, FILE_D4_TinyFilesThatAskForMuch) {
  for (uint64_t count : {uint64_t{1} << 20, uint64_t{1} << 30, uint64_t{1} << 40, UINT64_MAX}) {
    for (uint32_t element = 0; element < kNumGgufTypes; ++element) {
      ByteBuilder array;
      array.Raw("GGUF").U32(3).U64(0).U64(1).String("k").U32(9).U32(element).U64(count).PadTo(160);
      EXPECT_LT(GgufPeak(array.bytes()), kSmall);
    }
    ByteBuilder text, keys, tensors;
    text.Raw("GGUF").U32(3).U64(0).U64(1).String("k").U32(8).U64(count).PadTo(160);
    keys.Raw("GGUF").U32(3).U64(0).U64(count).PadTo(160);
    tensors.Raw("GGUF").U32(3).U64(count).U64(0).PadTo(160);
    EXPECT_LT(GgufPeak(text.bytes()), kSmall);
    EXPECT_LT(GgufPeak(keys.bytes()), kSmall);
    EXPECT_LT(GgufPeak(tensors.bytes()), kSmall);
  }
}

TEST(MemoryTest, FILE_D5_TinyFilesThatAskForMuch) {
  for (uint64_t length : {uint64_t{161}, uint64_t{100'000'000}, uint64_t{1} << 40, UINT64_MAX}) {
    EXPECT_LT(SafetensorsPeak(ByteBuilder().U64(length).Raw("{").PadTo(160).bytes()), kSmall);
  }
}

// Well-formed tables of the smallest entries: the worst ratio of memory to bytes in the file.
TEST(MemoryTest, GgufOfSmallestEntries) {
  testing::GgufWriter keys;
  for (int i = 0; i < 50000; ++i) keys.Add<uint8_t>(std::to_string(i), 1);
  const std::string key_file = keys.Build();
  EXPECT_LT(GgufPeak(key_file), key_file.size() + kSmall);
  testing::GgufWriter tensors;
  tensors.Alignment(8);
  for (int i = 0; i < 20000; ++i) tensors.AddTensor(std::to_string(i), DType::kF16, {1}, "ab");
  const std::string tensor_file = tensors.Build();
  ASSERT_OK(GgufFile::Parse(AlignedBytes(tensor_file).span()));
  EXPECT_LT(GgufPeak(tensor_file), 4 * tensor_file.size() + kSmall);
}

TEST(MemoryTest, GgufStringsAreNotCopied) {
  testing::GgufWriter writer;
  writer.AddStrings("tokens", std::vector<std::string>(262144, "token"));
  const AlignedBytes bytes(writer.Build());
  EXPECT_LT(PeakOf([&] {
              auto file = GgufFile::Parse(bytes.span());
              size_t total = 0;
              const auto array = file->GetArray("tokens");
              for (std::string_view token : array->strings()) total += token.size();
              EXPECT_EQ(total, 5u * 262144);
            }),
            kSmall);
}

// Random counts, lengths and bytes in a small file, many times.
TEST(MemoryTest, GgufWithRandomDamage) {
  const std::string good = testing::GgufWriter()
                               .AddStrings("tokens", {"a", "b", "c"})
                               .AddArray<float>("scores", {1, 2, 3})
                               .Add<uint32_t>("general.alignment", 32)
                               .AddFloats("x", {2, 2}, {1, 2, 3, 4})
                               .AddFloats("y", {1}, {1})
                               .Build();
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (int n = 1 + static_cast<int>(random() % 4); n > 0; --n) {
      const uint64_t value = random() >> (random() % 64);
      std::memcpy(bad.data() + random() % (bad.size() - 8), &value, 1 + random() % 8);
    }
    ASSERT_LT(GgufPeak(bad), 4 * bad.size() + kSmall);
  }
}

TEST(MemoryTest, SafetensorsHeadersOfEveryDensity) {
  std::string readable, other, metadata;
  for (int i = 0; i < 20000; ++i) {
    const std::string name = "\"" + std::to_string(i) + "\":";
    readable += name + R"({"dtype":"F32","shape":[],"data_offsets":[0,4]},)";
    other += name + R"({"dtype":"F4","shape":[0,0,0,0,0,0,0,0],"data_offsets":[0,0]},)";
    metadata += name + R"("",)";
  }
  for (const std::string& body :
       {readable, other, "\"__metadata__\":{" + metadata, Repeat("[", 2 * kMiB),
        "\"" + Repeat("x", 2 * kMiB), "\"a\":{\"shape\":[" + Repeat("1,", 2 * kMiB),
        Repeat("\"\":{", 2 * kMiB)}) {
    const std::string file = testing::SafetensorsBytes("{" + body, "abcd");
    EXPECT_LT(SafetensorsPeak(file), 10 * file.size() + kMiB) << body.substr(0, 60);
  }
}

TEST(MemoryTest, JsonOfEveryDensity) {
  for (const char* unit :
       {"0,", "\"\",", "[],", "{},", "[[[[[[]]]]]],", "{\"\":0},", "{\"\":{\"\":{}}},", "[0],",
        "\"0123456789abcdef\",", "\"\\u0041\",", "-0.5e9,", "null,"}) {
    const std::string text = "[" + Repeat(unit, kMiB / 2) + "0]";
    EXPECT_LT(JsonPeak(text), 16 * text.size() + 2 * kMiB) << unit;
  }
  std::string object = "{";
  for (int i = 0; i < 40000; ++i)
    object += "\"" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  object.back() = '}';
  EXPECT_OK(ParseJson(object));
  EXPECT_LT(JsonPeak(object), 16 * object.size() + 2 * kMiB);
  for (const std::string& text : {Repeat("[", 2 * kMiB), Repeat("{\"a\":", 2 * kMiB),
                                  "\"" + Repeat("x", 2 * kMiB), Repeat("1", 2 * kMiB)}) {
    EXPECT_LT(JsonPeak(text), 10 * text.size() + kMiB) << text.substr(0, 20);
  }
  EXPECT_LT(JsonPeak("\"" + Repeat("x", 2 * kMiB) + "\""), 16 * kMiB + kMiB);
}

}  // namespace
}  // namespace pocketlm
