// Packing, unpacking and exact layouts of codes.
#include <cstring>
#include <random>
#include <vector>

#include "backend/backend.h"
#include "base/half.h"
#include "compress/encode_tensor.h"
#include "compress/exact.h"
#include "compress/row_codes.h"
#include "gmock/gmock.h"
#include "support/test_support.h"

namespace pocketlm {
namespace {

using ::testing::Each;

std::vector<PackedLayout> AllLayouts() {
  std::vector<PackedLayout> out;
  for (const uint32_t size : {32u, 64u, 128u}) {
    for (const OffsetType offset : {OffsetType::kNone, OffsetType::kZero4, OffsetType::kMinF16})
      out.push_back({PackedType::kU4, offset, size});
    out.push_back({PackedType::kI8, OffsetType::kNone, size});
  }
  return out;
}

RowCodes RandomCodes(const PackedLayout& layout, size_t cols, std::mt19937* random) {
  RowCodes row;
  row.Resize(layout, cols);
  for (uint8_t& code : row.codes) {
    const auto value = static_cast<int>((*random)() % 255);
    code = static_cast<uint8_t>(layout.type == PackedType::kU4 ? value % 16 : value - 127);
  }
  for (size_t g = 0; g < row.groups(); ++g) {
    row.scales[g] = static_cast<uint16_t>(0x2000 + (*random)() % 0x1000);
    if (layout.type != PackedType::kU4) continue;
    row.mins[g] = static_cast<uint16_t>(0xA000 + (*random)() % 0x1000);
    if (layout.offset == OffsetType::kNone) row.mins[g] = MinOfNone(row.scales[g]);
    if (layout.offset != OffsetType::kZero4) continue;
    row.zeros[g] = static_cast<uint8_t>((*random)() % 16);
    row.mins[g] = MinOfZero(row.scales[g], row.zeros[g]);
  }
  return row;
}

// A packed matrix that owns its planes.
struct Packed {
  std::vector<std::byte> codes, scales, offsets;
  PackedMatrix matrix;
};

Packed PackRows(const std::vector<RowCodes>& rows) {
  Packed out;
  const PackedLayout& layout = rows[0].layout;
  out.matrix = {layout, rows.size(), rows[0].cols()};
  const PackedPlanes planes = *PlaneBytes(layout, rows.size(), rows[0].cols());
  out.codes.resize(planes.codes);
  out.scales.resize(planes.scales);
  out.offsets.resize(planes.offsets);
  for (size_t r = 0; r < rows.size(); ++r) {
    const size_t first = r / kTileRows * out.matrix.groups();
    PackRow(
        rows[r], r % kTileRows,
        {out.codes.data() + first * layout.group_code_bytes(),
         out.scales.data() + first * PackedLayout::group_scale_bytes(),
         out.offsets.empty() ? nullptr : out.offsets.data() + first * layout.group_offset_bytes()});
  }
  out.matrix.codes = out.codes.data();
  out.matrix.scales = out.scales.data();
  out.matrix.offsets = out.offsets.empty() ? nullptr : out.offsets.data();
  return out;
}

std::vector<float> Decoded(const RowCodes& row) {
  std::vector<float> out(row.cols());
  DecodeCodes(row, out.data());
  return out;
}

TEST(PackRow, BytesLieWhereTheLayoutSays) {
  // One group of row 3: code of input i is i mod 16, scale 1, zero 5.
  RowCodes row;
  row.Resize({PackedType::kU4, OffsetType::kZero4, 32}, 32);
  for (size_t i = 0; i < 32; ++i) row.codes[i] = static_cast<uint8_t>(i % 16);
  row.scales[0] = 0x3C00;
  row.zeros[0] = 5;
  std::vector<std::byte> codes(128), scales(16), offsets(4);
  PackRow(row, 3, {codes.data(), scales.data(), offsets.data()});
  for (size_t block = 0; block < 2; ++block) {
    for (size_t i = 0; i < 8; ++i)
      EXPECT_EQ(static_cast<int>(codes[block * 64 + 3 * 8 + i]),
                static_cast<int>(i | (8 + i) << 4));
  }
  EXPECT_EQ(static_cast<int>(scales[6]), 0x00);
  EXPECT_EQ(static_cast<int>(scales[7]), 0x3C);
  EXPECT_EQ(static_cast<int>(offsets[1]), 5 << 4);

  RowCodes bytes;
  bytes.Resize({PackedType::kI8, OffsetType::kNone, 32}, 32);
  for (size_t i = 0; i < 32; ++i) bytes.codes[i] = static_cast<uint8_t>(-static_cast<int>(i));
  std::vector<std::byte> i8(256);
  PackRow(bytes, 7, {i8.data(), scales.data(), nullptr});
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(static_cast<int8_t>(i8[i / 8 * 64 + 7 * 8 + i % 8]), -static_cast<int>(i));
  }
}

TEST(PackRow, EveryLayoutComesBackAndTheBackendReadsTheSame) {
  std::mt19937 random(1);
  for (const PackedLayout& layout : AllLayouts()) {
    for (const size_t rows : {1u, 7u, 8u, 9u, 17u}) {
      SCOPED_TRACE(LayoutName(layout) + ", rows " + std::to_string(rows));
      std::vector<RowCodes> meant;
      for (size_t r = 0; r < rows; ++r) meant.push_back(RandomCodes(layout, 256, &random));
      const Packed packed = PackRows(meant);
      std::vector<float> unpacked(256);
      for (size_t r = 0; r < rows; ++r) {
        RowCodes read;
        ReadPacked(packed.matrix, r, &read);
        EXPECT_EQ(read.codes, meant[r].codes);
        EXPECT_EQ(read.scales, meant[r].scales);
        EXPECT_EQ(read.mins, meant[r].mins);
        EXPECT_EQ(read.zeros, meant[r].zeros);
        UnpackRow(packed.matrix, r, unpacked.data());
        EXPECT_EQ(unpacked, Decoded(meant[r]));
      }
      // What pads the last tile is zero.
      PackedMatrix whole = packed.matrix;
      whole.rows = whole.tiles() * kTileRows;
      for (size_t r = rows; r < whole.rows; ++r) {
        UnpackRow(whole, r, unpacked.data());
        EXPECT_THAT(unpacked, Each(0.0f));
      }
    }
  }
}

TEST(Blocks, ReadAndWriteKeepEveryBit) {
  std::mt19937 random(2);
  for (const DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ8_0}) {
    SCOPED_TRACE(GetDTypeInfo(type).name);
    const size_t cols = 96;
    std::vector<std::byte> blocks(*RowBytes(type, cols));
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
    for (size_t b = 0; b < cols / 32; ++b) {
      std::byte* block = blocks.data() + b * GetDTypeInfo(type).block_bytes;
      block[1] = std::byte{0x24};  // scale and min are ordinary numbers
      if (type == DType::kQ4_1) block[3] = std::byte{0xA8};
    }
    RowCodes row;
    ReadBlocks(type, blocks.data(), cols, &row);
    std::vector<float> values(cols);
    DequantizeRow(type, blocks.data(), cols, values.data());
    EXPECT_EQ(Decoded(row), values);
    if (type == DType::kQ5_0) continue;  // is read only
    std::vector<std::byte> written(blocks.size());
    WriteBlocks(row, type, written.data());
    EXPECT_EQ(written, blocks);
  }
}

RowCodes Q4_1Row(const std::vector<uint16_t>& scales, const std::vector<uint16_t>& mins) {
  RowCodes row;
  row.Resize({PackedType::kU4, OffsetType::kMinF16, 32}, scales.size() * 32);
  row.scales = scales;
  row.mins = mins;
  return row;
}

std::optional<PackedLayout> Smallest(const std::vector<RowCodes>& rows) {
  EncodingScan scan;
  for (const RowCodes& row : rows) scan.Add(row);
  return scan.Smallest();
}

TEST(EncodingScan, GroupsJoinOnlyIfAllDo) {
  const uint16_t s = 0x2C01, t = 0x2C02, m = 0xB123;
  const PackedLayout u4_min{PackedType::kU4, OffsetType::kMinF16, 32};
  auto layout = u4_min;
  layout.group_size = 64;
  EXPECT_EQ(Smallest({Q4_1Row({s, s, t, t}, {m, m, m, m})}), layout);
  layout.group_size = 128;
  EXPECT_EQ(Smallest({Q4_1Row({s, s, s, s}, {m, m, m, m})}), layout);
  EXPECT_EQ(Smallest({Q4_1Row({s, s}, {m, m}), Q4_1Row({s, t}, {m, m})}), u4_min);
  EXPECT_EQ(Smallest({Q4_1Row({s, s}, {m, m}), Q4_1Row({s, s}, {m, m + 1})}), u4_min);
  // An odd number of groups in a row.
  EXPECT_EQ(Smallest({Q4_1Row({s, s, s}, {m, m, m})}), u4_min);
}

TEST(EncodingScan, SmallestOffset) {
  const uint16_t scale = 0x2C01;
  for (uint8_t zero = 0; zero < 16; ++zero) {
    const auto found = Smallest({Q4_1Row({scale, 0x1234}, {MinOfZero(scale, zero), 0x8000})});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->offset, OffsetType::kZero4) << int{zero};
    RowCodes regrouped;
    Regroup(Q4_1Row({scale, 0x1234}, {MinOfZero(scale, zero), 0x8000}), *found, &regrouped);
    EXPECT_EQ(int{regrouped.zeros[0]}, int{zero});
    EXPECT_EQ(int{regrouped.zeros[1]}, 0);
  }
  const auto off_by_one = static_cast<uint16_t>(MinOfZero(scale, 5) + 1);
  EXPECT_EQ(Smallest({Q4_1Row({scale}, {off_by_one})})->offset, OffsetType::kMinF16);
  EXPECT_EQ(Smallest({Q4_1Row({0}, {0x3C00})})->offset, OffsetType::kMinF16);  // a constant
  EXPECT_EQ(Smallest({Q4_1Row({scale}, {MinOfNone(scale)})})->offset, OffsetType::kNone);
  EXPECT_EQ(Smallest({Q4_1Row({scale, scale}, {MinOfNone(scale), MinOfZero(scale, 7)})})->offset,
            OffsetType::kZero4);
}

TEST(EncodingScan, MergedScansAnswerAsOne) {
  const uint16_t s = 0x2C01, t = 0x2C02, m = 0xB123;
  EncodingScan a, b, c, empty;
  a.Add(Q4_1Row({s, s, s, s}, {m, m, m, m}));
  b.Add(Q4_1Row({s, s, t, t}, {m, m, m, m}));
  empty.Merge(c);
  EXPECT_EQ(empty.Smallest(), std::nullopt);
  c.Merge(a);
  c.Merge(b);
  EXPECT_EQ(c.Smallest(), Smallest({Q4_1Row({s, s, t, t}, {m, m, m, m})}));
}

TEST(EncodingScan, WhatNoPackedLayoutHolds) {
  RowCodes row;
  row.Resize({PackedType::kI8, OffsetType::kNone, 32}, 64);
  row.scales = {0x3C00, 0x3C00};
  EXPECT_EQ(Smallest({row}), (PackedLayout{PackedType::kI8, OffsetType::kNone, 64}));
  row.codes[40] = 0x80;  // -128
  EXPECT_EQ(Smallest({row}), std::nullopt);
  row.codes[40] = 0;
  row.scales[1] = 0x7E00;
  EncodingScan scan;
  scan.Add(row);
  EXPECT_FALSE(scan.finite());
  EXPECT_EQ(scan.Smallest(), std::nullopt);
}

TEST(Regroup, LargerGroupsSplitExactly) {
  std::mt19937 random(3);
  for (const PackedLayout& layout : AllLayouts()) {
    SCOPED_TRACE(LayoutName(layout));
    const RowCodes row = RandomCodes(layout, 256, &random);
    PackedLayout to{layout.type, OffsetType::kNone, 32};
    if (layout.type == PackedType::kU4) to.offset = OffsetType::kMinF16;
    RowCodes split;
    Regroup(row, to, &split);
    EXPECT_EQ(Decoded(split), Decoded(row));
  }
}

}  // namespace
}  // namespace pocketlm
