// plm_comparison_….
#include "runtime/compare.h"

#include <memory>
#include <utility>

#include "capi/internal.h"
#include "pocketlm/measure.h"

using namespace pocketlm;        // NOLINT: this file defines extern "C" functions only
using namespace pocketlm::capi;  // NOLINT

struct plm_comparison {
  Comparison comparison;
};

namespace {

plm_comparison_result ToCResult(const ComparisonResult& result) {
  return {sizeof(plm_comparison_result),
          result.a.tokens,
          result.a.bytes,
          result.positions,
          result.kl_mean,
          result.kl_p99,
          result.kl_max,
          result.top1_agreement,
          result.a.nll,
          result.b.nll,
          result.a.perplexity(),
          result.b.perplexity(),
          result.a.bits_per_byte(),
          result.b.bits_per_byte()};
}

}  // namespace

extern "C" {

plm_status plm_comparison_create(plm_session* a, plm_session* b,
                                 const plm_perplexity_options* options, plm_comparison** out) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(a);
    POCKETLM_REQUIRE_ARGUMENT(b);
    POCKETLM_REQUIRE_ARGUMENT(out);
    POCKETLM_ASSIGN_OR_RETURN(const plm_perplexity_options read,
                              ReadOptions(options, plm_perplexity_options_default()));
    POCKETLM_ASSIGN_OR_RETURN(
        Comparison comparison,
        Comparison::Create(a->session.get(), b->session.get(), {read.score_all, read.max_windows}));
    *out = new plm_comparison{std::move(comparison)};
    return OkStatus();
  });
}

void plm_comparison_free(plm_comparison* comparison) { delete comparison; }

plm_status plm_comparison_add(plm_comparison* comparison, const char* text, size_t text_bytes,
                              plm_progress_callback progress, void* user,
                              plm_comparison_result* result) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(comparison);
    POCKETLM_REQUIRE_ARGUMENT(result);
    POCKETLM_ASSIGN_OR_RETURN(const std::string_view input, TextArgument(text, text_bytes));
    POCKETLM_RETURN_IF_ERROR(WriteResult(plm_comparison_result{}, result));
    ProgressSink sink;
    if (progress != nullptr)
      sink = [progress, user](double fraction) { return progress(fraction, user); };
    POCKETLM_ASSIGN_OR_RETURN(const ComparisonResult compared,
                              comparison->comparison.Add(input, sink));
    return WriteResult(ToCResult(compared), result);
  });
}

plm_status plm_comparison_total(const plm_comparison* comparison, plm_comparison_result* result) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(comparison);
    POCKETLM_REQUIRE_ARGUMENT(result);
    return WriteResult(ToCResult(comparison->comparison.Total()), result);
  });
}

}  // extern "C"
