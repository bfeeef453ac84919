#include "proxy/io/secret_origin.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>

#include "base/printable.h"
#include "base/program.h"
#include "base/unique_fd.h"

namespace sluice::proxy {
namespace {

using Kind = policy::SecretSource::Kind;

constexpr unsigned kMaxLinks = 40;

bool IsWithin(std::string_view path, std::string_view tree) {
  return path.starts_with(tree) && (path.size() == tree.size() || path[tree.size()] == '/');
}

void DropLineEnd(std::string* text) {
  if (text->ends_with('\n')) text->pop_back();
  if (text->ends_with('\r')) text->pop_back();
}

// No reallocation leaves a copy behind: the room is there before the first byte.
std::string Room() {
  std::string text;
  text.reserve(kMaxSecretOctets + 8);
  return text;
}

Result<SecretPtr> Whole(std::string&& text, std::string_view what) {
  if (text.size() > kMaxSecretOctets) {
    Wipe(&text);
    return Fail(Code::kExhausted, fmt::format("{} holds more than 64 KiB", what));
  }
  DropLineEnd(&text);
  return std::make_shared<const Secret>(std::move(text));
}

// Appends up to what `*text` has room for; false at the end or an error, which `*failed` tells.
bool ReadOn(int fd, std::string* text, int* failed) {
  std::array<char, 4096> buffer;
  const size_t room = std::min(buffer.size(), text->capacity() - text->size());
  const ssize_t n = ::read(fd, buffer.data(), room);
  if (n > 0) text->append(buffer.data(), static_cast<size_t>(n));
  explicit_bzero(buffer.data(), buffer.size());
  if (n < 0 && errno != EINTR) *failed = errno;
  return n > 0 || (n < 0 && errno == EINTR);
}

int64_t Nanoseconds(const timespec& time) { return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec; }

std::deque<std::string> Parts(const std::string& path) {
  std::deque<std::string> parts;
  for (const auto& part : std::filesystem::path(path).relative_path())
    if (!part.empty() && part != ".") parts.push_back(part.string());
  return parts;
}

// The path link by link: a place that the workload sees is refused wherever it stands on the way.
Result<std::string> Resolve(const std::string& path, const SeenTrees& trees) {
  if (!path.starts_with('/')) return Fail(Code::kInvalid, fmt::format("{} is not an absolute path", path));
  std::deque<std::string> left = Parts(path);
  std::string at;
  for (unsigned links = 0; !left.empty();) {
    const std::string part = left.front();
    left.pop_front();
    if (part == "..") {
      at.resize(at.empty() ? 0 : at.rfind('/'));
      continue;
    }
    const std::string next = at + "/" + part;
    for (const std::string& tree : trees)
      if (IsWithin(next, tree))
        return Fail(Code::kPermission, fmt::format("{} lies in {}, which the command sees: keep the secret outside", path, tree));
    std::error_code error;
    if (!std::filesystem::is_symlink(std::filesystem::symlink_status(next, error))) {
      at = next;
      continue;
    }
    if (++links > kMaxLinks) return FailErrno(fmt::format("cannot read {}", path), ELOOP);
    const std::string target = std::filesystem::read_symlink(next, error).string();
    if (error) return FailErrno(fmt::format("cannot read {}", path), error.value());
    if (target.starts_with('/')) at.clear();
    std::deque<std::string> more = Parts(target);
    left.insert(left.begin(), more.begin(), more.end());
  }
  return at.empty() ? "/" : at;
}

// What the command printed as a secret may stand in its complaint, too.
std::string Complaint(std::string err, const std::string& out) {
  std::string secret = out;
  DropLineEnd(&secret);
  if (!secret.empty())
    for (size_t at = err.find(secret); at != std::string::npos; at = err.find(secret, at)) err.replace(at, secret.size(), "***");
  Wipe(&secret);
  while (!err.empty() && (err.back() == '\n' || err.back() == ' ')) err.pop_back();
  return Printable(err);
}

}  // namespace

std::string SourceText(const policy::SecretSource& source) {
  std::string text;
  switch (source.kind) {
    case Kind::kEnvironment:
      text = "env " + source.text;
      break;
    case Kind::kFile:
      text = "file " + source.text;
      break;
    case Kind::kCommand:
      text = "command";
      for (const std::string& word : source.command) text += fmt::format(" {:?}", word);
      break;
    case Kind::kSystemd:
      text = "systemd " + source.text;
      break;
    case Kind::kOauth:
      text = fmt::format("oauth {} {:?} {:?}", source.text, source.client_id, source.scope);
      break;
  }
  for (const policy::SecretSource& inner : source.secret) text += fmt::format(" with {}", SourceText(inner));
  return text;
}

Result<FileStamp> StampFile(const std::string& path, const SeenTrees& trees) {
  auto real = Resolve(path, trees);
  if (!real) return std::unexpected(real.error());
  struct stat status{};
  if (::lstat(real->c_str(), &status) != 0) {
    Error error = SystemError(fmt::format("cannot read {}", path), errno);
    error.code = error.sys_errno == ENOENT ? Code::kNotFound : Code::kIo;
    return std::unexpected(std::move(error));
  }
  if (!S_ISREG(status.st_mode)) return Fail(Code::kInvalid, fmt::format("{} is not a regular file", path));
  return FileStamp{*std::move(real),           status.st_dev, status.st_ino, status.st_size, Nanoseconds(status.st_mtim),
                   Nanoseconds(status.st_ctim)};
}

Result<std::string> SourcePath(const policy::SecretSource& source) {
  if (source.kind == Kind::kFile) return source.text;
  const char* folder = std::getenv("CREDENTIALS_DIRECTORY");
  if (folder == nullptr || *folder == '\0')
    return Fail(Code::kNotFound, "$CREDENTIALS_DIRECTORY is not set: the unit needs LoadCredential= or SetCredential=");
  if (source.text.empty() || source.text.contains('/') || source.text == "." || source.text == "..")
    return Fail(Code::kInvalid, fmt::format("'{}' is not a name that systemd gives a credential", Printable(source.text)));
  return fmt::format("{}/{}", folder, source.text);
}

Result<SecretPtr> ReadSecretFile(const FileStamp& stamp, std::string* warning) {
  const UniqueFd file(::open(stamp.real.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return FailErrno(fmt::format("cannot read {}", stamp.real), errno);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return FailErrno(fmt::format("cannot read {}", stamp.real), errno);
  if (status.st_dev != stamp.device || status.st_ino != stamp.inode)
    return Fail(Code::kIo, fmt::format("{} was replaced while it was read", stamp.real));
  warning->clear();
  if ((status.st_mode & 077) != 0)
    *warning = fmt::format("{} has mode {:04o}: other users may read or change the secret (chmod 600)", stamp.real,
                           status.st_mode & 07777);
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    *warning = fmt::format("{} belongs to user {}, who may change the secret", stamp.real, status.st_uid);
  std::string text = Room();
  int failed = 0;
  while (text.size() <= kMaxSecretOctets && ReadOn(file.get(), &text, &failed)) {
  }
  if (failed != 0) {
    Wipe(&text);
    return FailErrno(fmt::format("cannot read {}", stamp.real), failed);
  }
  return Whole(std::move(text), stamp.real);
}

Result<SecretPtr> TakeSecretVariable(const std::string& name) {
  char* value = std::getenv(name.c_str());
  if (value == nullptr) return Fail(Code::kNotFound, fmt::format("the variable {} is not set", name));
  std::string text = Room();
  const size_t size = std::strlen(value);
  text.append(value, std::min(size, kMaxSecretOctets + 1));
  // The kernel shows the block that the process began with (/proc/PID/environ), so unsetting alone hides nothing.
  explicit_bzero(value, size);
  ::unsetenv(name.c_str());
  return Whole(std::move(text), name);
}

Result<SecretPtr> RunSecretCommand(const std::vector<std::string>& command, std::chrono::milliseconds deadline,
                                   Spawner* spawner) {
  if (command.empty()) return Fail(Code::kInvalid, "the command is empty");
  const std::string name = Printable(command.front());
  auto run = RunProgram(command, {.out = kMaxSecretOctets + 2, .err = kMaxCommandComplaint, .deadline = deadline}, spawner);
  if (!run) return std::unexpected(run.error());
  const std::string complaint = Complaint(std::move(run->err), run->out);
  const auto fail = [&](std::string why) -> Result<SecretPtr> {
    Wipe(&run->out);
    return Fail(Code::kIo, fmt::format("{} {}{}{}", name, why, complaint.empty() ? "" : ": ", complaint));
  };
  if (run->end == ProgramRun::End::kLate) return fail(fmt::format("did not end within {} s", deadline.count() / 1000));
  if (run->end == ProgramRun::End::kTooMuch) return fail("printed more than 64 KiB");
  if (run->end == ProgramRun::End::kSignalled) return fail(fmt::format("was ended by signal {}", run->code));
  if (run->code != 0) return fail(fmt::format("ended with exit code {}", run->code));
  return Whole(std::move(run->out), fmt::format("what {} printed", name));
}

}  // namespace sluice::proxy
