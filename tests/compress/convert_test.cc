// Conversions end to end: values, exact codes, errors, what is left behind.
#include "compress/convert.h"

#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "compress/new_model.h"
#include "gmock/gmock.h"
#include "model/model_source.h"
#include "support/safetensors_writer.h"
#include "support/test_support.h"
#include "support/tiny_models.h"

namespace pocketlm {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ScratchDir;

// Every value of every tensor, by Hugging Face name.
using Values = std::map<std::string, std::vector<float>>;

Values ValuesOf(const std::string& path) {
  Values out;
  auto source = OpenModelSource(path);
  EXPECT_OK(source);
  if (!source.ok()) return out;
  auto tensors = TensorsOf(*source);
  EXPECT_OK(tensors);
  if (!tensors.ok()) return out;
  for (const ModelTensor& tensor : *tensors) {
    std::vector<float>& values = out[tensor.hf_name];
    values.resize(tensor.rows->rows() * tensor.rows->cols());
    for (size_t r = 0; r < tensor.rows->rows(); ++r)
      tensor.rows->Values(r, values.data() + r * tensor.rows->cols());
  }
  return out;
}

// Compares tensor by tensor, so that a failure names one.
void ExpectSameValues(const std::string& a, const std::string& b) {
  const Values x = ValuesOf(a), y = ValuesOf(b);
  EXPECT_FALSE(x.empty());
  EXPECT_EQ(x.size(), y.size());
  for (const auto& [name, values] : x) {
    ASSERT_TRUE(y.contains(name)) << name;
    EXPECT_TRUE(values == y.at(name)) << name;
  }
}

ConvertOptions Type(const std::string& type) {
  ConvertOptions options;
  options.type = type;
  return options;
}

std::vector<std::string> TypesOf(const ordered_json& report) {
  std::vector<std::string> out;
  for (const auto& type : report.at("types")) out.push_back(type.at("type"));
  return out;
}

bool AllExact(const ordered_json& report) {
  for (const auto& type : report.at("types")) {
    if (!type.at("exact").get<bool>()) return false;
  }
  return true;
}

std::vector<std::string> FilesIn(const std::string& directory) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(directory))
    out.push_back(entry.path().filename().string());
  return out;
}

std::string Bytes(const std::string& path) {
  auto bytes = ReadFile(path);
  EXPECT_OK(bytes);
  return bytes.ok() ? *bytes : "";
}

// A small model whose rows are whole groups of 128; some tests need a head of its own.
std::string WriteConfig(const std::string& directory, bool tied) {
  const std::string path = JoinPath(directory, "config.json");
  testing::WriteFileOrDie(
      path,
      std::string(
          R"({"model_type": "qwen3", "head_dim": 32, "hidden_size": 128, "intermediate_size": 256,)") +
          R"("num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,)" +
          R"("max_position_embeddings": 512, "vocab_size": 301, "tie_word_embeddings": )" +
          (tied ? "true}" : "false}"));
  return path;
}

std::string NewSmallModel(const std::string& directory, const std::string& name,
                          const ConvertOptions& encoding, bool tied = true) {
  NewModelOptions options;
  options.config = WriteConfig(directory, tied);
  options.encoding = encoding;
  const std::string path = JoinPath(directory, name);
  EXPECT_OK(WriteNewModel(path, options, {}));
  return path;
}

TEST(Convert, TinyModelsBecomeF16WithoutLoss) {
  // The golden GGUF file, made with the gguf package, is the oracle of names, shapes, row order and norms.
  for (const std::string& name : testing::TinyModelNames()) {
    for (const std::string& form : testing::TinyModelForms(name)) {
      SCOPED_TRACE(form);
      const std::string directory = ScratchDir();
      const std::string gguf = JoinPath(directory, "out.gguf"),
                        plm = JoinPath(directory, "out.plm");
      const auto to_gguf = ConvertModel(form, gguf, Type("f16"), {});
      const auto to_plm = ConvertModel(form, plm, Type("f16"), {});
      ASSERT_OK(to_plm);
      EXPECT_TRUE(AllExact(*to_plm));
      EXPECT_TRUE(to_plm->at("verified").get<bool>());
      ExpectSameValues(form, plm);
      if (name == testing::kFolderOnlyModel) {  // its scale of attention is not 1 / sqrt(head_dim)
        EXPECT_EQ(to_gguf.status().code(), StatusCode::kUnsupported);
        EXPECT_THAT(to_gguf.status().message(), HasSubstr("attention scale"));
        continue;
      }
      ASSERT_OK(to_gguf);
      EXPECT_TRUE(AllExact(*to_gguf));
      const std::string golden = testing::TinyModelPath(name, "model.gguf");
      const Values ours = ValuesOf(gguf);
      for (auto& [tensor, expected] : ValuesOf(golden)) {
        ASSERT_TRUE(ours.contains(tensor)) << tensor;
        if (tensor == "rope_freqs.weight") {  // computed, not copied
          ASSERT_EQ(ours.at(tensor).size(), expected.size());
          for (size_t i = 0; i < expected.size(); ++i)
            EXPECT_NEAR(ours.at(tensor)[i], expected[i], 1e-5f * expected[i]);
        } else {
          EXPECT_TRUE(ours.at(tensor) == expected) << tensor;
        }
      }
      // And back.
      const std::string back = JoinPath(directory, "back.plm");
      ASSERT_OK(ConvertModel(gguf, back, Type("f16"), {}));
      ExpectSameValues(gguf, back);
    }
  }
}

TEST(Convert, TokenizerTemplateAndEndTokensComeAlong) {
  for (const std::string& name : testing::TinyModelNamesWithout(testing::kFolderOnlyModel)) {
    SCOPED_TRACE(name);
    const std::string form = testing::TinyModelForms(name)[0];
    const std::string directory = ScratchDir();
    auto source = OpenModelSource(form);
    ASSERT_OK(source);
    const auto meant = Tokenizer::Create(source->tokenizer);
    ASSERT_OK(meant);
    for (const char* ending : {"out.plm", "out.gguf"}) {
      const std::string path = JoinPath(directory, ending);
      const auto report = ConvertModel(form, path, Type("f16"), {});
      ASSERT_OK(report);
      auto written = OpenModelSource(path);
      ASSERT_OK(written);
      EXPECT_EQ(written->chat_template, source->chat_template);
      EXPECT_EQ(written->end_tokens, source->end_tokens);
      const auto stored = Tokenizer::Create(written->tokenizer);
      ASSERT_OK(stored);
      EXPECT_EQ((*stored)->bos_id(), (*meant)->bos_id());
      EXPECT_EQ((*stored)->add_bos(), (*meant)->add_bos());
      const std::string text = "Hello there, the model of 12 bytes\n\xE4\xBD\xA0\xE5\xA5\xBD  x";
      EXPECT_EQ((*stored)->Encode(text), (*meant)->Encode(text));
    }
  }
}

TEST(Convert, RowsThatFillNoGroupBecomeF16WithANote) {
  const std::string out = JoinPath(ScratchDir(), "out.plm");
  const auto report =
      ConvertModel(testing::TinyModelPath("tiny_qwen3", "hf"), out, Type("int4"), {});
  ASSERT_OK(report);
  // hidden_size 48, intermediate_size 80, 112 values of heads: none is a multiple of 32.
  EXPECT_THAT(TypesOf(*report), ElementsAre("F16", "F32"));
  EXPECT_THAT(report->at("notes").dump(), HasSubstr("rows of 48 are no whole groups of 64"));
  const auto smaller =
      ConvertModel(testing::TinyModelPath("tiny_llama", "hf"), out, Type("int4"), {});
  ASSERT_OK(smaller);
  // intermediate_size 96: groups of 32.
  EXPECT_THAT(TypesOf(*smaller), ElementsAre("F16", "F32", "u4 g32 zero4"));
}

TEST(Convert, Int4SurvivesTheWayThroughQ4_1) {
  const std::string directory = ScratchDir();
  for (const char* offset : {"zero4", "min_f16", "none"}) {
    for (const uint32_t group_size : {32u, 64u, 128u}) {
      SCOPED_TRACE(std::string(offset) + " " + std::to_string(group_size));
      ConvertOptions encoding = Type("int4");
      encoding.offset = offset;
      encoding.group_size = group_size;
      const std::string plm = NewSmallModel(directory, "a.plm", encoding);
      const std::string gguf = JoinPath(directory, "b.gguf"), back = JoinPath(directory, "c.plm");
      const auto to_gguf = ConvertModel(plm, gguf, Type("q4_1"), {});
      ASSERT_OK(to_gguf);
      EXPECT_TRUE(AllExact(*to_gguf));
      EXPECT_THAT(TypesOf(*to_gguf), ElementsAre("F32", "Q4_1"));
      ExpectSameValues(plm, gguf);
      const auto to_plm = ConvertModel(gguf, back, Type("int4"), {});
      ASSERT_OK(to_plm);
      EXPECT_TRUE(AllExact(*to_plm));
      EXPECT_THAT(TypesOf(*to_plm),
                  ElementsAre("F32", "u4 g" + std::to_string(group_size) + " " + offset));
      ExpectSameValues(plm, back);
      auto a = PlmFile::Open(plm), c = PlmFile::Open(back);
      ASSERT_OK(a);
      ASSERT_OK(c);
      for (const TensorView& tensor : a->tensors()) {
        const TensorView* other = c->FindTensor(tensor.name);
        ASSERT_NE(other, nullptr);
        EXPECT_TRUE(std::ranges::equal(tensor.data, other->data)) << tensor.name;
      }
    }
  }
}

TEST(Convert, Q4_0HasNoOffsets) {
  const std::string directory = ScratchDir();
  const std::string gguf = NewSmallModel(directory, "a.gguf", Type("q4_0"));
  const std::string plm = JoinPath(directory, "b.plm"), back = JoinPath(directory, "c.gguf");
  const auto report = ConvertModel(gguf, plm, Type("int4"), {});
  ASSERT_OK(report);
  EXPECT_TRUE(AllExact(*report));
  EXPECT_THAT(TypesOf(*report), ElementsAre("F32", "u4 g32 none"));
  const auto again = ConvertModel(plm, back, Type("q4_0"), {});
  ASSERT_OK(again);
  EXPECT_TRUE(AllExact(*again));
  ExpectSameValues(gguf, back);
  // Zero points fit no Q4_0.
  const auto rounded =
      ConvertModel(NewSmallModel(directory, "d.plm", Type("int4")), back, Type("q4_0"), {});
  ASSERT_OK(rounded);
  EXPECT_FALSE(AllExact(*rounded));
}

TEST(Convert, Int8SurvivesTheWayThroughQ8_0) {
  const std::string directory = ScratchDir();
  const std::string plm = NewSmallModel(directory, "a.plm", Type("int8"));
  const std::string gguf = JoinPath(directory, "b.gguf"), back = JoinPath(directory, "c.plm");
  const auto to_gguf = ConvertModel(plm, gguf, Type("q8_0"), {});
  const auto to_plm = ConvertModel(gguf, back, Type("int8"), {});
  ASSERT_OK(to_gguf);
  ASSERT_OK(to_plm);
  EXPECT_TRUE(AllExact(*to_gguf));
  EXPECT_TRUE(AllExact(*to_plm));
  EXPECT_THAT(TypesOf(*to_plm), ElementsAre("F32", "i8 g64"));
  ExpectSameValues(plm, back);
}

TEST(Convert, TheCodeMinus128IsQuantizedAnewAndSaidSo) {
  const std::string directory = ScratchDir();
  const std::string gguf = NewSmallModel(directory, "a.gguf", Type("q8_0"));
  auto file = GgufFile::Open(gguf);
  ASSERT_OK(file);
  const TensorView* tensor = file->FindTensor("blk.1.attn_v.weight");
  ASSERT_NE(tensor, nullptr);
  std::string bytes = Bytes(gguf);
  const std::string data(reinterpret_cast<const char*>(tensor->data.data()), tensor->data.size());
  const size_t at = bytes.find(data);
  ASSERT_NE(at, std::string::npos);
  bytes[at + 34 + 2 + 5] = '\x80';  // row 0, block 1, value 5
  testing::WriteFileOrDie(gguf, bytes);
  const auto report = ConvertModel(gguf, JoinPath(directory, "b.plm"), Type("int8"), {});
  ASSERT_OK(report);
  EXPECT_THAT(TypesOf(*report), ElementsAre("F32", "i8 g32", "i8 g64"));
  EXPECT_THAT(report->at("notes").dump(),
              HasSubstr("layers.1.self_attn.v_proj.weight: the codes of "
                        "Q8_0 do not fit (-128)"));
  // Q8_0 itself has the code.
  const auto kept = ConvertModel(gguf, JoinPath(directory, "c.gguf"), Type("q8_0"), {});
  ASSERT_OK(kept);
  EXPECT_TRUE(AllExact(*kept));
}

TEST(Convert, HeadTypes) {
  const std::string directory = ScratchDir();
  const std::string out = JoinPath(directory, "out.plm");
  ConvertOptions eight = Type("int4");
  eight.head_type = "int8";
  for (const bool tied : {true, false}) {
    const std::string source = NewSmallModel(directory, "a.plm", eight, tied);
    // A head that is stored in 8 bits stays so …
    const auto kept = ConvertModel(source, out, {}, {});
    ASSERT_OK(kept);
    EXPECT_TRUE(AllExact(*kept));
    EXPECT_THAT(TypesOf(*kept), ElementsAre("F32", "i8 g64", "u4 g64 zero4"));
    EXPECT_EQ(kept->at("types")[1].at("tensors"), tied ? 1 : 2);
    // … unless asked for otherwise.
    ConvertOptions four;
    four.head_type = "int4";
    const auto forced = ConvertModel(source, out, four, {});
    ASSERT_OK(forced);
    EXPECT_THAT(TypesOf(*forced), ElementsAre("F32", "u4 g64 zero4"));
    EXPECT_FALSE(AllExact(*forced));
    auto written = OpenModelSource(out);
    ASSERT_OK(written);
    EXPECT_EQ(written->config.tie_word_embeddings, tied);
  }
}

TEST(Convert, RequantizeRoundsAnew) {
  const std::string directory = ScratchDir();
  const std::string source = NewSmallModel(directory, "a.plm", Type("int4"));
  ConvertOptions options;
  options.requantize = true;
  options.offset = "min_f16";
  options.group_size = 32;
  const auto report = ConvertModel(source, JoinPath(directory, "b.plm"), options, {});
  ASSERT_OK(report);
  EXPECT_THAT(TypesOf(*report), ElementsAre("F32", "u4 g32 min_f16"));
}

TEST(Convert, SmolLm2IsExact) {
  POCKETLM_REQUIRE_MODEL(model, "smollm2-135m");
  const std::string out = JoinPath(ScratchDir(), "out.plm");
  const auto report = ConvertModel(model, out, {}, {});
  ASSERT_OK(report);
  EXPECT_TRUE(AllExact(*report));
  EXPECT_THAT(TypesOf(*report), ElementsAre("F32", "i8 g32", "u4 g32 min_f16"));
  ExpectSameValues(model, out);
}

TEST(Convert, GemmaKeepsWhatEightBitsHold) {
  POCKETLM_REQUIRE_MODEL(model, "gemma3-270m");
  const std::string out = JoinPath(ScratchDir(), "out.plm");
  const auto report = ConvertModel(model, out, Type("int8"), {});
  ASSERT_OK(report);
  // Q8_0 and Q5_0 as they are; Q4_K and Q6_K are rounded.
  EXPECT_THAT(TypesOf(*report), ElementsAre("F32", "i8 g32", "i8 g64"));
  EXPECT_EQ(report->at("types")[1].at("tensors"), 10 + 81);
  EXPECT_TRUE(report->at("types")[1].at("exact").get<bool>());
  EXPECT_EQ(report->at("types")[2].at("tensors"), 27 + 9);
  EXPECT_FALSE(report->at("types")[2].at("exact").get<bool>());
  EXPECT_LT(report->at("types")[2].at("relative_rms_error").get<double>(), 0.01);
}

TEST(Convert, ThreadsDoNotChangeAByte) {
  const std::string directory = ScratchDir();
  std::vector<std::string> files;
  for (const int threads : {1, 2, 5}) {
    ConvertOptions options = Type("int4");
    options.num_threads = threads;
    files.push_back(Bytes(NewSmallModel(directory, "a.plm", options)));
  }
  EXPECT_TRUE(files[0] == files[1]);
  EXPECT_TRUE(files[0] == files[2]);
}

TEST(Convert, ProgressRises) {
  const std::string directory = ScratchDir();
  const std::string source = NewSmallModel(directory, "a.plm", Type("f16"));
  std::vector<double> seen;
  ASSERT_OK(ConvertModel(source, JoinPath(directory, "b.plm"), {}, [&seen](double fraction) {
    seen.push_back(fraction);
    return true;
  }));
  EXPECT_GT(seen.size(), 20u);
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  EXPECT_EQ(seen.front(), 0.0);
  EXPECT_EQ(seen.back(), 1.0);
}

TEST(Convert, ACancelAtAnyPointLeavesTheOldFile) {
  const std::string directory = ScratchDir();
  const std::string source = NewSmallModel(ScratchDir(), "a.plm", Type("f16"));
  const std::string out = JoinPath(directory, "b.gguf");
  testing::WriteFileOrDie(out, "old");
  for (const double at : {0.0, 0.05, 0.3, 0.65, 0.71, 0.95}) {
    const auto report =
        ConvertModel(source, out, Type("q8_0"), [at](double fraction) { return fraction < at; });
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
    EXPECT_EQ(Bytes(out), "old");
    EXPECT_THAT(FilesIn(directory), ElementsAre("b.gguf"));
  }
  ASSERT_OK(ConvertModel(source, out, Type("q8_0"), {}));
  EXPECT_THAT(FilesIn(directory), ElementsAre("b.gguf"));
  EXPECT_GT(Bytes(out).size(), 1000u);
}

TEST(Convert, OutputsThatAreRefused) {
  const std::string directory = ScratchDir();
  const std::string source = NewSmallModel(directory, "a.plm", Type("int4"));
  const std::string before = Bytes(source);
  const auto fails = [&](const std::string& out, StatusCode code, const char* text) {
    const auto report = ConvertModel(source, out, {}, {});
    ASSERT_FALSE(report.ok()) << out;
    EXPECT_EQ(report.status().code(), code) << out;
    EXPECT_THAT(report.status().message(), HasSubstr(text));
  };
  fails(source, StatusCode::kInvalidArgument, "expected another file as output, got the input");
  fs::create_symlink(source, JoinPath(directory, "link.plm"));
  fails(JoinPath(directory, "link.plm"), StatusCode::kInvalidArgument, "got the input");
  fs::create_hard_link(source, JoinPath(directory, "hard.plm"));
  fails(JoinPath(directory, "hard.plm"), StatusCode::kInvalidArgument, "got the input");
  fails(JoinPath(directory, "x.bin"), StatusCode::kInvalidArgument, "ends in .plm, .gguf or");
  fails("", StatusCode::kInvalidArgument, "ends in .plm, .gguf or");
  fails(JoinPath(directory, "none/x.plm"), StatusCode::kNotFound, "none/x.plm");
  fs::create_directory(JoinPath(directory, "folder.plm"));
  fails(JoinPath(directory, "folder.plm"), StatusCode::kInvalidArgument, "got something else");
  const std::string pipe = JoinPath(directory, "pipe.plm");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fails(pipe, StatusCode::kInvalidArgument, "got something else");
  EXPECT_EQ(Bytes(source), before);
}

TEST(Convert, OptionsThatAreRefused) {
  const std::string directory = ScratchDir();
  const std::string source = NewSmallModel(directory, "a.plm", Type("int4"));
  const auto fails = [&](const char* ending, const ConvertOptions& options, const char* text) {
    const std::string out = JoinPath(directory, ending);
    const auto report = ConvertModel(source, out, options, {});
    ASSERT_FALSE(report.ok()) << text;
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(report.status().message(), HasSubstr(text));
    EXPECT_FALSE(FileExists(out));
  };
  fails("b.plm", Type("q4_1"), "type: expected int4, int8, f16 for a .plm file, got 'q4_1'");
  fails("b.gguf", Type("int4"), "type: expected q4_0, q4_1, q8_0, f16 for a .gguf file");
  fails("b.plm", Type("INT4"), "got 'INT4'");
  ConvertOptions options;
  options.head_type = "int3";
  fails("b.plm", options, "head type: expected int4, int8, f16");
  options = {};
  options.group_size = 48;
  fails("b.plm", options, "group size: expected 32, 64 or 128, got 48");
  options.group_size = 64;
  fails("b.gguf", options, "group size: expected 32 for a .gguf file, got 64");
  options = {};
  options.offset = "zero5";
  fails("b.plm", options, "offset: expected none, zero4 or min_f16, got 'zero5'");
  options.offset = "zero4";
  fails("b.gguf", options, "offset: expected no such option for a .gguf file");
  options = {};
  options.num_threads = -1;
  fails("b.plm", options, "threads: expected 0 to 1024, got -1");
  options.num_threads = 5000;
  fails("b.plm", options, "threads: expected 0 to 1024, got 5000");
}

TEST(Convert, InputsThatAreRefused) {
  const std::string directory = ScratchDir();
  const std::string out = JoinPath(directory, "out.plm");
  EXPECT_EQ(ConvertModel(JoinPath(directory, "none.gguf"), out, {}, {}).status().code(),
            StatusCode::kNotFound);
  const std::string junk = JoinPath(directory, "junk.gguf");
  for (const std::string& bytes : {std::string(), std::string("GGUF"), std::string(5000, 'x')}) {
    testing::WriteFileOrDie(junk, bytes);
    EXPECT_EQ(ConvertModel(junk, out, {}, {}).status().code(), StatusCode::kDataError);
  }
  const std::string whole = Bytes(NewSmallModel(directory, "a.gguf", Type("q4_1")));
  testing::WriteFileOrDie(junk, whole.substr(0, whole.size() - 40));
  EXPECT_EQ(ConvertModel(junk, out, {}, {}).status().code(), StatusCode::kDataError);
  EXPECT_FALSE(FileExists(out));
}

// A copy of a tiny model's folder in which one value of a tensor is replaced.
std::string FolderWithValue(const std::string& tensor_name, size_t at, float value) {
  const std::string directory = ScratchDir();
  const std::string original = testing::TinyModelPath("tiny_llama_untied", "hf");
  auto folder = HfFolder::Open(original);
  EXPECT_OK(folder);
  for (const auto& entry : fs::directory_iterator(original))
    fs::copy(entry.path(), fs::path(directory) / entry.path().filename());
  testing::SafetensorsWriter writer;
  for (const TensorView* tensor : folder->tensors()) {
    const auto rows = MakeStoredRows(*tensor);
    std::vector<float> values(rows->rows() * rows->cols());
    for (size_t r = 0; r < rows->rows(); ++r) rows->Values(r, values.data() + r * rows->cols());
    if (tensor->name == tensor_name) values[at] = value;
    writer.AddFloats(tensor->name, tensor->shape, values);
  }
  testing::WriteFileOrDie(JoinPath(directory, "model.safetensors"), writer.Build());
  return directory;
}

TEST(Convert, ValuesThatDoNotFitNameTensorAndRow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::string directory = ScratchDir();
  const auto fails = [&](const char* tensor, size_t at, float value, const char* type,
                         const char* text) {
    const std::string out = JoinPath(directory, type[0] == 'q' ? "out.gguf" : "out.plm");
    const auto report = ConvertModel(FolderWithValue(tensor, at, value), out, Type(type), {});
    ASSERT_FALSE(report.ok()) << text;
    EXPECT_EQ(report.status().code(), StatusCode::kDataError);
    EXPECT_THAT(report.status().message(), HasSubstr(text));
    EXPECT_THAT(FilesIn(directory), IsEmpty());
  };
  const char* down = "model.layers.1.mlp.down_proj.weight";
  const char* named = "layers.1.mlp.down_proj.weight: row 2: expected finite values, got NaN";
  for (const char* type : {"int4", "int8", "f16", "q4_0", "q4_1", "q8_0"}) {
    fails(down, 2 * 96 + 5, nan, type, named);
    fails(down, 2 * 96 + 5, -infinity, type, named);
    fails(down, 2 * 96 + 5, 1e30f, type, "layers.1.mlp.down_proj.weight: row 2: expected values");
  }
  fails("model.norm.weight", 3, nan, "int4", "norm.weight: row 0: expected finite values");
}

}  // namespace
}  // namespace pocketlm
