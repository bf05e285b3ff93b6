// HTTP POST behind an interface. libcurl is opened when the first HTTP provider is made, not before: the program runs
// without it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernelopt/base/result.h"

namespace kernelopt {

struct HttpRequest {
  std::string url, body;
  std::vector<std::string> headers;  // "name: value"
  double timeout_seconds = 300;
};

struct HttpResponse {
  long status = 0;
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;
};

class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  // kTimeout, kIo (no connection, a body that breaks off), kInterrupted. Never holds a header's value.
  virtual Result<HttpResponse> post(const HttpRequest& request) = 0;
};

// kEnvironment where libcurl is missing.
Result<std::shared_ptr<HttpTransport>> curl_transport();

}  // namespace kernelopt
