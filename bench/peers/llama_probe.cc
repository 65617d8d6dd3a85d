// What llama-bench does not measure of llama.cpp: the time from nothing to the first token, and decoding far down a
// context without reading so many tokens first. Built by setup_peers.py against the llama.h at hand; prints one JSON
// object.
//
//   llama_probe MODEL THREADS startup
//       {"load_ms", "first_token_ms"}: backend, model and context; then a prompt of 16 tokens
//   llama_probe MODEL THREADS depth f16|q8_0 DEPTH TOKENS
//       {"depth", "tokens", "tok_s"}: TOKENS single steps after DEPTH tokens in the cache
//
// The cache is filled with the state of one block of 512 random tokens, restored again and again at shifted positions
// through the public API; the tokens left over are read. llama.cpp rotates the shifted keys at the step that follows,
// which is not timed. Flash attention is on. Every failure is one line on standard error and exit status 1.
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int kBlockTokens = 512;
constexpr int kStartupTokens = 16;

using Clock = std::chrono::steady_clock;

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "llama_probe: %s\n", message.c_str());
  std::exit(1);
}

struct Deleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
  void operator()(llama_context* context) const { llama_free(context); }
};

// A model with one context.
class Peer {
 public:
  Peer(const char* path, int threads, ggml_type kv_type, int context_tokens) {
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    llama_backend_init();
    model_.reset(llama_model_load_from_file(path, llama_model_default_params()));
    if (!model_) Fail(std::string("cannot load ") + path);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(context_tokens);
    params.n_batch = params.n_ubatch = kBlockTokens;
    params.n_seq_max = 2;  // the second one receives the restored state
    params.kv_unified = true;
    params.n_threads = params.n_threads_batch = threads;
    params.type_k = params.type_v = kv_type;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    context_.reset(llama_init_from_model(model_.get(), params));
    if (!context_) Fail("cannot make a context of " + std::to_string(context_tokens) + " tokens");
  }

  // Reads random tokens that follow what is in the cache.
  void Read(int tokens) {
    const int vocab_size = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
    std::uniform_int_distribution<int> any(0, vocab_size - 1);
    while (tokens > 0) {
      std::vector<llama_token> batch(static_cast<size_t>(std::min(tokens, kBlockTokens)));
      for (llama_token& token : batch) token = any(random_);
      const int count = static_cast<int>(batch.size());
      if (llama_decode(context_.get(), llama_batch_get_one(batch.data(), count)) != 0)
        Fail("llama_decode failed");
      llama_synchronize(context_.get());
      tokens -= count;
    }
  }

  void FillTo(int depth) {
    const int blocks = depth / kBlockTokens;
    if (blocks > 0) {
      Read(kBlockTokens);
      std::vector<uint8_t> state(llama_state_seq_get_size(context_.get(), 0));
      llama_state_seq_get_data(context_.get(), state.data(), state.size(), 0);
      const llama_memory_t memory = llama_get_memory(context_.get());
      for (int block = 1; block < blocks; ++block) {
        if (llama_state_seq_set_data(context_.get(), state.data(), state.size(), 1) == 0)
          Fail("the state of a block could not be restored");
        llama_memory_seq_add(memory, 1, 0, -1, block * kBlockTokens);
        llama_memory_seq_cp(memory, 1, 0, -1, -1);
        llama_memory_seq_rm(memory, 1, -1, -1);
      }
      if (llama_memory_seq_pos_max(memory, 0) != blocks * kBlockTokens - 1)
        Fail("the cache did not fill as expected");
    }
    Read(depth - blocks * kBlockTokens);
  }

 private:
  std::mt19937 random_{0};
  std::unique_ptr<llama_model, Deleter> model_;
  std::unique_ptr<llama_context, Deleter> context_;
};

int Startup(const char* path, int threads) {
  const Clock::time_point start = Clock::now();
  Peer peer(path, threads, GGML_TYPE_F16, 2 * kBlockTokens);
  const double load_ms = MsSince(start);
  const Clock::time_point loaded = Clock::now();
  peer.Read(kStartupTokens);
  std::printf("{\"load_ms\": %.3f, \"first_token_ms\": %.3f}\n", load_ms, MsSince(loaded));
  return 0;
}

int Depth(const char* path, int threads, const std::string& kv, int depth, int tokens) {
  if (kv != "f16" && kv != "q8_0") Fail("expected f16 or q8_0, got " + kv);
  const ggml_type kv_type = kv == "f16" ? GGML_TYPE_F16 : GGML_TYPE_Q8_0;
  Peer peer(path, threads, kv_type, depth + tokens + 1);
  peer.FillTo(depth);
  peer.Read(1);  // warm-up, and the rotation of the shifted keys
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < tokens; ++i) peer.Read(1);
  std::printf("{\"depth\": %d, \"tokens\": %d, \"tok_s\": %.4f}\n", depth, tokens,
              tokens * 1e3 / MsSince(start));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string task = argc > 3 ? argv[3] : "";
  const int threads = argc > 2 ? std::atoi(argv[2]) : 0;
  if (threads > 0 && task == "startup" && argc == 4) return Startup(argv[1], threads);
  if (threads > 0 && task == "depth" && argc == 7) {
    const int depth = std::atoi(argv[5]), tokens = std::atoi(argv[6]);
    if (depth >= 0 && tokens > 0) return Depth(argv[1], threads, argv[4], depth, tokens);
  }
  std::fprintf(stderr, "usage: llama_probe MODEL THREADS startup | depth f16|q8_0 DEPTH TOKENS\n");
  return 2;
}
