// The session options of the C API as the runtime takes them.
#pragma once

#include "capi/internal.h"

namespace pocketlm::capi {

inline Result<KvType> ToKvType(plm_kv_type type) {
  if (type == PLM_KV_F16) return KvType::kF16;
  if (type == PLM_KV_F32) return KvType::kF32;
  if (type == PLM_KV_INT8) return KvType::kI8;
  if (type == PLM_KV_INT4) return KvType::kI4;
  return InvalidArgument("session: KV type: expected a value of plm_kv_type (0 to 3), got " +
                         std::to_string(static_cast<int>(type)));
}

inline Result<SessionOptions> ReadSessionOptions(const plm_session_options* options) {
  POCKETLM_ASSIGN_OR_RETURN(const plm_session_options read,
                            ReadOptions(options, plm_session_options_default()));
  SessionOptions out;
  out.context_length = read.context_length;
  out.prefill_chunk = read.prefill_chunk;
  POCKETLM_ASSIGN_OR_RETURN(out.kv_k_type, ToKvType(read.kv_k_type));
  POCKETLM_ASSIGN_OR_RETURN(out.kv_v_type, ToKvType(read.kv_v_type));
  return out;
}

}  // namespace pocketlm::capi
