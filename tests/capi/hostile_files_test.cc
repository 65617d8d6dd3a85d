// Hostile and broken model files through the API (field cases FILE-D*, FS-D1, FS-D3): a clean error or a model
// that works, never a crash, and no memory beyond a small multiple of the file.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "base/file.h"
#include "support/api_support.h"
#include "support/byte_builder.h"
#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"
#include "support/tiny_models.h"

namespace pocketlm::testing {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string WriteModel(const std::string& bytes) {
  const std::string path = JoinPath(ScratchDir(), "model.gguf");
  WriteFileOrDie(path, bytes);
  return path;
}

// An error text is one short line of valid UTF-8, whatever the file holds.
void ExpectOneShortLine(const std::string& message) {
  EXPECT_NE(message, "");
  EXPECT_LT(message.size(), 1000u) << message.substr(0, 200);
  EXPECT_TRUE(IsValidUtf8(message)) << ::testing::PrintToString(message);
  EXPECT_TRUE(std::none_of(message.begin(), message.end(), [](unsigned char c) {
    return c < 0x20;
  })) << ::testing::PrintToString(message);
}

// Loads a path in every way that there is. A model that loads must answer or fail with a status.
plm_status TryEverything(const std::string& path) {
  plm_tokenizer* tokenizer = nullptr;
  if (plm_tokenizer_load(path.c_str(), &tokenizer) == PLM_OK) {
    size_t count = 0;
    plm_tokenizer_encode(tokenizer, "a b", 3, nullptr, nullptr, 0, &count);
  }
  plm_tokenizer_free(tokenizer);
  char* report = nullptr;
  plm_inspect(path.c_str(), nullptr, &report);
  plm_string_free(report);
  plm_model_options options = plm_model_options_default();
  options.num_threads = 1;
  plm_model* model = nullptr;
  const plm_status status = plm_model_load(path.c_str(), &options, &model);
  if (status != PLM_OK) {
    ExpectOneShortLine(plm_last_error());
    EXPECT_EQ(model, nullptr);
    return status;
  }
  plm_session_options session_options = ContextOf(32);
  plm_session* session = nullptr;
  if (plm_session_create(model, &session_options, &session) == PLM_OK) {
    const plm_generate_options generate = Greedy(3);
    plm_session_set_text(session, "a b", 3, nullptr);
    plm_session_generate(session, &generate, nullptr, nullptr, nullptr, nullptr);
  }
  plm_session_free(session);
  plm_model_free(model);
  return status;
}

void ExpectRefused(const std::string& bytes, const std::string& what) {
  EXPECT_THAT(TryEverything(WriteModel(bytes)), AnyOf(PLM_DATA_ERROR, PLM_UNSUPPORTED)) << what;
}

ByteBuilder GgufHeader(uint64_t tensors, uint64_t keys) {
  ByteBuilder out;
  out.Raw("GGUF").U32(3).U64(tensors).U64(keys);
  return out;
}

std::string OneTensorFile(uint32_t num_dimensions, const std::vector<uint64_t>& dimensions) {
  ByteBuilder out = GgufHeader(1, 0);
  out.String("t").U32(num_dimensions);
  for (const uint64_t dimension : dimensions) out.U64(dimension);
  out.U32(0).U64(0).PadTo(32).Raw(std::string(256, '\0'));
  return out.bytes();
}

TEST(HostileFileTest, FileD1DimensionCountBeyondTheArray) {
  for (const uint32_t count : {5u, 9u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    ExpectRefused(OneTensorFile(count, std::vector<uint64_t>(9, 1)), std::to_string(count));
  }
}

TEST(HostileFileTest, FileD2ProductsThatWrap) {
  const std::vector<std::vector<uint64_t>> shapes = {
      {uint64_t{1} << 63, 4},
      {uint64_t{1} << 32, uint64_t{1} << 32},
      {(uint64_t{1} << 42) + 1, 896},
      {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX},
      {uint64_t{1} << 62, 1}};
  for (const auto& shape : shapes) {
    ExpectRefused(OneTensorFile(static_cast<uint32_t>(shape.size()), shape),
                  ::testing::PrintToString(shape));
  }
}

TEST(HostileFileTest, FileD3Alignment) {
  for (const uint32_t alignment : {0u, 3u, uint32_t{1} << 31}) {
    ByteBuilder out = GgufHeader(0, 1);
    out.String("general.alignment").U32(static_cast<uint32_t>(GgufType::kUint32)).U32(alignment);
    ExpectRefused(out.bytes(), std::to_string(alignment));
  }
  ByteBuilder text = GgufHeader(0, 1);
  text.String("general.alignment").U32(static_cast<uint32_t>(GgufType::kString)).String("32");
  ExpectRefused(text.bytes(), "string");
}

long PeakMemoryKb() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(HostileFileTest, FileD4LengthsBeyondTheFile) {
  const auto with_value = [](uint32_t type, const ByteBuilder& value) {
    ByteBuilder out = GgufHeader(0, 1);
    out.String("k").U32(type).Raw(value.bytes());
    return out.bytes();
  };
  const uint32_t string_type = static_cast<uint32_t>(GgufType::kString);
  const uint32_t array_type = static_cast<uint32_t>(GgufType::kArray);
  const long before = PeakMemoryKb();
  ExpectRefused(with_value(string_type, ByteBuilder().U64(uint64_t{1} << 30)), "string of 2^30");
  ExpectRefused(with_value(array_type, ByteBuilder().U32(0).U64(uint64_t{1} << 40)),
                "array of 2^40");
  ExpectRefused(with_value(array_type, ByteBuilder().U32(string_type).U64(uint64_t{1} << 61)),
                "strings");
  ExpectRefused(with_value(array_type, ByteBuilder().U32(array_type).U64(1).U32(array_type).U64(1)),
                "nested");
  ExpectRefused(GgufHeader(uint64_t{1} << 60, 0).bytes(), "tensor count");
  ExpectRefused(GgufHeader(0, uint64_t{1} << 60).bytes(), "key count");
  EXPECT_LT(PeakMemoryKb() - before, 16 * 1024);
}

TEST(HostileFileTest, FileD5SafetensorsHeaderLength) {
  const std::string source = TinyModelPath("tiny_llama", "hf");
  const long before = PeakMemoryKb();
  for (const uint64_t length : {UINT64_MAX, uint64_t{65}, uint64_t{0}, uint64_t{1} << 40}) {
    const std::string folder = ScratchDir();
    std::filesystem::copy(source, folder, std::filesystem::copy_options::recursive);
    ByteBuilder file;
    file.U64(length).Raw(std::string(56, ' '));
    WriteFileOrDie(JoinPath(folder, "model.safetensors"), file.bytes());
    EXPECT_THAT(TryEverything(folder), AnyOf(PLM_DATA_ERROR, PLM_UNSUPPORTED)) << length;
  }
  EXPECT_LT(PeakMemoryKb() - before, 32 * 1024);
}

TEST(HostileFileTest, TruncatedFilesAreRefused) {
  const auto bytes = ReadFile(TinyModelPath("tiny_llama", "model.gguf"));
  ASSERT_OK(bytes);
  const std::string path = JoinPath(ScratchDir(), "model.gguf");
  for (size_t size = 0; size < bytes->size(); size += size < 2000 ? 97 : 4999) {
    WriteFileOrDie(path, bytes->substr(0, size));
    EXPECT_THAT(TryEverything(path), AnyOf(PLM_DATA_ERROR, PLM_UNSUPPORTED, PLM_INVALID_ARGUMENT))
        << size << " bytes";
  }
}

// Whatever changed, the outcome is a status or a model that answers; the sanitizer builds watch the rest.
TEST(HostileFileTest, ChangedBytesNeverCrash) {
  const auto bytes = ReadFile(TinyModelPath("tiny_gemma3", "model.gguf"));
  ASSERT_OK(bytes);
  const std::string path = JoinPath(ScratchDir(), "model.gguf");
  std::mt19937 rng(1);
  int refused = 0;
  constexpr int kRounds = 300;
  const size_t header = bytes->find("token_embd.weight");
  ASSERT_NE(header, std::string::npos);
  for (int round = 0; round < kRounds; ++round) {
    std::string changed = *bytes;
    for (int i = 0; i < 1 + round % 3; ++i)
      changed[rng() % (header + 2000)] = static_cast<char>(rng());
    WriteFileOrDie(path, changed);
    refused += TryEverything(path) != PLM_OK;
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, kRounds);
}

TEST(HostileFileTest, ShapesThatContradictTheConfigAreNamed) {
  const auto bytes = ReadFile(TinyModelPath("tiny_llama", "hf/config.json"));
  ASSERT_OK(bytes);
  for (const char* key : {"hidden_size", "intermediate_size", "num_attention_heads",
                          "num_key_value_heads", "vocab_size", "num_hidden_layers"}) {
    const std::string folder = ScratchDir();
    std::filesystem::copy(TinyModelPath("tiny_llama", "hf"), folder,
                          std::filesystem::copy_options::recursive);
    for (const json& value :
         {json(0), json(-1), json(1 << 20), json("36"), json(99), json(nullptr)}) {
      json config = json::parse(*bytes);
      config[key] = value;
      WriteFileOrDie(JoinPath(folder, "config.json"), config.dump());
      const plm_status status = TryEverything(folder);
      EXPECT_THAT(status, AnyOf(PLM_DATA_ERROR, PLM_UNSUPPORTED, PLM_NOT_FOUND))
          << key << " = " << value;
    }
  }
}

TEST(HostileFileTest, NamesThatWouldSpoilAnErrorTextAreQuoted) {
  const std::string name = "a\nb\x1b[31m" + std::string(100'000, 'c');
  EXPECT_EQ(TryEverything(WriteModel(GgufWriter().AddString("general.architecture", name).Build())),
            PLM_UNSUPPORTED);
  EXPECT_EQ(TryEverything(
                WriteModel(GgufWriter().AddString("general.architecture", "\xff" + name).Build())),
            PLM_UNSUPPORTED);
  const std::string folder = ScratchDir();
  std::filesystem::copy(TinyModelPath("tiny_llama", "hf"), folder,
                        std::filesystem::copy_options::recursive);
  const std::string path = JoinPath(folder, "config.json");
  json config = json::parse(*ReadFile(path));
  config["model_type"] = name;
  WriteFileOrDie(path, config.dump());
  EXPECT_EQ(TryEverything(folder), PLM_UNSUPPORTED);
  config["model_type"] = "llama";
  config["hidden_size"] = name;
  WriteFileOrDie(path, config.dump());
  EXPECT_EQ(TryEverything(folder), PLM_DATA_ERROR);
}

TEST(HostileFileTest, FoldersWithMissingFilesAreRefused) {
  for (const char* missing : {"config.json", "tokenizer.json", "model.safetensors"}) {
    const std::string folder = ScratchDir();
    std::filesystem::copy(TinyModelPath("tiny_llama", "hf"), folder,
                          std::filesystem::copy_options::recursive);
    std::filesystem::remove(JoinPath(folder, missing));
    plm_model* model = nullptr;
    EXPECT_NE(plm_model_load(folder.c_str(), nullptr, &model), PLM_OK);
    EXPECT_THAT(plm_last_error(), HasSubstr(std::string(missing).substr(0, 5)));
  }
  plm_model* model = nullptr;
  EXPECT_NE(plm_model_load(ScratchDir().c_str(), nullptr, &model), PLM_OK);
  EXPECT_NE(plm_model_load("", nullptr, &model), PLM_OK);
  EXPECT_NE(plm_model_load("/dev/null", nullptr, &model), PLM_OK);
}

TEST(FilePathTest, FsD1PathsOutsideAscii) {
  const std::string folder = JoinPath(ScratchDir(), "Modèle_試験_Ключ");
  std::filesystem::create_directories(folder);
  const std::string file = JoinPath(folder, "модель 模型.gguf");
  std::filesystem::copy_file(TinyModelPath("tiny_qwen3", "model.gguf"), file);
  EXPECT_EQ(TryEverything(file), PLM_OK);
  std::filesystem::copy(TinyModelPath("tiny_gemma3", "hf"), folder,
                        std::filesystem::copy_options::recursive);
  EXPECT_EQ(TryEverything(folder), PLM_OK);
}

TEST(FilePathTest, FsD3SideFilesWithCrlfAndByteOrderMark) {
  ScriptedModel scripted;
  scripted.file.Script('x', {"one", " two"}, scripted.im_end);
  scripted.file.set_chat_template(kChatMl);
  BigramModel::HuggingFaceOptions options;
  options.crlf = true;
  options.generation_eos = {scripted.eos, scripted.im_end};
  const plm::Model model = plm::Model::Load(scripted.file.WriteHuggingFace(options));
  EXPECT_TRUE(model.has_chat_template());
  plm::Session session(model);
  session.SetTokens({'x'});
  EXPECT_EQ(session.Generate().text, "one two");
}

}  // namespace
}  // namespace pocketlm::testing
