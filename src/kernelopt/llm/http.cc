#include "kernelopt/llm/http.h"

#include <algorithm>
#include <cctype>
#include <mutex>

#include <dlfcn.h>

#include "kernelopt/worker/interrupt.h"

namespace kernelopt {
namespace {

constexpr size_t kMostBytes = 16u << 20;

// The part of libcurl's binary interface that is used; these numbers are fixed for good by its compatibility promise.
constexpr int kUrl = 10002, kWriteData = 10001, kPostFields = 10015, kHttpHeader = 10023, kHeaderData = 10029;
constexpr int kWriteFunction = 20011, kHeaderFunction = 20079, kTransferInfoFunction = 20219;
constexpr int kPostFieldSize = 60, kNoProgress = 43, kNoSignal = 99, kTimeoutMs = 155, kConnectTimeoutMs = 156, kProtocols = 181;
constexpr int kResponseCode = 0x200002;
constexpr int kOperationTimedOut = 28, kAbortedByCallback = 42;
constexpr long kHttpAndHttps = 3;
constexpr long kGlobalAll = 3;

struct Curl {
  int (*global_init)(long);
  void* (*easy_init)();
  int (*easy_setopt)(void*, int, ...);
  int (*easy_perform)(void*);
  int (*easy_getinfo)(void*, int, ...);
  void (*easy_cleanup)(void*);
  const char* (*easy_strerror)(int);
  void* (*slist_append)(void*, const char*);
  void (*slist_free_all)(void*);
};

template <typename F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  return function != nullptr;
}

size_t keep_body(char* data, size_t size, size_t count, void* into) {
  auto& body = *static_cast<std::string*>(into);
  if (body.size() + size * count > kMostBytes) return 0;
  body.append(data, size * count);
  return size * count;
}

size_t keep_header(char* data, size_t size, size_t count, void* into) {
  const std::string line(data, size * count);
  const auto colon = line.find(':');
  if (colon == std::string::npos) return size * count;
  auto name = line.substr(0, colon), value = line.substr(colon + 1);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto begin = value.find_first_not_of(" \t"), end = value.find_last_not_of(" \t\r\n");
  (*static_cast<std::map<std::string, std::string>*>(into))[name] =
      begin == std::string::npos ? "" : value.substr(begin, end - begin + 1);
  return size * count;
}

int stop_when_interrupted(void*, int64_t, int64_t, int64_t, int64_t) { return interrupted() ? 1 : 0; }

class CurlTransport final : public HttpTransport {
 public:
  explicit CurlTransport(Curl curl) : curl_(curl) {}

  Result<HttpResponse> post(const HttpRequest& request) override {
    void* easy = curl_.easy_init();
    if (!easy) return Error(ErrorCode::kEnvironment, "libcurl does not start");
    HttpResponse response;
    void* headers = nullptr;
    for (const auto& header : request.headers) headers = curl_.slist_append(headers, header.c_str());
    curl_.easy_setopt(easy, kUrl, request.url.c_str());
    curl_.easy_setopt(easy, kProtocols, kHttpAndHttps);
    curl_.easy_setopt(easy, kNoSignal, 1L);
    curl_.easy_setopt(easy, kPostFields, request.body.c_str());
    curl_.easy_setopt(easy, kPostFieldSize, static_cast<long>(request.body.size()));
    curl_.easy_setopt(easy, kHttpHeader, headers);
    curl_.easy_setopt(easy, kWriteFunction, &keep_body);
    curl_.easy_setopt(easy, kWriteData, &response.body);
    curl_.easy_setopt(easy, kHeaderFunction, &keep_header);
    curl_.easy_setopt(easy, kHeaderData, &response.headers);
    curl_.easy_setopt(easy, kNoProgress, 0L);
    curl_.easy_setopt(easy, kTransferInfoFunction, &stop_when_interrupted);
    curl_.easy_setopt(easy, kConnectTimeoutMs, 10000L);
    curl_.easy_setopt(easy, kTimeoutMs, static_cast<long>(request.timeout_seconds * 1e3));
    const int code = curl_.easy_perform(easy);
    curl_.easy_getinfo(easy, kResponseCode, &response.status);
    curl_.slist_free_all(headers);
    curl_.easy_cleanup(easy);
    if (code == kAbortedByCallback || interrupted()) return Error(ErrorCode::kInterrupted, "interrupted");
    if (code == kOperationTimedOut) return Error(ErrorCode::kTimeout, "no whole answer in time");
    if (code != 0) return Error(ErrorCode::kIo, curl_.easy_strerror(code));
    return response;
  }

 private:
  Curl curl_;
};

}  // namespace

Result<std::shared_ptr<HttpTransport>> curl_transport() {
  static std::mutex mutex;
  static std::shared_ptr<HttpTransport> transport;
  const std::lock_guard lock(mutex);
  if (transport) return transport;
  void* library = nullptr;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"})
    if ((library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL))) break;
  Curl curl{};
  if (!library || !find(library, "curl_global_init", curl.global_init) || !find(library, "curl_easy_init", curl.easy_init) ||
      !find(library, "curl_easy_setopt", curl.easy_setopt) || !find(library, "curl_easy_perform", curl.easy_perform) ||
      !find(library, "curl_easy_getinfo", curl.easy_getinfo) || !find(library, "curl_easy_cleanup", curl.easy_cleanup) ||
      !find(library, "curl_easy_strerror", curl.easy_strerror) || !find(library, "curl_slist_append", curl.slist_append) ||
      !find(library, "curl_slist_free_all", curl.slist_free_all) || curl.global_init(kGlobalAll) != 0)
    return Error(ErrorCode::kEnvironment, "a language model over HTTP needs libcurl.so.4");
  transport = std::make_shared<CurlTransport>(curl);
  return transport;
}

}  // namespace kernelopt
