#include "http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "cli_error.h"
#include "hash.h"
#include "url.h"

namespace pocketlm::cli {
namespace {

constexpr size_t kMaxPageBytes = size_t{64} << 20;
constexpr int kPageTries = 3;

struct Exchange {
  const TransferRequest* request = nullptr;
  CURL* curl = nullptr;
  ResponseHead head;
  std::string etag;
  std::string last_modified;
  bool head_told = false;
  bool stopped = false;  // by a callback
};

std::string Trim(std::string_view text) {
  while (!text.empty() && static_cast<unsigned char>(text.front()) <= ' ') text.remove_prefix(1);
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  return std::string(text);
}

std::optional<uint64_t> ParseNumber(const std::string& text) {
  if (text.empty() || text.size() > 18 ||
      text.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::strtoull(text.c_str(), nullptr, 10);
}

// "bytes 100-199/200"
void ParseContentRange(const std::string& value, ResponseHead* head) {
  const size_t dash = value.find('-');
  const size_t slash = value.find('/');
  if (value.compare(0, 6, "bytes ") != 0 || dash == std::string::npos || slash == std::string::npos)
    return;
  head->range_begin = ParseNumber(Trim(value.substr(6, dash - 6)));
  head->range_total = ParseNumber(Trim(value.substr(slash + 1)));
}

size_t OnHeader(char* data, size_t size, size_t count, void* user) {
  auto* exchange = static_cast<Exchange*>(user);
  const std::string_view line(data, size * count);
  if (line.substr(0, 5) == "HTTP/") {  // a further answer, after a redirect
    exchange->head = ResponseHead();
    exchange->etag.clear();
    exchange->last_modified.clear();
    return size * count;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return size * count;
  const std::string name = LowerCase(std::string(line.substr(0, colon)));
  const std::string value = Trim(line.substr(colon + 1));
  if (name == "content-length") exchange->head.content_length = ParseNumber(value);
  if (name == "content-type") exchange->head.content_type = LowerCase(value);
  if (name == "content-range") ParseContentRange(value, &exchange->head);
  if (name == "etag") exchange->etag = value;
  if (name == "last-modified") exchange->last_modified = value;
  return size * count;
}

bool IsSuccess(long status) { return status >= 200 && status < 300; }

// Tells the head once; false if the transfer is to stop.
bool TellHead(Exchange* exchange) {
  if (exchange->head_told) return true;
  exchange->head_told = true;
  curl_easy_getinfo(exchange->curl, CURLINFO_RESPONSE_CODE, &exchange->head.status);
  const bool strong = !exchange->etag.empty() && exchange->etag.compare(0, 2, "W/") != 0;
  exchange->head.validator = strong ? exchange->etag : exchange->last_modified;
  if (!IsSuccess(exchange->head.status) || !exchange->request->on_head) return true;
  exchange->stopped = !exchange->request->on_head(exchange->head);
  return !exchange->stopped;
}

size_t OnBody(char* data, size_t size, size_t count, void* user) {
  auto* exchange = static_cast<Exchange*>(user);
  if (!TellHead(exchange)) return CURL_WRITEFUNC_ERROR;
  if (!IsSuccess(exchange->head.status)) return size * count;
  if (exchange->request->on_data &&
      !exchange->request->on_data(std::string_view(data, size * count))) {
    exchange->stopped = true;
    return CURL_WRITEFUNC_ERROR;
  }
  return size * count;
}

bool IsTransient(CURLcode code) {
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_COULDNT_CONNECT:
      return true;
    default:
      return false;
  }
}

std::string FirstExisting(const std::string& configured) {
  if (!configured.empty()) return configured;
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

void CheckOption(CURLcode code) {
  if (code != CURLE_OK) Fail(std::string("download: libcurl: ") + curl_easy_strerror(code));
}

}  // namespace

struct HttpClient::Impl {
  HttpSettings settings;
  CURL* curl = nullptr;

  bool Trusts(const std::string& url) const;
  void Configure(Exchange* exchange, curl_slist* headers);
};

HttpClient::HttpClient(HttpSettings settings) : impl_(std::make_unique<Impl>()) {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  impl_->settings = std::move(settings);
  impl_->settings.ca_file = FirstExisting(impl_->settings.ca_file);
  impl_->curl = ready ? curl_easy_init() : nullptr;
  if (impl_->curl == nullptr) Fail("download: libcurl: cannot be started");
}

HttpClient::~HttpClient() { curl_easy_cleanup(impl_->curl); }

bool HttpClient::Impl::Trusts(const std::string& url) const {
  const auto parsed = ParseUrl(url);
  if (!parsed) return false;
  for (const std::string& entry : settings.trusted_hosts) {
    if (LowerCase(entry.substr(0, entry.find(':'))) == parsed->host) return true;
  }
  return false;
}

void HttpClient::Impl::Configure(Exchange* exchange, curl_slist* headers) {
  const std::string& url = exchange->request->url;
  const bool secure = LowerCase(url.substr(0, 6)) == "https:";
  curl_easy_reset(curl);
  CheckOption(curl_easy_setopt(curl, CURLOPT_URL, url.c_str()));
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "pocketlm");
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(curl, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_OPTIONAL));
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, settings.timeout_s);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, settings.timeout_s);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, exchange);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, OnBody);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, exchange);
  if (!settings.ca_file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, settings.ca_file.c_str());
  if (!settings.proxy.empty()) curl_easy_setopt(curl, CURLOPT_PROXY, settings.proxy.c_str());
  if (!settings.bearer_token.empty()) {
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
    curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, settings.bearer_token.c_str());
  }
  if (Trusts(url)) {
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
  }
}

TransferResult HttpClient::Transfer(const TransferRequest& request) {
  Exchange exchange;
  exchange.request = &request;
  exchange.curl = impl_->curl;
  std::vector<std::string> lines;
  if (!request.accept.empty()) lines.push_back("Accept: " + request.accept);
  if (request.offset > 0) {
    lines.push_back("Range: bytes=" + std::to_string(request.offset) + "-");
    if (!request.validator.empty()) lines.push_back("If-Range: " + request.validator);
  }
  std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(nullptr, curl_slist_free_all);
  for (const std::string& line : lines) {
    curl_slist* grown = curl_slist_append(headers.get(), line.c_str());
    headers.release();
    headers.reset(grown);
  }
  impl_->Configure(&exchange, headers.get());
  const CURLcode code = curl_easy_perform(impl_->curl);

  TransferResult result;
  if (code == CURLE_OK) TellHead(&exchange);
  char* effective = nullptr;
  curl_easy_getinfo(impl_->curl, CURLINFO_EFFECTIVE_URL, &effective);
  result.final_url = effective != nullptr ? effective : request.url;
  result.head = exchange.head;
  if (exchange.stopped) return result;
  if (code != CURLE_OK) {
    result.transient = IsTransient(code);
    result.error = curl_easy_strerror(code);
  } else if (!IsSuccess(exchange.head.status)) {
    const long status = exchange.head.status;
    result.transient = status >= 500 || status == 429 || status == 408;
    result.error = "HTTP status " + std::to_string(status);
  } else {
    result.complete = true;
  }
  return result;
}

std::optional<HttpClient::Page> HttpClient::GetPage(const std::string& url,
                                                    const std::string& accept, std::string* error) {
  for (int attempt = 1;; ++attempt) {
    Page page;
    TransferRequest request;
    request.url = url;
    request.accept = accept;
    request.on_data = [&page](std::string_view piece) {
      page.body += piece;
      return page.body.size() <= kMaxPageBytes;
    };
    const TransferResult result = Transfer(request);
    if (result.complete) {
      page.content_type = result.head.content_type;
      page.url = result.final_url;
      return page;
    }
    *error = result.error.empty() ? "a page of more than 64 MB" : result.error;
    if (!result.transient || attempt == kPageTries) return std::nullopt;
    WaitBeforeRetry(attempt);
  }
}

void WaitBeforeRetry(int attempt) {
  std::this_thread::sleep_for(
      std::chrono::milliseconds(std::min(500 << std::min(attempt - 1, 5), 8000)));
}

}  // namespace pocketlm::cli
