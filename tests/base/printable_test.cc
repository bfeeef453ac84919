#include "base/printable.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(PrintableTest, WhatAReaderCannotSeeOrThatMovesTheCursorIsReplaced) {
  struct Case {
    std::string_view in;
    std::string_view out;
  };
  const Case cases[] = {
      {"plain text", "plain text"},
      {"\x1b[2J\n\x07\x7f", "?[2J???"},
      {"caf\xc3\xa9 \xe2\x80\xa6", "caf\xc3\xa9 \xe2\x80\xa6"},  // é and …
      {"\xc2\x9b"
       "31m",
       "?31m"},  // U+009B, a CSI of one code point
      {"a\xe2\x80\xae"
       "b",
       "a?b"},  // right to left from here
      {"\xe2\x80\xa8\xef\xbb\xbf", "??"},
      {"\xff\xc3", "??"},
      {"\x9b", "?"},
      {"\xed\xa0\x80", "???"},
  };
  for (const Case& c : cases) EXPECT_EQ(Printable(c.in), c.out);
}

TEST(PrintableTest, NamedControlsAreKept) { EXPECT_EQ(Printable("a\n\tb\r", "\n\t"), "a\n\tb?"); }

}  // namespace
}  // namespace sluice
