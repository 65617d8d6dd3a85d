// HTTP(S) transfers, by libcurl. Follows redirects, but never from https to http.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pocketlm::cli {

struct HttpSettings {
  std::string ca_file;       // certificates to trust; empty: the system's
  std::string proxy;         // empty: libcurl's environment variables
  std::string bearer_token;  // sent to the first host only; empty: none
  // "host" or "host:port" whose certificate is not checked (pip's option)
  std::vector<std::string> trusted_hosts;
  long timeout_s = 60;  // to connect, and without a byte
};

// What the server says before the body of its final answer (after redirects).
struct ResponseHead {
  long status = 0;
  std::optional<uint64_t> content_length;
  std::optional<uint64_t> range_begin;  // of Content-Range, for status 206
  std::optional<uint64_t> range_total;
  std::string content_type;
  std::string validator;  // a strong ETag, else Last-Modified, else empty
};

struct TransferRequest {
  std::string url;
  std::string accept;     // Accept header; empty: any
  uint64_t offset = 0;    // > 0 asks for the bytes from there on
  std::string validator;  // with offset: the whole file is sent instead if it changed (If-Range)
  // Called once, before any body; return false to stop the transfer.
  std::function<bool(const ResponseHead&)> on_head;
  // Each piece of the body of a 2xx answer; return false to stop the transfer.
  std::function<bool(std::string_view)> on_data;
};

struct TransferResult {
  ResponseHead head;
  bool complete = false;   // a whole 2xx answer arrived
  bool transient = false;  // not complete, but a later try may succeed
  std::string error;       // why it is not complete; empty if a callback stopped it
  std::string final_url;   // after redirects
};

class HttpClient {
 public:
  explicit HttpClient(HttpSettings settings);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // One try. Never throws on what the network does.
  TransferResult Transfer(const TransferRequest& request);

  struct Page {
    std::string body;
    std::string content_type;
    std::string url;  // after redirects
  };
  // A text of at most 64 MB, with up to three tries. nullopt and *error if it cannot be had.
  std::optional<Page> GetPage(const std::string& url, const std::string& accept,
                              std::string* error);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Waits before try number `attempt` (1, 2, …): half a second, then twice as long each time, at most 8 s.
void WaitBeforeRetry(int attempt);

}  // namespace pocketlm::cli
