// A local HTTP server for tests: answers each request by a function, byte for byte, so that it can also be slow or break off.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace kernelopt::testing {

class HttpServer {
 public:
  // Given head and body of the request; what it returns is sent as it is, then the connection is closed.
  using Handler = std::function<std::string(const std::string& head, const std::string& body)>;

  explicit HttpServer(Handler handler) : handler_(std::move(handler)) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(socket_, 16) != 0) std::abort();
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { accept_all(); });
  }
  ~HttpServer() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    for (auto& connection : connections_) connection.join();
    ::close(socket_);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  static std::string response(int status, const std::string& body, const std::string& headers = "") {
    return "HTTP/1.1 " + std::to_string(status) + " X\r\ncontent-type: application/json\r\ncontent-length: " +
           std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body;
  }

 private:
  void accept_all() {
    for (;;) {
      const int connection = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      connections_.emplace_back([this, connection] { serve(connection); });
    }
  }
  void serve(int connection) {
    std::string text;
    size_t head = std::string::npos, length = 0;
    char buffer[4096];
    while (head == std::string::npos || text.size() < head + 4 + length) {
      const ssize_t got = ::recv(connection, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      text.append(buffer, static_cast<size_t>(got));
      if (head == std::string::npos && (head = text.find("\r\n\r\n")) != std::string::npos)
        for (const char* name : {"Content-Length: ", "content-length: "})
          if (const auto at = text.find(name); at != std::string::npos) length = std::stoul(text.substr(at + 16));
    }
    if (head != std::string::npos) {
      const auto reply = handler_(text.substr(0, head), text.substr(head + 4));
      size_t sent = 0;
      while (sent < reply.size()) {
        const ssize_t wrote = ::send(connection, reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
        if (wrote <= 0) break;
        sent += static_cast<size_t>(wrote);
      }
    }
    ::shutdown(connection, SHUT_RDWR);
    ::close(connection);
  }

  Handler handler_;
  int socket_ = -1, port_ = 0;
  std::thread thread_;
  std::vector<std::thread> connections_;
};

}  // namespace kernelopt::testing
