#include "compress/convert.h"

#include <filesystem>
#include <utility>

#include "base/checksum.h"
#include "base/file.h"
#include "base/quote.h"
#include "model/plm_metadata.h"

namespace pocketlm {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string FileNameOf(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  return Shorten(fs::path(trimmed).filename().string(), 255);
}

// What the source says about itself beyond ModelSource.
Status ReadOrigin(const std::string& input, const ModelSource& source, ModelContent* content) {
  ordered_json from = {{"name", FileNameOf(input)}};
  content->name = fs::path(FileNameOf(input)).stem().string();
  if (source.gguf) {
    from["format"] = "gguf";
    for (const auto& [key, target] :
         {std::pair{"general.name", &content->name}, {"general.license", &content->license}}) {
      const auto text = source.gguf->GetString(key);
      if (text.ok()) *target = Shorten(std::string(*text), 200);
    }
  } else if (source.plm) {
    from["format"] = "plm";
    POCKETLM_ASSIGN_OR_RETURN(PlmDescription description, ReadPlmDescription(*source.plm));
    content->license = std::move(description.license);
    if (description.provenance.is_object()) from["provenance"] = std::move(description.provenance);
  } else {
    from["format"] = "safetensors";
    content->name = FileNameOf(input);
  }
  if (!source.folder) {
    POCKETLM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(input));
    from["bytes"] = file.bytes().size();
    from["xxh3"] = ChecksumText(Xxh3(file.bytes()));
  }
  content->provenance["source"] = std::move(from);
  return OkStatus();
}

Result<ordered_json> Convert(const std::string& input, const std::string& output,
                             const ConvertOptions& options, const ConversionProgress& progress) {
  POCKETLM_ASSIGN_OR_RETURN(const EncodingOptions encoding, ReadEncoding(output, options));
  POCKETLM_RETURN_IF_ERROR(CheckIsAnotherFile(input, output));
  POCKETLM_ASSIGN_OR_RETURN(const ModelSource source, OpenModelSource(input));
  POCKETLM_ASSIGN_OR_RETURN(const ModelContent content,
                            ReadModelContent(input, source, options.program));
  POCKETLM_ASSIGN_OR_RETURN(const ordered_json written,
                            WriteModel(content, output, encoding, options.num_threads, progress));
  ordered_json report = {{"input", input}};
  report.update(written);
  return report;
}

}  // namespace

Result<ModelContent> ReadModelContent(const std::string& input, const ModelSource& source,
                                      const std::string& program) {
  ModelContent content;
  content.provenance = {{"program", program}};
  POCKETLM_RETURN_IF_ERROR(ReadOrigin(input, source, &content));
  auto tensors = TensorsOf(source);
  if (!tensors.ok()) return tensors.status().WithContext(input);
  content.tensors = std::move(tensors).value();
  content.config = source.config;
  content.config.norm_weights_minus_one = false;
  content.tokenizer = source.tokenizer;
  content.chat_template = source.chat_template;
  content.end_tokens = source.end_tokens;
  return content;
}

Result<EncodingOptions> ReadEncoding(const std::string& output, const ConvertOptions& options) {
  POCKETLM_ASSIGN_OR_RETURN(const ModelFormat format, FormatOfPath(output));
  POCKETLM_ASSIGN_OR_RETURN(
      EncodingOptions encoding,
      ParseEncodingOptions(format, options.type, options.head_type, options.group_size,
                           options.offset, options.requantize));
  encoding.calibration = options.calibration;
  encoding.target_bytes = options.target_bytes;
  if (options.target_bytes > 0) {
    if (!options.type.empty() || !options.head_type.empty() || !options.offset.empty() ||
        options.group_size != 0)
      return InvalidArgument(
          "size: expected no type, head type, group size or offset beside it, since it decides "
          "them");
    if (format == ModelFormat::kFolder)
      return InvalidArgument("size: expected none for a folder, whose weights have one type");
    if (options.calibration.empty())
      return InvalidArgument("size: expected calibration texts to choose types by, got none");
  }
  return encoding;
}

Status CheckIsAnotherFile(const std::string& input, const std::string& output) {
  std::error_code error;
  if (!fs::equivalent(input, output, error)) return OkStatus();
  return InvalidArgument("expected another file as output, got the input " + output);
}

Result<ordered_json> ConvertModel(const std::string& input, const std::string& output,
                                  const ConvertOptions& options,
                                  const ConversionProgress& progress) {
  auto report = Convert(input, output, options, progress);
  if (!report.ok()) return report.status().WithContext("convert");
  return report;
}

}  // namespace pocketlm
