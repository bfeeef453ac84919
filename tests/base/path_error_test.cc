#include "base/path_error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace sluice {
namespace {

TEST(PathError, WhatAnotherPathPutsRightIsAMistakeAndTheRestIsNot) {
  for (const int mistake : {EACCES, EPERM, EROFS, ELOOP, ENAMETOOLONG, ENXIO, ENOTDIR, EISDIR})
    EXPECT_EQ(PathError("cannot open x", mistake).code, Code::kInvalid) << mistake;
  EXPECT_EQ(PathError("cannot open x", ENOENT).code, Code::kNotFound);
  EXPECT_EQ(PathError("cannot open x", ENOSPC).code, Code::kIo);
  EXPECT_EQ(PathError("cannot open x", EIO).code, Code::kIo);
  EXPECT_EQ(PathError("cannot open x", EMFILE).code, Code::kExhausted);
  EXPECT_EQ(PathError("cannot open x", EACCES).message, "cannot open x: Permission denied");
  EXPECT_EQ(PathError("cannot open x", EACCES).sys_errno, EACCES);
}

}  // namespace
}  // namespace sluice
