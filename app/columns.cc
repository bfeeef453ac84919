#include "app/columns.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "app/file.h"
#include "policy/io/yaml.h"

namespace sluice::app {
namespace {

uint32_t CodePoints(std::string_view text) {
  return static_cast<uint32_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// Lines of files, each file read once.
class Files {
 public:
  // Without its line feed; nothing where the file has no such line.
  std::optional<std::string_view> Line(const SourceSpan& span) {
    const auto [at, fresh] = files_.try_emplace(span.file);
    if (fresh) at->second = Read(span.file);
    const File& file = at->second;
    if (span.line == 0 || span.line > file.starts.size()) return std::nullopt;
    const std::string_view rest = std::string_view(file.text).substr(file.starts[span.line - 1]);
    return rest.substr(0, rest.find('\n'));
  }

 private:
  struct File {
    std::string text;
    std::vector<size_t> starts;  ///< of its lines
  };

  static File Read(const std::string& path) {
    File file;
    if (auto text = ReadFile(path, policy::kMaxFileBytes)) file.text = *std::move(text);
    for (size_t at = 0; at < file.text.size();) {
      file.starts.push_back(at);
      const size_t end = file.text.find('\n', at);
      at = end == std::string::npos ? file.text.size() : end + 1;
    }
    return file;
  }

  std::map<std::string, File> files_;
};

void CountCharacters(Files* files, SourceSpan* span) {
  if (span->column == 0) return;
  const auto line = files->Line(*span);
  const size_t before = span->column - 1;
  if (!line || before > line->size()) {
    span->column = span->length = 0;
    return;
  }
  span->length = CodePoints(line->substr(before, span->length));
  span->column = CodePoints(line->substr(0, before)) + 1;
}

}  // namespace

std::vector<Remark> WithCharacterColumns(std::vector<Remark> remarks) {
  Files files;
  for (Remark& remark : remarks) {
    CountCharacters(&files, &remark.span);
    for (auto& [name, span] : remark.related) CountCharacters(&files, &span);
  }
  return remarks;
}

}  // namespace sluice::app
