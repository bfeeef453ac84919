#include "policy/io/yaml.h"

#include <fmt/format.h>
#include <libfyaml.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/printable.h"
#include "policy/quoted.h"

namespace sluice::policy {
namespace {

struct Text {
  std::string_view bytes;
  const std::string& file;
  std::vector<size_t> line_starts;

  Text(std::string_view b, const std::string& f) : bytes(b), file(f), line_starts{0} {
    for (size_t i = 0; i < b.size(); ++i)
      if (b[i] == '\n') line_starts.push_back(i + 1);
  }
  [[nodiscard]] SourceSpan Span(size_t from, size_t to) const {
    from = std::min(from, bytes.size());
    const auto line = std::upper_bound(line_starts.begin(), line_starts.end(), from) - 1;
    const size_t line_end = line + 1 == line_starts.end() ? bytes.size() : *(line + 1) - 1;
    const size_t length = std::min(std::max(to, from), line_end) - from;
    return {file, static_cast<uint32_t>(line - line_starts.begin() + 1), static_cast<uint32_t>(from - *line + 1),
            static_cast<uint32_t>(length)};
  }
  [[nodiscard]] std::unexpected<Error> Fail(std::string message, size_t from, size_t to) const {
    return std::unexpected(Error{Code::kInvalid, std::move(message), 0, Span(from, to)});
  }
};

Result<void> CheckBytes(const Text& text) {
  const std::string_view bytes = text.bytes;
  for (size_t i = 0; i < bytes.size();) {
    const CodePoint c = DecodeUtf8(bytes.substr(i));
    if (c.size == 0) return text.Fail("this byte is not UTF-8", i, i + 1);
    if (c.value == '\t') return text.Fail("a tab; indent and separate with spaces", i, i + 1);
    const bool line_end = c.value == '\r' && i + 1 < bytes.size() && bytes[i + 1] == '\n';
    if (IsInvisible(c.value) && !line_end)
      return text.Fail(fmt::format("the invisible character U+{:04X}", c.value), i, i + c.size);
    if (c.value == '%' && (i == 0 || bytes[i - 1] == '\n')) return text.Fail("a YAML directive; a policy has none", i, i + 1);
    i += c.size;
  }
  return {};
}

struct ParserDeleter {
  void operator()(fy_parser* parser) const { fy_parser_destroy(parser); }
};
struct DiagDeleter {
  void operator()(fy_diag* diag) const { fy_diag_destroy(diag); }
};
using DiagPtr = std::unique_ptr<fy_diag, DiagDeleter>;

void Discard(fy_diag*, void*, const char*, size_t) {}

// Errors are collected and never printed: whoever asked for the policy says them.
DiagPtr MakeDiag() {
  fy_diag_cfg config{};
  fy_diag_cfg_default(&config);
  config.fp = nullptr;
  config.output_fn = Discard;
  config.level = FYET_ERROR;
  config.colorize = false;
  DiagPtr diag(fy_diag_create(&config));
  if (diag != nullptr) fy_diag_set_collect_errors(diag.get(), true);
  return diag;
}

Node EmptyMap(const Text& text) {
  Node node;
  node.kind = Node::Kind::kMapping;
  node.span = text.Span(0, 0);
  return node;
}

class TreeBuilder {
 public:
  TreeBuilder(const Text& text, fy_parser* parser, fy_diag* diag) : text_(text), parser_(parser), diag_(diag) {}

  Result<Node> Build() {
    while (true) {
      fy_event* event = fy_parser_parse(parser_);
      if (event == nullptr) return SyntaxError();
      auto done = Take(event);
      fy_parser_event_free(parser_, event);
      if (!done) return std::unexpected(done.error());
      if (*done) break;
    }
    return root_ ? std::move(*root_) : EmptyMap(text_);
  }

 private:
  struct Open {
    Node node;
    std::optional<Node> key{};
  };

  // True at the end of the stream.
  Result<bool> Take(fy_event* event) {
    switch (event->type) {
      case FYET_NONE:
      case FYET_STREAM_START:
      case FYET_DOCUMENT_END:
        return false;
      case FYET_STREAM_END:
        return true;
      case FYET_DOCUMENT_START:
        if (++documents_ > 1) return text_.Fail("a second document; a policy is one", Start(event), Start(event) + 3);
        return false;
      case FYET_ALIAS: {
        const size_t name = Start(event);  // after the star
        return text_.Fail("an alias; write the value again, or quote what begins with `*`", name == 0 ? 0 : name - 1, name + 1);
      }
      case FYET_MAPPING_START:
        return Enter(Node::Kind::kMapping, event, event->mapping_start.anchor, event->mapping_start.tag,
                     event->mapping_start.mapping_start);
      case FYET_SEQUENCE_START:
        return Enter(Node::Kind::kSequence, event, event->sequence_start.anchor, event->sequence_start.tag,
                     event->sequence_start.sequence_start);
      case FYET_MAPPING_END:
      case FYET_SEQUENCE_END:
        return Leave();
      case FYET_SCALAR:
        return Scalar(event);
    }
    return text_.Fail("an unknown YAML construct", 0, 0);
  }

  static size_t Start(fy_event* event) {
    const fy_mark* mark = fy_event_start_mark(event);
    return mark == nullptr ? 0 : mark->input_pos;
  }
  static size_t TokenStart(fy_token* token, fy_event* event) {
    const fy_mark* mark = token == nullptr ? nullptr : fy_token_start_mark(token);
    return mark == nullptr ? Start(event) : mark->input_pos;
  }

  Result<void> RefuseProperties(fy_token* anchor, fy_token* tag, fy_event* event) const {
    if (anchor != nullptr) {
      const size_t at = TokenStart(anchor, event);
      return text_.Fail("an anchor; a policy repeats what it means", at == 0 ? 0 : at - 1, at + 1);
    }
    if (tag != nullptr) {
      const size_t at = TokenStart(tag, event);
      return text_.Fail("a YAML tag; quote the value if it begins with `!`", at, at + 1);
    }
    return {};
  }

  Result<bool> Enter(Node::Kind kind, fy_event* event, fy_token* anchor, fy_token* tag, fy_token* token) {
    if (auto plain = RefuseProperties(anchor, tag, event); !plain) return std::unexpected(plain.error());
    const size_t at = TokenStart(token, event);
    if (stack_.size() >= kMaxDepth) return text_.Fail("nested too deeply for a policy", at, at + 1);
    if (!stack_.empty() && stack_.back().node.kind == Node::Kind::kMapping && !stack_.back().key)
      return text_.Fail("a key is one word, not a list or map", at, at + 1);
    Open open;
    open.node.kind = kind;
    open.node.span = text_.Span(at, at + 1);
    stack_.push_back(std::move(open));
    return false;
  }

  Result<bool> Leave() {
    Node node = std::move(stack_.back().node);
    stack_.pop_back();
    return Add(std::move(node));
  }

  Result<bool> Scalar(fy_event* event) {
    if (auto plain = RefuseProperties(event->scalar.anchor, event->scalar.tag, event); !plain)
      return std::unexpected(plain.error());
    fy_token* token = event->scalar.value;
    Node node;
    if (token == nullptr) {  // "key:" with nothing after it
      node.span = PlaceOfNothing();
      return Add(std::move(node));
    }
    const size_t from = TokenStart(token, event);
    const fy_mark* end_mark = fy_token_end_mark(token);
    const size_t to = end_mark == nullptr ? from : end_mark->input_pos;
    const auto read = ReadStyle(token, from, to, &node);
    if (!read) return std::unexpected(read.error());
    for (size_t i = 0; i < node.text.size();) {
      const CodePoint c = DecodeUtf8(std::string_view(node.text).substr(i));
      if (c.size == 0 || IsInvisible(c.value))
        return text_.Fail("an escape that stands for an invisible character or no character", from, to);
      i += c.size;
    }
    return Add(std::move(node));
  }

  Result<void> ReadStyle(fy_token* token, size_t from, size_t to, Node* node) {
    const size_t size = text_.bytes.size();
    const std::string_view raw = text_.bytes.substr(std::min(from, size), to > from ? to - from : 0);
    switch (fy_token_scalar_style(token)) {
      case FYSS_PLAIN:
        if (raw.find('\n') != std::string_view::npos)
          return text_.Fail("a plain value over several lines; write it on one, or quote it", from, to);
        node->text = raw;
        node->span = text_.Span(from, to);
        return RefuseGluedComment(to);
      case FYSS_SINGLE_QUOTED:
        return ReadQuoted('\'', from, to, node);
      case FYSS_DOUBLE_QUOTED:
        return ReadQuoted('"', from, to, node);
      default:
        break;
    }
    size_t length = 0;
    const char* value = fy_token_get_text(token, &length);
    if (value == nullptr) return text_.Fail("this value cannot be read", from, to);
    node->text.assign(value, length);
    node->style = Node::Style::kBlock;
    node->verbatim = false;
    node->span = PlaceOfNothing();
    return {};
  }

  // The token's marks stand inside the quotes. Its text is decoded here and not by libfyaml, which leaks memory for a scalar
  // with more than a few escapes (0.7.12).
  Result<void> ReadQuoted(char quote, size_t from, size_t to, Node* node) {
    const size_t size = text_.bytes.size();
    if (from == 0 || from > to || to >= size || text_.bytes[from - 1] != quote || text_.bytes[to] != quote)
      return text_.Fail("this quoted value cannot be read", from, to);
    const std::string_view raw = text_.bytes.substr(from, to - from);
    if (raw.find('\n') != std::string_view::npos)
      return text_.Fail("a quoted value over several lines; write it on one", from - 1, to);
    auto decoded = quote == '"' ? DecodeDoubleQuoted(raw) : DecodeSingleQuoted(raw);
    if (!decoded) {
      const size_t at = from + decoded.error().span->column - 1;
      return text_.Fail(decoded.error().message, at, at + decoded.error().span->length);
    }
    node->style = Node::Style::kQuoted;
    node->text_offset = 1;
    node->text = std::move(*decoded);
    node->verbatim = raw == node->text;
    node->span = text_.Span(from - 1, to + 1);
    return {};
  }

  // For what has no text of its own on one line: the key that it belongs to.
  [[nodiscard]] SourceSpan PlaceOfNothing() const {
    if (stack_.empty()) return text_.Span(0, 0);
    return stack_.back().key ? stack_.back().key->span : stack_.back().node.span;
  }

  // "a #b" is "a" and a comment to YAML, and hardly ever meant so; "a # b" is one.
  Result<void> RefuseGluedComment(size_t end) const {
    const std::string_view bytes = text_.bytes;
    size_t at = end;
    while (at < bytes.size() && bytes[at] == ' ') ++at;
    if (at == end || at + 1 >= bytes.size() || bytes[at] != '#') return {};
    const char next = bytes[at + 1];
    if (next == ' ' || next == '\n' || next == '\r' || next == '#') return {};
    return text_.Fail("` #` begins a comment here: quote the value if it is part of it, else write `# ` with a space", at,
                      std::min(bytes.find('\n', at), bytes.size()));
  }

  Result<bool> Add(Node node) {
    if (++nodes_ > kMaxNodes) return std::unexpected(Error{Code::kExhausted, "too many values in one file", 0, node.span});
    if (stack_.empty()) {
      root_ = std::move(node);
      return false;
    }
    Open& open = stack_.back();
    if (open.node.kind == Node::Kind::kSequence) {
      open.node.items.push_back(std::move(node));
      return false;
    }
    if (!open.key) {
      if (auto good = CheckKey(node); !good) return std::unexpected(good.error());
      open.key = std::move(node);
      return false;
    }
    open.node.members.push_back({std::move(*open.key), std::move(node)});
    open.key.reset();
    return false;
  }

  Result<void> CheckKey(const Node& key) {
    const auto refuse = [&](std::string message) {
      return std::unexpected(Error{Code::kInvalid, std::move(message), 0, key.span});
    };
    if (key.style == Node::Style::kBlock) return refuse("a key is one word");
    if (key.style == Node::Style::kPlain && key.text == "<<") return refuse("a merge key; write what it would bring");
    for (const auto& [other, value] : stack_.back().node.members)
      if (other.text == key.text) return refuse(fmt::format("`{}` is already set on line {}", key.text, other.span.line));
    if (stack_.back().node.members.size() >= kMaxMembers) return refuse(fmt::format("more than {} keys in one map", kMaxMembers));
    // In YAML 1.1 `"a":b` is no pair.
    const size_t after = text_.line_starts[key.span.line - 1] + key.span.column - 1 + key.span.length;
    const size_t colon = text_.bytes.find_first_not_of(' ', after);
    if (colon != std::string_view::npos && text_.bytes[colon] == ':' && colon + 1 < text_.bytes.size() &&
        std::string_view(" \r\n").find(text_.bytes[colon + 1]) == std::string_view::npos)
      return text_.Fail("a space is needed after `:`", colon, colon + 1);
    return {};
  }

  std::unexpected<Error> SyntaxError() {
    void* iterator = nullptr;
    const fy_diag_error* error = fy_diag_errors_iterate(diag_, &iterator);
    if (error == nullptr || error->msg == nullptr) return text_.Fail("this is not YAML", text_.bytes.size(), text_.bytes.size());
    SourceSpan span{text_.file, static_cast<uint32_t>(std::max(error->line, 1)),
                    static_cast<uint32_t>(std::max(error->column, 1)), 1};
    std::string message(error->msg);
    while (!message.empty() && (message.back() == '\n' || message.back() == '.')) message.pop_back();
    if (message.find("alias") != std::string::npos) message += "; quote what begins with `*`";
    return std::unexpected(Error{Code::kInvalid, fmt::format("not valid YAML: {}", message), 0, std::move(span)});
  }

  static constexpr size_t kMaxMembers = 256;
  static constexpr size_t kMaxNodes = 400'000;

  const Text& text_;
  fy_parser* parser_;
  fy_diag* diag_;
  int documents_ = 0;
  size_t nodes_ = 0;
  std::vector<Open> stack_;
  std::optional<Node> root_;
};

}  // namespace

Result<void> CheckCharacters(std::string_view text, const std::string& file) { return CheckBytes(Text(text, file)); }

Result<Node> ParseYaml(std::string_view text, const std::string& file) {
  const Text source(text, file);
  if (text.size() > kMaxFileBytes) return source.Fail("the file is larger than 1 MiB", 0, 0);
  if (auto clean = CheckBytes(source); !clean) return std::unexpected(clean.error());
  if (text.find_first_not_of(" \r\n") == std::string_view::npos) return EmptyMap(source);
  const DiagPtr diag = MakeDiag();
  fy_parse_cfg config{};
  config.diag = diag.get();
  config.flags = static_cast<fy_parse_cfg_flags>(FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE |
                                                 FYPCF_DISABLE_RECYCLING);
  const std::unique_ptr<fy_parser, ParserDeleter> parser(fy_parser_create(&config));
  if (diag == nullptr || parser == nullptr) return Fail(Code::kExhausted, "out of memory for the YAML parser");
  if (fy_parser_set_string(parser.get(), text.data(), text.size()) != 0)
    return Fail(Code::kInternal, "the YAML parser refused its input");
  return TreeBuilder(source, parser.get(), diag.get()).Build();
}

}  // namespace sluice::policy
