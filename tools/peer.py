"""llama.cpp as the peer: a thin layer over the low-level functions of the package llama-cpp-python.

On a machine whose AVX-512 or AMX cannot be used although the CPU reports it (some virtual machines), a native
build of the package crashes; install it with

    CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON" pip install llama-cpp-python==0.3.36
"""

import ctypes

import llama_cpp
import numpy as np

_log_callback = llama_cpp.llama_log_callback(lambda level, text, user: None)


class Peer:
    """A loaded GGUF model with one context of n_ctx tokens; F16 KV cache (or F32), one sequence."""

    def __init__(self, path, n_ctx, threads, kv_f32=False):
        llama_cpp.llama_log_set(_log_callback, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp: cannot load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = n_ctx
        params.n_threads = params.n_threads_batch = threads
        if kv_f32:
            params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError(f"llama.cpp: no context for {path}")
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self.adds_bos = bool(llama_cpp.llama_vocab_get_add_bos(self._vocab))
        self.bos = llama_cpp.llama_vocab_bos(self._vocab)

    def tokenize(self, data, add_special=True, parse_special=False):
        ids = (llama_cpp.llama_token * (len(data) + 2))()
        count = llama_cpp.llama_tokenize(self._vocab, data, len(data), ids, len(ids), add_special, parse_special)
        if count < 0:
            raise RuntimeError("llama.cpp: tokenization failed")
        return list(ids[:count])

    def piece(self, token):
        """The bytes of a token; control tokens are empty."""
        buffer = ctypes.create_string_buffer(256)
        size = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, False)
        return buffer.raw[: max(size, 0)]

    def is_end(self, token):
        return bool(llama_cpp.llama_vocab_is_eog(self._vocab, token))

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)

    def decode(self, tokens, first_position, first_output):
        """Logits [len(tokens) - first_output, vocab_size] after tokens[first_output:], valid until the next call."""
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, first_position + i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, i >= first_output
        status = llama_cpp.llama_decode(self._context, batch)
        llama_cpp.llama_batch_free(batch)
        if status != 0:
            raise RuntimeError(f"llama.cpp: llama_decode returned {status}")
        rows = len(tokens) - first_output
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits(self._context), shape=(rows, self.vocab_size))

    def window_nll(self, tokens):
        """Sum of -ln p over the second half of one window, as tools/perplexity of llama.cpp counts it."""
        first = len(tokens) // 2
        window = [self.bos] + tokens[1:] if self.adds_bos else tokens
        self.clear()
        logits = self.decode(window, 0, first)[:-1]
        return float(sum(nll_of_row(logits[i], tokens[first + 1 + i]) for i in range(len(logits))))


def nll_of_row(logits, token):
    highest = logits.max()
    return float(np.log(np.exp((logits - highest).astype(np.float64)).sum()) - (logits[token] - np.float64(highest)))
