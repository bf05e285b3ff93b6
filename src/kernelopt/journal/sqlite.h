// Small owners of SQLite's handles. Errors become Result (kIo); nothing throws.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kernelopt/base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace kernelopt::sqlite {

struct StatementCloser { void operator()(sqlite3_stmt* statement) const; };
struct DatabaseCloser { void operator()(sqlite3* database) const; };

// One prepared statement. Parameters count from 1, columns from 0, as in SQLite. Lives no longer than its database.
class Statement {
 public:
  Status bind(int parameter, int64_t value);
  Status bind(int parameter, double value);
  Status bind(int parameter, std::string_view text);
  Status bind(int parameter, const char* text) { return bind(parameter, std::string_view(text)); }
  Status bind(int parameter, const std::string& text) { return bind(parameter, std::string_view(text)); }
  Status bind(int parameter, int value) { return bind(parameter, static_cast<int64_t>(value)); }
  template <typename T>
  Status bind(int parameter, const std::optional<T>& value) {
    return value ? bind(parameter, *value) : bind_null(parameter);
  }
  Status bind_null(int parameter);

  // True: a row is there. False: done.
  Result<bool> step();

  bool is_null(int column) const;
  int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;
  std::optional<std::string> optional_text(int column) const;
  std::optional<double> optional_real(int column) const;

 private:
  friend class Database;
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  std::unique_ptr<sqlite3_stmt, StatementCloser> statement_;
};

enum class OpenMode { kReadOnly, kCreate };

class Database {
 public:
  static Result<Database> open(const std::string& path, OpenMode mode);

  Status execute(const std::string& sql);
  Result<Statement> prepare(std::string_view sql) const;
  // The one value of a one-row query.
  Result<int64_t> integer(const std::string& sql) const;
  int64_t last_row() const;

 private:
  explicit Database(sqlite3* database) : database_(database) {}
  std::unique_ptr<sqlite3, DatabaseCloser> database_;
};

// Rolls back unless committed.
class Transaction {
 public:
  static Result<Transaction> begin(Database& database);
  Transaction(Transaction&& other) : database_(other.database_) { other.database_ = nullptr; }
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Database& database) : database_(&database) {}
  Database* database_;
};

}  // namespace kernelopt::sqlite
