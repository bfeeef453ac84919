#pragma once

// Strings that a workload chose, made harmless: for JSON, for a terminal, for a shell. What comes out is printable ASCII, so that
// no record and no line can be broken, forged or coloured from inside.

#include <string>
#include <string_view>

namespace sluice::audit {

/// Appends a quoted JSON string. Everything outside printable ASCII is escaped, invalid UTF-8 as U+FFFD.
void AppendJsonString(std::string* out, std::string_view text);

/// For a person's eyes: bytes outside 0x21..0x7e as %XX, cut to `limit` characters with "..." behind.
[[nodiscard]] std::string Visible(std::string_view text, size_t limit);
/// The same with spaces kept.
[[nodiscard]] std::string VisibleSentence(std::string_view text, size_t limit);
/// One word for a POSIX shell, in single quotes. `text` must be printable.
[[nodiscard]] std::string ShellQuote(std::string_view text);

/// `text` with whatever looks like a credential replaced: known prefixes (ghp_, AKIA, eyJ and the like), 32 and more hexadecimal
/// digits, 24 and more characters that mix lower case, upper case and digits. Works on paths, names and sentences.
[[nodiscard]] std::string Redact(std::string_view text, std::string_view replacement = "...redacted");
/// The same of one of Sluice's own sentences: a pin that it says a server's key to have is public, and stays.
[[nodiscard]] std::string RedactSentence(std::string_view sentence);
/// A suggested rule with what looks like a credential in its path replaced by a star. Empty where the verb or the host has one:
/// a star there would be another rule.
[[nodiscard]] std::string RedactSuggestion(std::string_view suggest);
/// "a=1&b" becomes "a=&b": values never reach a record.
[[nodiscard]] std::string QueryKeys(std::string_view query);

}  // namespace sluice::audit
