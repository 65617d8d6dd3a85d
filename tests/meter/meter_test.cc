// What measurements are made of: summaries, memory figures, machine, bandwidth, identity of files.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/cpu_info.h"
#include "base/file.h"
#include "meter/machine.h"
#include "meter/memory_usage.h"
#include "meter/model_identity.h"
#include "meter/read_bandwidth.h"
#include "meter/timing.h"
#include "support/test_support.h"

namespace pocketlm::testing {
namespace {

using ::testing::ElementsAre;

TEST(SummarizeTest, MedianOfOddAndEvenCounts) {
  const Summary odd = Summarize({5.0, 1.0, 9.0});
  EXPECT_EQ(odd.median, 5.0);
  EXPECT_EQ(odd.min, 1.0);
  EXPECT_EQ(odd.max, 9.0);
  EXPECT_EQ(Summarize({4.0, 1.0, 2.0, 100.0}).median, 3.0);
  EXPECT_EQ(Summarize({7.0}).median, 7.0);
  EXPECT_EQ(Summarize({}).median, 0.0);
}

TEST(MemoryUsageTest, ReadsTheLinesOfProcStatus) {
  const MemoryUsage usage = internal::ParseProcStatus(
      "Name:\tVmHWM: 7 kB\nVmPeak:\t  999 kB\nVmHWM:\t     205 kB\nVmRSS:\t 1 kB\nRssAnon:\t 40 "
      "kB\n"
      "RssFile:\t  165 kB\nRssShmem:\t 3 kB\nVmSwap:\t    2 kB");
  EXPECT_EQ(usage.peak_rss_bytes, 205u * 1024);
  EXPECT_EQ(usage.anonymous_bytes, 40u * 1024);
  EXPECT_EQ(usage.file_bytes, 165u * 1024);
  EXPECT_EQ(usage.swap_bytes, 2u * 1024);
}

TEST(MemoryUsageTest, MissingAndMalformedLinesAreZero) {
  const MemoryUsage usage =
      internal::ParseProcStatus("VmHWM:\nRssAnon:\tmany\nRssFile: 99999999999999999999 kB\nVmSwap");
  EXPECT_EQ(usage.peak_rss_bytes, 0u);
  EXPECT_EQ(usage.anonymous_bytes, 0u);
  EXPECT_EQ(usage.file_bytes, 0u);
  EXPECT_EQ(usage.swap_bytes, 0u);
}

TEST(MemoryUsageTest, SeesWhatThisProcessTouches) {
  constexpr size_t kBytes = size_t{64} << 20;
  const MemoryUsage before = ReadMemoryUsage();
  ASSERT_GT(before.anonymous_bytes, 0u);
  auto buffer = AlignedBuffer<char>::Allocate(kBytes, "test");
  ASSERT_OK(buffer);
  std::fill_n(buffer->data(), kBytes, 'x');
  const MemoryUsage after = ReadMemoryUsage();
  EXPECT_GT(after.anonymous_bytes + after.swap_bytes, before.anonymous_bytes + kBytes * 9 / 10);
  EXPECT_GE(after.peak_rss_bytes, after.anonymous_bytes);
  EXPECT_EQ(buffer->data()[kBytes / 2], 'x');
}

TEST(MachineTest, ReadsModelAndFlags) {
  const Machine x86 = internal::ParseCpuInfo(
      "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu avx512_vnni fma avx2 avx2x "
      "xf16c\n"
      "\nprocessor\t: 1\nmodel name\t: Another\nflags\t\t: avx\n");
  EXPECT_EQ(x86.cpu_model, "Some CPU @ 2 GHz");
  EXPECT_THAT(x86.cpu_flags, ElementsAre("fma", "avx2", "avx512_vnni"));
  const Machine arm = internal::ParseCpuInfo("processor : 0\nFeatures : fp asimd asimddp i8mm\n");
  EXPECT_EQ(arm.cpu_model, "");
  EXPECT_THAT(arm.cpu_flags, ElementsAre("asimd", "asimddp", "i8mm"));
  EXPECT_TRUE(internal::ParseCpuInfo("").cpu_flags.empty());
}

TEST(MachineTest, AgreesWithTheDetectedFeatures) {
  const Machine machine = DescribeMachine();
  EXPECT_EQ(machine.cpus, AvailableCpus());
  const bool avx2 = std::find(machine.cpu_flags.begin(), machine.cpu_flags.end(), "avx2") !=
                    machine.cpu_flags.end();
  if (GetCpuFeatures().avx2_fma_f16c) EXPECT_TRUE(avx2);
}

TEST(ReadBandwidthTest, OfAFileAndABuffer) {
  const std::string path = JoinPath(ScratchDir(), "file");
  WriteFileOrDie(path, std::string(1000001, 'x'));
  for (const int threads : {1, 2, 3}) {
    ReadBandwidthOptions options;
    options.num_threads = threads;
    options.buffer_bytes = 1000003;
    options.repeats = 2;
    const auto measured = MeasureReadBandwidth(path, options);
    ASSERT_OK(measured);
    // A cache at 10 TB/s and a disk at 1 MB/s are the limits of belief.
    for (const double rate : {measured->file_bytes_s, measured->buffer_bytes_s}) {
      EXPECT_GT(rate, 1e6);
      EXPECT_LT(rate, 1e13);
    }
    EXPECT_EQ(measured->best(), std::max(measured->file_bytes_s, measured->buffer_bytes_s));
  }
}

TEST(ReadBandwidthTest, SmallAndMissingInputs) {
  ReadBandwidthOptions options;
  options.buffer_bytes = 1;
  options.repeats = 1;
  const auto no_file = MeasureReadBandwidth("", options);
  ASSERT_OK(no_file);
  EXPECT_EQ(no_file->file_bytes_s, 0.0);
  EXPECT_GT(no_file->buffer_bytes_s, 0.0);
  const std::string empty = JoinPath(ScratchDir(), "empty");
  WriteFileOrDie(empty, "");
  EXPECT_OK(MeasureReadBandwidth(empty, options));
  EXPECT_EQ(MeasureReadBandwidth(empty + "x", options).status().code(), StatusCode::kNotFound);
  for (const int threads : {0, -1, 1025}) {
    options.num_threads = threads;
    EXPECT_EQ(MeasureReadBandwidth("", options).status().code(), StatusCode::kInvalidArgument);
  }
}

// Holds the file to the same bytes under another name, and to every kind of difference.
TEST(ModelIdentityTest, TellsFilesApart) {
  const std::string folder = ScratchDir();
  const auto hash_of = [&](const std::string& content) {
    const std::string path = JoinPath(folder, "file");
    WriteFileOrDie(path, content);
    const auto identity = IdentifyModel(path);
    EXPECT_OK(identity);
    EXPECT_EQ(identity->file_bytes, content.size());
    EXPECT_EQ(identity->largest_file, path);
    EXPECT_EQ(identity->hash.size(), 16u);
    return identity->hash;
  };
  const std::string content((size_t{3} << 20) + 5, 'a');
  std::string first = content, last = content;
  first.front() = last.back() = 'b';
  const std::vector<std::string> hashes = {hash_of(content),       hash_of(first), hash_of(last),
                                           hash_of(content + "a"), hash_of(""),    hash_of("a")};
  for (size_t i = 0; i < hashes.size(); ++i) {
    for (size_t j = i + 1; j < hashes.size(); ++j) EXPECT_NE(hashes[i], hashes[j]) << i << j;
  }
  EXPECT_EQ(hash_of(content), hashes[0]);
}

TEST(ModelIdentityTest, FoldersCountTheirWeights) {
  const std::string folder = ScratchDir();
  EXPECT_EQ(IdentifyModel(folder).status().code(), StatusCode::kNotFound);
  WriteFileOrDie(JoinPath(folder, "b.safetensors"), "22");
  WriteFileOrDie(JoinPath(folder, "a.safetensors"), "333");
  WriteFileOrDie(JoinPath(folder, "config.json"), "not counted");
  const auto identity = IdentifyModel(folder);
  ASSERT_OK(identity);
  EXPECT_EQ(identity->file_bytes, 5u);
  EXPECT_EQ(identity->largest_file, JoinPath(folder, "a.safetensors"));
  WriteFileOrDie(JoinPath(folder, "a.safetensors"), "444");
  EXPECT_NE(IdentifyModel(folder)->hash, identity->hash);
  EXPECT_EQ(IdentifyModel(JoinPath(folder, "none")).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace pocketlm::testing
