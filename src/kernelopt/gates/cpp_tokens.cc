#include "kernelopt/gates/cpp_tokens.h"

#include <cctype>
#include <utility>

namespace kernelopt {
namespace {

bool is_word_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Splitter {
 public:
  explicit Splitter(std::string_view source) : text_(source) {}

  std::vector<CppToken> run() {
    while (at_ < text_.size()) step();
    return std::move(tokens_);
  }

 private:
  // Character `ahead` places on, 0 past the end. A backslash outside a directive is kBad, so lines are joined there only.
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void advance() {
    if (text_[at_] == '\n') {
      ++line_;
      line_start_ = true;
    }
    ++at_;
  }
  void emit(CppTokenKind kind, std::string text, int line) { tokens_.push_back({kind, std::move(text), line}); }

  void step() {
    const char c = peek();
    if (c == '\n' || c == ' ' || c == '\t' || c == '\r') return advance();
    if (c == '/' && peek(1) == '/') {
      // A continued comment would hide the next line from a reader, and from us.
      while (at_ < text_.size() && peek() != '\n') {
        if (peek() == '\\') return bad("backslash in a comment");
        advance();
      }
      return;
    }
    if (c == '/' && peek(1) == '*') return block_comment();
    if (c == '#') return directive();
    line_start_ = false;
    if (is_word_start(c)) return word();
    if (std::isdigit(static_cast<unsigned char>(c)) || (c == '.' && std::isdigit(static_cast<unsigned char>(peek(1)))))
      return number();
    if (c == '"') return string();
    for (const std::string_view joined : {"::", "->", "..."})
      if (text_.substr(at_, joined.size()) == joined) return punctuation(joined);
    // "<:", "<%" and "%:" spell "[", "{" and "#".
    if ((c == '<' && (peek(1) == ':' || peek(1) == '%')) || (c == '%' && peek(1) == ':')) return bad("digraph");
    static constexpr std::string_view kPunctuation = "{}()[]<>;:,.+-*/%=!&|^~?";
    if (kPunctuation.find(c) != std::string_view::npos) {
      emit(CppTokenKind::kPunctuation, std::string(1, c), line_);
      return advance();
    }
    bad(std::string(1, c));
  }

  void bad(std::string what) {
    emit(CppTokenKind::kBad, std::move(what), line_);
    at_ = text_.size();
  }

  void punctuation(std::string_view text) {
    emit(CppTokenKind::kPunctuation, std::string(text), line_);
    at_ += text.size();
  }

  void block_comment() {
    const size_t end = text_.find("*/", at_ + 2);
    if (end == std::string_view::npos) return bad("unfinished comment");
    const bool was_start = line_start_;
    while (at_ < end + 2) advance();
    line_start_ = line_start_ && was_start;
  }

  void directive() {
    if (!line_start_) return bad("#");
    const int line = line_;
    std::string text;
    while (at_ < text_.size() && peek() != '\n') {
      if (peek() == '\\' && peek(1) == '\n') {
        text += ' ';
        advance();
        advance();
        continue;
      }
      if (peek() == '/' && (peek(1) == '/' || peek(1) == '*')) return bad("comment in a directive");
      text += peek();
      advance();
    }
    emit(CppTokenKind::kDirective, std::move(text), line);
  }

  void word() {
    const size_t start = at_;
    while (is_word(peek())) advance();
    const std::string text(text_.substr(start, at_ - start));
    // Raw and prefixed strings: R"( would not end where an ordinary string ends.
    if (peek() == '"' || peek() == '\'') return bad(text + peek());
    emit(CppTokenKind::kIdentifier, text, line_);
  }

  void number() {
    const size_t start = at_;
    while (is_word(peek()) || peek() == '.' || (peek() == '\'' && is_word(peek(1))) || sign_of_exponent(start)) advance();
    const std::string text(text_.substr(start, at_ - start));
    if (peek() == '"' || peek() == '\'') return bad(text + peek());
    emit(CppTokenKind::kNumber, text, line_);
  }
  bool sign_of_exponent(size_t start) const {
    if (at_ == start || (peek() != '+' && peek() != '-')) return false;
    const char before = static_cast<char>(std::tolower(static_cast<unsigned char>(text_[at_ - 1])));
    const bool hexadecimal = at_ > start + 1 && std::tolower(static_cast<unsigned char>(text_[start + 1])) == 'x';
    return before == (hexadecimal ? 'p' : 'e');
  }

  void string() {
    const size_t start = at_;
    advance();
    while (at_ < text_.size() && peek() != '"') {
      if (peek() == '\\' || peek() == '\n') return bad("escape or line end in a string");
      advance();
    }
    if (at_ == text_.size()) return bad("unfinished string");
    advance();
    emit(CppTokenKind::kString, std::string(text_.substr(start, at_ - start)), line_);
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;
  std::vector<CppToken> tokens_;
};

}  // namespace

std::vector<CppToken> split_cpp(std::string_view source) { return Splitter(source).run(); }

}  // namespace kernelopt
