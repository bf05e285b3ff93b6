#include "kernelopt/journal/sqlite.h"

#include <sqlite3.h>

namespace kernelopt::sqlite {
namespace {

Error failure(sqlite3* database, const std::string& what) {
  return Error(ErrorCode::kIo, what + ": " + (database ? sqlite3_errmsg(database) : "out of memory"));
}

Status bound(sqlite3_stmt* statement, int code) {
  if (code == SQLITE_OK) return ok_status();
  return failure(sqlite3_db_handle(statement), "journal: binding a value");
}

}  // namespace

void StatementCloser::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
void DatabaseCloser::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Status Statement::bind(int parameter, int64_t value) {
  return bound(statement_.get(), sqlite3_bind_int64(statement_.get(), parameter, value));
}
Status Statement::bind(int parameter, double value) {
  return bound(statement_.get(), sqlite3_bind_double(statement_.get(), parameter, value));
}
Status Statement::bind(int parameter, std::string_view text) {
  return bound(statement_.get(),
               sqlite3_bind_text64(statement_.get(), parameter, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
}
Status Statement::bind_null(int parameter) {
  return bound(statement_.get(), sqlite3_bind_null(statement_.get(), parameter));
}

Result<bool> Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return failure(sqlite3_db_handle(statement_.get()), "journal");
}

bool Statement::is_null(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }
int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
double Statement::real(int column) const { return sqlite3_column_double(statement_.get(), column); }
std::string Statement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  return bytes ? std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))) : std::string();
}
std::optional<std::string> Statement::optional_text(int column) const {
  return is_null(column) ? std::nullopt : std::optional(text(column));
}
std::optional<double> Statement::optional_real(int column) const {
  return is_null(column) ? std::nullopt : std::optional(real(column));
}

Result<Database> Database::open(const std::string& path, OpenMode mode) {
  sqlite3* handle = nullptr;
  const int flags = mode == OpenMode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database(handle);
  if (code != SQLITE_OK) return failure(handle, path);
  // A reader and the writer meet only for moments (checkpoints).
  sqlite3_busy_timeout(handle, 10'000);
  return database;
}

Status Database::execute(const std::string& sql) {
  char* message = nullptr;
  const int code = sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, &message);
  if (code == SQLITE_OK) return ok_status();
  Error error(ErrorCode::kIo, std::string("journal: ") + (message ? message : sqlite3_errmsg(database_.get())));
  sqlite3_free(message);
  return error;
}

Result<Statement> Database::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database_.get(), sql.data(), static_cast<int>(sql.size()), &statement, nullptr) != SQLITE_OK)
    return failure(database_.get(), "journal");
  return Statement(statement);
}

Result<int64_t> Database::integer(const std::string& sql) const {
  KO_TRY(Statement statement, prepare(sql));
  KO_TRY(bool row, statement.step());
  if (!row) return Error(ErrorCode::kIo, "journal: no row for " + sql);
  return statement.integer(0);
}

int64_t Database::last_row() const { return sqlite3_last_insert_rowid(database_.get()); }

Result<Transaction> Transaction::begin(Database& database) {
  KO_RETURN_IF_ERROR(database.execute("BEGIN IMMEDIATE"));
  return Transaction(database);
}

Transaction::~Transaction() {
  // Nothing was promised yet, so a failed rollback loses nothing either: SQLite drops it with the connection.
  if (database_) (void)database_->execute("ROLLBACK");
}

Status Transaction::commit() {
  KO_RETURN_IF_ERROR(database_->execute("COMMIT"));
  database_ = nullptr;
  return ok_status();
}

}  // namespace kernelopt::sqlite
